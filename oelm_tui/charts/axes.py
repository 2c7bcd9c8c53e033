"""Axes: round tick values for linear, logarithmic and time axes, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


def linear_ticks(low: float, high: float, at_most: int) -> list[float]:
    """Round values within [low, high], at most so many."""
    if not high > low or at_most < 1:
        return [low]
    step = _round_step((high - low) / at_most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= least * 0.999), 10 * power)


def log_ticks(low: float, high: float, at_most: int) -> list[float]:
    """Powers of ten, with 2 and 5 between where they are few; linear ticks when the range is within a factor."""
    if high / low < 4:
        return [tick for tick in linear_ticks(low, high, at_most) if tick > 0]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
        if len(ticks) <= at_most:
            return ticks
    every = math.ceil(len(ticks) / at_most)
    return ticks[::every]


def time_ticks(low: float, high: float, at_most: int) -> list[float]:
    if not high > low or at_most < 1:
        return [low]
    least = (high - low) / at_most
    step = next((s for s in _TIME_STEPS if s >= least), 86400 * math.ceil(least / 86400))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(i * step) for i in range(first, last + 1)]


def count_label(value: float) -> str:
    """12000 -> 12k; whole numbers without a point."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def time_label(seconds: float) -> str:
    """90 -> 1m30s, 3600 -> 1h, 93600 -> 26h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m" + (f"{whole % 60:02d}s" if whole % 60 else "")
    return f"{whole // 3600}h" + (f"{whole % 3600 // 60:02d}" if whole % 3600 // 60 else "")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """The ticks of an axis as text: each says the value it stands at, all with the decimals that one of them needs."""
    sizes = [abs(tick) for tick in ticks if tick]
    if not sizes:
        return ["0" for _ in ticks]
    low, high = min(sizes), max(sizes)
    if high >= 1e5 or high < 1e-2:
        return [_power_label(tick, high) for tick in ticks]
    if high / low > 1000:  # a logarithmic axis over many powers
        return [_power_label(tick, tick) if 0 < abs(tick) < 1e-3 else f"{tick:g}" for tick in ticks]
    decimals = next((n for n in range(7) if all(_near(round(tick, n), tick, low) for tick in ticks)), 6)
    return [f"{tick:.{decimals}f}" if tick else "0" for tick in ticks]


def _power_label(value: float, size: float) -> str:
    """2.5e-4, with as many digits as the value has."""
    if value == 0:
        return "0"
    digits = next((n for n in range(5) if _near(float(f"{value:.{n}e}"), value, size)), 4)
    mantissa, _, power = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def _near(shown: float, meant: float, size: float) -> bool:
    return abs(shown - meant) <= 1e-6 * size
