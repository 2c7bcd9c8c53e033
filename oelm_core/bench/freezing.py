"""What freezing Q and K can save and does save: counted work, the arithmetic limit, layers on the clock."""

from __future__ import annotations

from oelm_core.bench import flops
from oelm_core.bench.claims import Claim, Effort, Section, Table, megabytes, percent
from oelm_core.bench.profile import profile_table, profiles
from oelm_core.bench.sizes import Sizes
from oelm_core.bench.variants import Measured, Recipe, ratio, take_turns

SHARE = 0.8


def freezing_claims(
    section: Section,
    sizes: Sizes,
    effort: Effort,
    steps: dict[str, Measured] | None,
    *,
    classifier: bool,
    layer: str,
) -> None:
    """Adds the table of work, the claims about it, and the measured ratio of layers (and of steps, where given)."""
    counted = _count(sizes, effort, classifier)
    expected = {
        name: flops.expected(sizes, frozen=frozen, classifier=classifier).by_component
        for name, frozen in (("baseline", False), ("frozen", True))
    }
    section.tables.append(work_table(counted))
    totals = {name: sum(work.values()) for name, work in counted.items()}
    limit = flops.ideal_ratio(sizes, classifier=classifier)
    exact = counted == expected
    section.claims.append(
        Claim(
            f"{section.name}: counted FLOPs of both arms",
            f"the formula, exactly; ratio {limit:.4f}",
            f"{totals['baseline']:,} and {totals['frozen']:,}; ratio {totals['baseline'] / totals['frozen']:.4f}",
            exact,
        )
    )
    section.raw["work"] = {"counted": counted, "expected": expected, "ideal_ratio": limit}
    _layers(section, sizes, effort, layer)
    rows = [["whole step, arithmetic limit", f"{limit:.4f}x"]]
    if steps is not None:
        rows.append(["whole step, measured", str(ratio(steps, "ours", "ours, Q/K frozen"))])
    saved = flops.saved_bytes(sizes, biases=classifier)
    rows += [[f"{what} saved a step", megabytes(size)] for what, size in saved.items()]
    note = "The limit is arithmetic: no implementation can go beyond it. Bytes in fp32; all-reduce per GPU and step."
    section.tables.append(Table("What freezing Q and K pays", ["", "found"], rows, note))
    section.raw["saved_bytes"] = saved


def _count(sizes: Sizes, effort: Effort, classifier: bool) -> dict[str, dict[str, int]]:
    recipe = Recipe("oelm_core.bench.flops:count_both", {"sizes": sizes.as_dict(), "classifier": classifier})
    return take_turns({"count": recipe}, rounds=1, threads=effort.threads)["count"].about


def work_table(counted: dict[str, dict[str, int]]) -> Table:
    total = sum(counted["baseline"].values())
    rows = [
        [name, f"{work / 1e9:,.1f}", f"{counted['frozen'][name] / 1e9:,.1f}", percent(work / total)]
        for name, work in counted["baseline"].items()
    ]
    rows.append(["all", f"{total / 1e9:,.1f}", f"{sum(counted['frozen'].values()) / 1e9:,.1f}", "100.0 %"])
    return Table(
        "Work of a step by component",
        ["component", "baseline GFLOP", "frozen GFLOP", "share of baseline"],
        rows,
        "Counted by torch on the meta device; attention counts q k^T and p v dense.",
    )


def _layers(section: Section, sizes: Sizes, effort: Effort, layer: str) -> None:
    """A layer with the recipe's dropout and one without any, each with Q/K trained and frozen."""
    kinds = {f"dropout {sizes.dropout:g}": sizes, "no dropout": sizes.but(dropout=0.0)}
    trained = {kind: Recipe(layer, size.as_dict()) for kind, size in kinds.items()}
    seen = profiles(trained, effort)
    section.tables.append(profile_table(seen, "Where a layer's time goes"))
    limit = flops.layer_ratio(sizes)
    for kind, recipe in trained.items():
        turns = {"trained": recipe, "frozen": Recipe(layer, {**recipe.arguments, "frozen": True})}
        found = take_turns(turns, rounds=effort.rounds(60), threads=effort.threads, warmup=3)
        measured = ratio(found, "trained", "frozen")
        share = (measured.value - 1) / (limit - 1)
        section.claims.append(
            Claim(
                f"{section.name}: a layer with frozen Q/K, forward and backward, {kind}",
                f"at least 80 % of the ideal saving, {1 + SHARE * (limit - 1):.4f}x of {limit:.4f}x",
                f"{measured}, {100 * share:.0f} % of the saving",
                share >= SHARE,
                why="the ideal counts matrix products as if nothing else took time; they are"
                f" {percent(seen[kind].get('matrix products', 0.0))} of this layer's (profile below).",
            )
        )
        section.raw[f"layers, {kind}"] = {name: one.as_dict() for name, one in found.items()}
