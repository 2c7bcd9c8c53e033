"""`oelm bench scaling`: time and memory against length, width, layers and batch, beside the order they should have."""

from __future__ import annotations

from oelm_core.bench import flops
from oelm_core.bench.claims import Claim, Effort, Section, Table, megabytes, seconds
from oelm_core.bench.sizes import TINY, Sizes
from oelm_core.bench.statistics import slope
from oelm_core.bench.variants import Measured, Recipe, take_turns

BASE = Sizes(vocab=8192, d_model=256, layers=4, heads=4, d_ff=1024, batch=4, length=256)
POINTS = {
    "length": [{"length": n} for n in (128, 256, 512, 1024)],
    "width": [{"d_model": 64 * h, "heads": h, "d_ff": 256 * h} for h in (2, 4, 8, 16)],
    "layers": [{"layers": n} for n in (2, 4, 8, 16)],
    "batch": [{"batch": n} for n in (2, 4, 8, 16)],
}
SLACK = 0.15
"""How far the measured order may lie above the expected one: noise, and caches that larger sizes fall out of."""


def measure(effort: Effort) -> Section:
    section = Section("scaling", "How cost grows with size")
    base = TINY.but(heads=4) if effort.quick else BASE
    points = _quick() if effort.quick else POINTS
    grids = {axis: [base.but(**change) for change in changes] for axis, changes in points.items()}
    wanted = {sizes for grid in grids.values() for sizes in grid}
    names = {sizes: str(number) for number, sizes in enumerate(sorted(wanted, key=repr))}
    recipes = {name: Recipe("oelm_core.bench.ours:gpt", sizes.as_dict()) for sizes, name in names.items()}
    found = take_turns(recipes, rounds=effort.rounds(2), threads=effort.threads)
    rows = []
    for axis, grid in grids.items():
        values = [next(iter(change.values())) for change in points[axis]]
        measured = [found[names[sizes]] for sizes in grid]
        rows += _rows(section, axis, values, grid, measured)
    note = (
        f"Around d_model {base.d_model}, {base.layers} layers, batch {base.batch} x {base.length}, {base.vocab} words;"
        " medians of two rounds. Order p: cost grows as size^p, fitted through the four points. Expected: of the"
        " counted FLOPs for time; for memory, of weights, gradients, moments and stored activations, nothing of which"
        " grows with length squared but one byte per kept attention weight."
    )
    columns = ["against", "cost", "four points", "order", "expected order"]
    section.tables.append(Table("Step time and peak memory", columns, rows, note))
    section.raw["points"] = {
        axis: [{"sizes": sizes.as_dict(), **found[names[sizes]].as_dict()} for sizes in grid]
        for axis, grid in grids.items()
    }
    return section


def _rows(
    section: Section, axis: str, values: list[int], grid: list[Sizes], measured: list[Measured]
) -> list[list[str]]:
    costs = {"time": [one.median for one in measured], "memory": [float(one.memory) for one in measured]}
    expected = {
        "time": [float(flops.expected(sizes, frozen=False).total) for sizes in grid],
        "memory": [stored_bytes(sizes) for sizes in grid],
    }
    rows = []
    for cost, shown in (("time", seconds), ("memory", megabytes)):
        order, wanted = slope(values, costs[cost]), slope(values, expected[cost])
        points = ", ".join(f"{value}: {shown(found)}" for value, found in zip(values, costs[cost], strict=True))
        rows.append([axis, cost, points, f"{order:.2f}", f"{wanted:.2f}"])
        section.claims.append(
            Claim(
                f"{cost} against {axis}",
                f"order at most {wanted:.2f} (+ {SLACK} for noise)",
                f"{order:.2f}",
                order <= wanted + SLACK,
            )
        )
    return rows


def stored_bytes(sizes: Sizes) -> float:
    """Bytes of a step in fp32: 16 for a weight (itself, gradient, two moments), and what the backward pass needs."""
    d, n = sizes.d_model, sizes.tokens
    weights = sizes.layers * (4 * d * d + 2 * d * sizes.d_ff) + (sizes.vocab + sizes.length) * d
    # norm, q, k, v, mixed, projected, residual, second norm, down: 9 of width d; before and after GELU, and dropped: 3
    activations = sizes.layers * n * (9 * d + 3 * sizes.d_ff) * 4
    kept = sizes.layers * n * sizes.length * sizes.heads * 0.6
    return 16.0 * weights + activations + kept + 3 * 256 * sizes.vocab * 4


def _quick() -> dict[str, list[dict[str, int]]]:
    return {"batch": [{"batch": n} for n in (1, 2)]}
