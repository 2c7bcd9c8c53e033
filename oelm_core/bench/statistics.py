"""Medians, and the interval of a ratio of two variants that took turns: resampled over rounds, so drift cancels."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
ENOUGH = 6
"""Rounds below which resampling promises more than it keeps: then the least and the greatest are given."""


@dataclass(frozen=True)
class Ratio:
    """How many times as fast: the median over rounds of other / ours, with its 95 % interval (few rounds: range)."""

    value: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        if self.rounds < ENOUGH:
            return f"{self.value:.3f}x ({self.low:.3f} to {self.high:.3f} in {self.rounds} rounds)"
        return f"{self.value:.3f}x [{self.low:.3f}, {self.high:.3f}]"


def paired_ratio(other: Sequence[float], ours: Sequence[float], seed: int = 0) -> Ratio:
    """Ratio of rounds taken in turns: round i of one beside round i of the other.

    >>> str(paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]))
    '2.000x (2.000 to 2.000 in 3 rounds)'
    """
    if len(other) != len(ours) or not ours:
        raise ValueError("both variants need the same number of rounds, and at least one")
    ratios = [a / b for a, b in zip(other, ours, strict=True)]
    low, high = bootstrap(ratios, seed) if len(ratios) >= ENOUGH else (min(ratios), max(ratios))
    return Ratio(statistics.median(ratios), low, high, len(ratios))


def bootstrap(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95 % interval of the median, by resampling with replacement."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * (RESAMPLES - 1))], medians[round(0.975 * (RESAMPLES - 1))]


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The order p of cost ~ size^p: the slope of a straight line through the logarithms.

    >>> round(slope([1, 2, 4, 8], [3, 12, 48, 192]), 6)
    2.0
    """
    import math

    xs, ys = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
