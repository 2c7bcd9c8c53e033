"""Numbers as a person reads them: durations, sizes, steps, metrics."""

from __future__ import annotations

import math


def duration(seconds: float | None) -> str:
    """
    >>> duration(42), duration(190), duration(16260), duration(200000)
    ('42s', '3m10s', '4h31m', '2d7h')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def size(count: float | None) -> str:
    """
    >>> size(512), size(3_900_000_000)
    ('512 B', '3.6 GB')
    """
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def steps(count: int | None) -> str:
    """
    >>> steps(980), steps(61_240)
    ('980', '61.2k')
    """
    if count is None:
        return "-"
    return str(count) if count < 10_000 else f"{count / 1000:.1f}k"


SHORT_NAMES = {"accuracy": "acc", "perplexity": "ppl", "matthews": "mcc"}


def metric(name: str | None, value: float | None) -> str:
    """
    >>> metric("accuracy", 0.9128), metric("perplexity", 4.6912)
    ('acc 91.28', 'ppl 4.69')
    """
    if name is None or value is None:
        return "-"
    return f"{SHORT_NAMES.get(name, name)} {metric_value(name, value)}"


def metric_value(name: str, value: float) -> str:
    """Accuracies and F1 in percent; perplexity with two decimals."""
    if not math.isfinite(value):
        return str(value)
    if name in ("accuracy", "f1") or name.endswith("accuracy"):
        return f"{100 * value:.2f}"
    return f"{value:.2f}" if name == "perplexity" else f"{value:.4f}"
