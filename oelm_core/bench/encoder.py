"""`oelm bench bert`: packed batches against padded ones, and what freezing saves in an encoder."""

from __future__ import annotations

from typing import Any

from oelm_core.bench.claims import Claim, Effort, Section, Table, percent, seconds
from oelm_core.bench.freezing import freezing_claims
from oelm_core.bench.profile import profile_table, profiles
from oelm_core.bench.sizes import BERT_BASE, TINY_BERT, Sizes
from oelm_core.bench.statistics import Ratio
from oelm_core.bench.variants import Recipe, look_at, ratio, take_turns

MAKER = "oelm_core.bench.sentences:"
EPOCH = 80
"""Sentences whose packed and padded scores are compared: two batches and a half."""


def measure(effort: Effort) -> Section:
    sizes = TINY_BERT if effort.quick else BERT_BASE
    section = Section(
        "bert", f"{'A tiny encoder' if effort.quick else 'BERT-base'}, a training step of {sizes.batch} short sentences"
    )
    whole = _packing(section, sizes, effort)
    _packed_is_the_same(section, sizes, effort)
    layer = "oelm_core.bench.sentences:bert_layer"
    freezing_claims(section, sizes, effort, whole, step="packed short sentences", classifier=True, layer=layer)
    return section


def _packing(section: Section, sizes: Sizes, effort: Effort) -> Ratio:
    """Adds the table and claims of packing; how many times as fast a packed step with Q/K frozen is."""

    def step(batching: str, **more: Any) -> Recipe:
        return Recipe(MAKER + "bert_step", {**sizes.as_dict(), "batching": batching, **more})

    recipes = {
        "packed": step("packed"),
        "packed, torch's dropout": step("packed", without="cheap dropout"),
        "packed, Q/K frozen": step("packed", frozen=True),
        "dynamic": step("dynamic"),
    }
    found = take_turns(recipes, rounds=effort.rounds(6), threads=effort.threads)
    tokens = {kind: one.about["tokens_a_step"] for kind, one in found.items()}
    rows = [
        [
            kind,
            f"{tokens[kind]:,.0f}",
            seconds(found[kind].median),
            seconds(found[kind].median_wall),
            "" if kind == "packed" else str(ratio(found, kind, "packed")),
            f"{found[kind].memory / 1e6:,.0f} MB",
        ]
        for kind in recipes
    ]
    lengths, padded = found["packed"].about, sizes.batch * sizes.length
    note = (
        f"Sentences as long as SST-2's: mean {lengths['mean_length']:.1f} tokens, longest {lengths['longest']}. Six"
        " batches, chosen to be as long as the average, another in each round. Dynamic fills to the batch's longest,"
        " packed puts several into a row with a mask between them; filled to"
        f" {sizes.length}, a step has {padded:,} tokens. Torch's dropout: SDPA and Bernoulli draws instead of ours."
    )
    columns = ["batches", "tokens a step", "step", "wall", "ratio to packed", "peak memory"]
    section.tables.append(Table("Batches without padding", columns, rows, note))
    section.keep("packing", found)
    fewer = padded / tokens["packed"]
    section.claims.append(
        Claim(
            f"packed: tokens a step against padding to {sizes.length}",
            "at least 8x fewer",
            f"{fewer:.2f}x fewer",
            fewer >= 8,
        )
    )
    faster = ratio(found, "dynamic", "packed")
    seen = profiles({"packed": step("packed", batches=1)}, effort.threads)
    section.tables.append(profile_table(seen))
    fixed = percent(seen["packed"].kinds.get("optimiser and clipping", 0.0))
    why = f"the optimiser, whose work depends on the weights and not on the tokens, is {fixed} of a packed step."
    section.claims.append(
        Claim("packed: step against dynamic padding", "at least 2x as fast", str(faster), faster.value >= 2, why)
    )
    return ratio(found, "packed", "packed, Q/K frozen")


def _packed_is_the_same(section: Section, sizes: Sizes, effort: Effort) -> None:
    """Logits of packed and padded batches, and that an epoch has every example once."""
    worst: dict[str, float] = {}
    complete = True
    for arch in ("bert", "roberta"):
        about = look_at(
            Recipe(MAKER + "packed_beside_padded", {"arch": arch, "count": EPOCH, **sizes.as_dict()}), effort.threads
        )
        worst[arch] = about["difference"]
        complete = complete and about["every_example_once"]
    found = ", ".join(f"{arch} {value:.1e}" for arch, value in worst.items())
    section.claims.append(
        Claim("packed: logits against padded ones", "equal to 1e-5", found, max(worst.values()) < 1e-5)
    )
    section.claims.append(
        Claim(
            "packed: examples of an epoch",
            "each exactly once",
            f"each of {EPOCH} once" if complete else "not each once",
            complete,
        )
    )
    other = look_at(Recipe(MAKER + "cannot_pack"), effort.threads)
    falls_back = bool(other["said"]) and other["batching"] == "dynamic"
    section.claims.append(Claim("a model that cannot be packed", "falls back and says so", other["said"], falls_back))
    section.raw["packed_difference"] = worst
