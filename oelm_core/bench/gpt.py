"""`oelm bench gpt`: the step of our GPT on this machine, with Q and K trained and frozen, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oelm_core.bench import steps
from oelm_core.bench.profile import profile_step, profile_table
from oelm_core.bench.report import BenchSection, BenchTable, Effort
from oelm_core.bench.turns import Make, Measured, ratio, take_turns
from oelm_core.formatting import count, measured_time, percent, size
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes

GEMM = "GEMM"


def measure(effort: Effort) -> BenchSection:
    sizes = step_sizes(effort)
    section = BenchSection("gpt", section_title(sizes, effort))
    trained = partial(steps.gpt, sizes)
    note = f"By arithmetic alone, freezing Q and K saves at most {flops.ideal_ratio(sizes):.4f}x of such a step."
    arms = {"baseline": trained, "Q/K frozen": partial(steps.gpt, sizes, frozen=True)}
    compare_steps(section, arms, sizes, effort, "A training step", note)
    section.tables.append(profile_table(profile_step(trained, effort.threads), "baseline"))
    return section


def step_sizes(effort: Effort) -> StepSizes:
    """Batch 2: all variants at once must fit into memory, and many rounds into minutes."""
    return (steps.TINY if effort.quick else steps.MEDIUM).but(batch=2)


def section_title(sizes: StepSizes, effort: Effort) -> str:
    model = "A tiny GPT" if effort.quick else "GPT Medium-512"
    return f"{model}, a training step of {sizes.batch} x {sizes.length} tokens"


def compare_steps(
    section: BenchSection, variants: Mapping[str, Make], sizes: StepSizes, effort: Effort, title: str, note: str
) -> dict[str, Measured]:
    """Adds the table of these variants' steps, each against the first of them."""
    side = 256 if effort.quick else 2048
    makes: dict[str, Make] = {**variants, GEMM: partial(steps.Gemm, side)}
    found = take_turns(makes, rounds=effort.rounds(12), within=90, threads=effort.threads)
    section.keep("steps", found)
    first = next(iter(variants))
    gemm = found[GEMM].about["flops"] / found[GEMM].median
    rows = []
    for name in variants:
        one = found[name]
        work = sum(flops.expected(sizes, frozen="frozen" in name).values())
        rows.append(
            [
                name,
                measured_time(one.median),
                measured_time(one.median_wall),
                count(sizes.tokens / one.median_wall),
                "" if name == first else str(ratio(found, name, first)),
                size(one.memory),
                percent(work / one.median / gemm, 1),
            ]
        )
    reading = (
        f"{len(found[first].seconds)} rounds in turns. Ratio: how many times the time of the first, median of the"
        " rounds with its 95 % interval. Memory: most held above the libraries, in the variant's own process. MFU:"
        f" counted FLOPs per second of the clock over those of a {side}-square product in the same rounds"
        f" ({gemm / 1e9:.0f} GFLOP a second)."
    )
    columns = ["variant", "step", "wall", "tokens/s", f"ratio to {first}", "peak memory", "MFU"]
    section.tables.append(BenchTable(title, columns, rows, f"{reading} {note}"))
    return found
