"""How numbers, times and sizes are written on the screen: short, aligned, with their unit."""

from __future__ import annotations

import math

SHARES = ("accuracy", "f1", "matthews")
"""Metrics kept as fractions and shown in percent."""
_SHORT_METRIC = {"accuracy": "acc", "perplexity": "ppl", "matthews": "mcc", "f1": "F1", "loss": "loss"}


def short_metric(name: str | None) -> str:
    return _SHORT_METRIC.get(name or "", name or "")


def is_share(name: str | None) -> bool:
    return bool(name) and any(str(name).endswith(share) for share in SHARES)


def metric(name: str | None, value: float | None) -> str:
    """
    >>> metric("accuracy", 0.9117), metric("perplexity", 5.0431)
    ('91.17', '5.043')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    if is_share(name):
        return f"{value * 100:.2f}"
    size_of_it = abs(value)
    digits = 3 if size_of_it < 10 else 2 if size_of_it < 100 else 1
    return f"{value:.{digits}f}" if size_of_it < 1e5 else f"{value:.1e}"


def duration(seconds: float | None) -> str:
    """At most six characters.

    >>> [duration(s) for s in (7, 95, 4320, 90000, 900000)]
    ['7s', '1m35s', '1h12m', '1d01h', '10d']
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h" if whole < 5 * 86400 else f"{whole // 86400}d"


def age(seconds: float) -> str:
    """One unit is enough: 4m, 3h, 2d."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def count(value: float | None) -> str:
    """
    >>> count(950), count(6315), count(61234), count(1e6)
    ('950', '6315', '61.2k', '1M')
    """
    if value is None:
        return "?"
    if abs(value) < 10_000:
        return f"{value:.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:.0f}"


def rate(steps_per_second: float | None) -> str:
    """Steps a second, or seconds a step where that reads better."""
    if not steps_per_second or not math.isfinite(steps_per_second):
        return ""
    if steps_per_second >= 1:
        return f"{steps_per_second:.3g}/s" if steps_per_second < 1000 else f"{count(steps_per_second)}/s"
    return f"{1 / steps_per_second:.3g}s/it"


def size(count_of_bytes: float | None) -> str:
    """
    >>> size(23.7e9), size(512), size(3.1e6)
    ('22.1G', '512B', '3.0M')
    """
    if count_of_bytes is None:
        return "?"
    value = float(count_of_bytes)
    for unit in ("B", "K", "M"):
        if value < 1000:
            return f"{value:.0f}{unit}" if unit == "B" or value >= 100 else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}G" if value < 1000 else f"{value / 1024:.1f}T"


def signed(value: float, digits: int = 1, unit: str = " %") -> str:
    return f"{value:+.{digits}f}{unit}"


def seconds_per_step(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def flops(per_second: float) -> str:
    """
    >>> flops(3.2e9), flops(1.4e13)
    ('3.2 GFLOP/s', '14 TFLOP/s')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if per_second >= size:
            return f"{per_second / size:.2g} {unit}FLOP/s"
    return f"{per_second:.2g} FLOP/s"
