"""Time and memory against length, width, layers and batch, beside the order they should have."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from benchmarks.claims import ClaimSection
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import TINY, gpt
from oelm_core.bench.turns import Measured, over_rounds, take_turns
from oelm_core.formatting import measured_time, size
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes

BASE = StepSizes(vocab=8192, d_model=256, layers=4, heads=4, d_ff=1024, batch=2, length=256)
POINTS = {
    "length": [{"length": n} for n in (128, 256, 512, 1024)],
    "width": [{"d_model": 64 * h, "heads": h, "d_ff": 256 * h} for h in (2, 4, 8, 16)],
    "layers": [{"layers": n} for n in (2, 4, 8, 16)],
    "batch": [{"batch": n} for n in (1, 2, 4, 8)],
}
SLACK = 0.15
"""How far the measured order may lie above the expected one: caches that larger sizes fall out of."""


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("scaling", "How cost grows with size")
    base = TINY.but(heads=4) if effort.quick else BASE
    points = {"batch": [{"batch": n} for n in (1, 2)]} if effort.quick else POINTS
    grids = {axis: [base.but(**change) for change in changes] for axis, changes in points.items()}
    wanted = {sizes for grid in grids.values() for sizes in grid}
    names = {sizes: str(number) for number, sizes in enumerate(sorted(wanted, key=repr))}
    makes = {name: partial(gpt, sizes) for sizes, name in names.items()}
    found = take_turns(makes, rounds=effort.rounds(3), threads=effort.threads)
    rows = []
    for axis, grid in grids.items():
        values = [next(iter(change.values())) for change in points[axis]]
        measured = [found[names[sizes]] for sizes in grid]
        rows += _rows(section, axis, values, grid, measured)
    note = (
        f"Around d_model {base.d_model}, {base.layers} layers, batch {base.batch} x {base.length}, {base.vocab} words;"
        " medians of the rounds. Order p: cost grows as size^p, fitted through the four points. Expected: of the"
        " counted FLOPs for time; for memory, of weights, gradients, moments and stored activations, nothing of which"
        " grows with length squared but one byte per kept attention weight."
    )
    columns = ["against", "cost", "four points", "order", "expected order"]
    section.tables.append(BenchTable("Step time and peak memory", columns, rows, note))
    section.raw["points"] = {
        axis: [{"sizes": asdict(sizes), **found[names[sizes]].as_dict()} for sizes in grid]
        for axis, grid in grids.items()
    }
    return section


def _rows(
    section: ClaimSection, axis: str, values: list[int], grid: list[StepSizes], measured: list[Measured]
) -> list[list[str]]:
    costs = {"time": [one.median for one in measured], "memory": [float(one.memory) for one in measured]}
    expected = {
        "time": [float(sum(flops.expected(sizes, frozen=False).values())) for sizes in grid],
        "memory": [stored_bytes(sizes) for sizes in grid],
    }
    rounds = zip(*(one.seconds for one in measured), strict=True)
    order = over_rounds([slope(values, seconds) for seconds in rounds], unit="")
    in_bytes = slope(values, costs["memory"])
    wanted = {cost: slope(values, sizes) for cost, sizes in expected.items()}
    target = {cost: f"order at most {one:.2f} (+ {SLACK} for caches)" for cost, one in wanted.items()}
    section.claim_ratio(f"time against {axis}", target["time"], order, at_most=wanted["time"] + SLACK)
    at_most = wanted["memory"] + SLACK
    section.claim(f"memory against {axis}", target["memory"], f"{in_bytes:.3f}, no clock in it", in_bytes <= at_most)
    rows = []
    for cost, shown, found in (("time", measured_time, order.value), ("memory", size, in_bytes)):
        points = ", ".join(f"{value}: {shown(one)}" for value, one in zip(values, costs[cost], strict=True))
        rows.append([axis, cost, points, f"{found:.2f}", f"{wanted[cost]:.2f}"])
    return rows


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The order p of cost ~ size^p: the slope of a straight line through the logarithms.

    >>> round(slope([1, 2, 4, 8], [3, 12, 48, 192]), 6)
    2.0
    """
    xs, ys = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def stored_bytes(sizes: StepSizes) -> float:
    """Bytes of a step in fp32: 16 for a weight (itself, gradient, two moments), and what the backward pass needs."""
    d, n = sizes.d_model, sizes.tokens
    weights = sizes.layers * (4 * d * d + 2 * d * sizes.d_ff) + (sizes.vocab + sizes.length) * d
    # norm, q, k, v, mixed, projected, residual, second norm, down: 9 of width d; before and after GELU, and dropped: 3
    activations = sizes.layers * n * (9 * d + 3 * sizes.d_ff) * 4
    kept = sizes.layers * n * sizes.length * sizes.heads * 0.6
    return 16.0 * weights + activations + kept + 3 * 256 * sizes.vocab * 4
