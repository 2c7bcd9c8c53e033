"""What freezing Q and K can save and does save: counted work, the arithmetic limit, layers on the clock."""

from __future__ import annotations

from oelm_core.bench import flops
from oelm_core.bench.claims import Claim, Effort, Section, Table, megabytes, percent
from oelm_core.bench.profile import profile_table, profiles
from oelm_core.bench.sizes import Sizes
from oelm_core.bench.statistics import Ratio, paired_ratio
from oelm_core.bench.variants import Recipe, look_at, take_turns

SHARE = 0.8
LAYER_TOKENS = 512
"""Short steps take turns more often, which cancels more of a machine's drift."""


def freezing_claims(
    section: Section,
    sizes: Sizes,
    effort: Effort,
    whole: Ratio,
    *,
    step: str,
    classifier: bool,
    layer: str,
) -> None:
    """Adds the table of work, the claims about it, and measured ratios: `whole` is that of a step of `step`."""
    counted = _count(sizes, effort, classifier)
    expected = {
        name: flops.expected(sizes, frozen=frozen, classifier=classifier).by_component
        for name, frozen in (("baseline", False), ("frozen", True))
    }
    section.tables.append(work_table(counted, sizes))
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
    _layers(section, sizes.but(batch=max(1, LAYER_TOKENS // sizes.length)), effort, layer)
    rows = [
        ["whole step, arithmetic limit", f"{limit:.4f}x"],
        [f"a step of {step}, measured", str(whole)],
    ]
    saved = flops.saved_bytes(sizes, biases=classifier)
    rows += [[f"{what} saved a step", megabytes(size)] for what, size in saved.items()]
    note = (
        "The limit counts matrix products alone: gradients that are not made and weights that are not updated come on"
        " top, all other work dilutes it. Bytes in fp32; all-reduce per GPU and step."
    )
    section.tables.append(Table("What freezing Q and K pays", ["", "found"], rows, note))
    section.raw["saved_bytes"] = saved


def _count(sizes: Sizes, effort: Effort, classifier: bool) -> dict[str, dict[str, int]]:
    recipe = Recipe("oelm_core.bench.flops:count_both", {"sizes": sizes.as_dict(), "classifier": classifier})
    return look_at(recipe, effort.threads)


def work_table(counted: dict[str, dict[str, int]], sizes: Sizes) -> Table:
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
        f"{sizes.batch} x {sizes.length} tokens, counted by torch on the meta device; attention's products dense.",
    )


def _layers(section: Section, sizes: Sizes, effort: Effort, layer: str) -> None:
    """Adds the claim about one layer.

    On one thread: more of them wait for each other, and CPU time would count the waiting. Two processes of each arm
    add up to a round, so that a figure owes less to one process's luck.
    """
    arms = {"trained": sizes.as_dict(), "frozen": {**sizes.as_dict(), "frozen": True}}
    recipes = {f"{arm} {number}": Recipe(layer, arguments) for number in (1, 2) for arm, arguments in arms.items()}
    found = take_turns(recipes, rounds=effort.rounds(60), within=20, threads=1, warmup=3)
    section.keep("layers", found)
    both = {arm: zip(found[f"{arm} 1"].seconds, found[f"{arm} 2"].seconds, strict=True) for arm in arms}
    taken = {arm: [one + other for one, other in pairs] for arm, pairs in both.items()}
    measured, limit = paired_ratio(taken["trained"], taken["frozen"]), flops.layer_ratio(sizes)
    share, wanted = (measured.value - 1) / (limit - 1), 1 + SHARE * (limit - 1)
    seen = profiles({"a layer": recipes["trained 1"]}, threads=1)
    section.tables.append(profile_table(seen, "Where a layer's time goes"))
    products = seen["a layer"].products
    in_doubt = " (the interval holds the target)" if measured.low <= wanted <= measured.high else ""
    section.claims.append(
        Claim(
            f"{section.name}: a layer with frozen Q/K on {sizes.tokens} tokens, forward and backward, one thread",
            f"at least 80 % of the ideal saving, {wanted:.4f}x of {limit:.4f}x",
            f"{measured}, {100 * share:.0f} % of the saving{in_doubt}",
            share >= SHARE,
            why="the ideal counts matrix products as if nothing else took time. They are"
            f" {percent(products)} of a layer's (its profile is below), so a layer whose other work stays as it is"
            f" gains {1 / (1 - products * (1 - 1 / limit)):.4f}x.",
        )
    )
