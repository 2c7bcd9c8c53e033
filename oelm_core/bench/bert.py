"""`oelm bench bert`: a fine-tuning step of BERT on this machine: packed, padded, with Q and K frozen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oelm_core.bench import steps
from oelm_core.bench.profile import profile_step, profile_table
from oelm_core.bench.report import BenchSection, BenchTable, Effort
from oelm_core.bench.turns import Make, Measured, ratio, take_turns
from oelm_core.formatting import measured_time, size
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes

PACKED, FROZEN, DYNAMIC = "packed", "packed, Q/K frozen", "dynamic"


def measure(effort: Effort) -> BenchSection:
    sizes = step_sizes(effort)
    section = BenchSection("bert", section_title(sizes, effort))
    limit = flops.ideal_ratio(sizes, classifier=True)
    compare_batching(section, sizes, effort, f" By arithmetic, freezing Q and K saves at most {limit:.4f}x.")
    profile = profile_step(partial(steps.bert, sizes, batching="packed", batches=1), effort.threads)
    section.tables.append(profile_table(profile, PACKED))
    return section


def step_sizes(effort: Effort) -> StepSizes:
    return steps.TINY_BERT if effort.quick else steps.BERT_BASE


def section_title(sizes: StepSizes, effort: Effort) -> str:
    return f"{'A tiny encoder' if effort.quick else 'BERT-base'}, a training step of {sizes.batch} short sentences"


def compare_batching(
    section: BenchSection, sizes: StepSizes, effort: Effort, note: str, more: Mapping[str, Make] | None = None
) -> dict[str, Measured]:
    """Adds the table of a packed step beside a padded one, one with Q/K frozen, and `more`; `note` ends its remarks."""
    makes: dict[str, Make] = {
        PACKED: partial(steps.bert, sizes, batching="packed"),
        **(more or {}),
        FROZEN: partial(steps.bert, sizes, batching="packed", frozen=True),
        DYNAMIC: partial(steps.bert, sizes, batching="dynamic"),
    }
    found = take_turns(makes, rounds=effort.rounds(6), threads=effort.threads)
    rows = [
        [
            name,
            f"{one.about['tokens_a_step']:,.0f}",
            measured_time(one.median),
            measured_time(one.median_wall),
            "" if name == PACKED else str(ratio(found, name, PACKED)),
            size(one.memory),
        ]
        for name, one in found.items()
    ]
    about = found[PACKED].about
    reading = (
        f"Sentences as long as SST-2's: mean {about['mean_length']:.1f} tokens, longest {about['longest']:.0f}. Six"
        " batches, chosen to be as long as the average, another in each round. Dynamic fills to the batch's longest,"
        " packed puts several into a row with a mask between them; filled to"
        f" {sizes.length}, a step has {sizes.tokens:,} tokens."
    )
    columns = ["batches", "tokens a step", "step", "wall", "ratio to packed", "peak memory"]
    section.tables.append(BenchTable("Batches without padding", columns, rows, reading + note))
    section.keep("packing", found)
    return found
