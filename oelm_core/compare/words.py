"""Numbers in plain words: p-values, percentages, durations, sizes."""

from __future__ import annotations

import math


def p_words(p: float | None) -> str:
    """
    >>> p_words(0.0804), p_words(0.00001)
    ('p = 0.080', 'p < 0.001')
    """
    if p is None:
        return "p unknown"
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def chance(p: float | None) -> str:
    """What a p-value means for the reader.

    >>> chance(0.08)
    'could be chance: p = 0.080'
    """
    if p is None:
        return "not testable"
    return f"{'unlikely to be chance' if p < 0.05 else 'could be chance'}: {p_words(p)}"


def points(value: float, digits: int = 2) -> str:
    """A difference of fractions in percentage points: -0.0184 -> '-1.84 pp'."""
    return f"{value * 100:+.{digits}f} pp"


def relative(value: float, digits: int = 1) -> str:
    return f"{value * 100:+.{digits}f} %"


def percent(value: float, digits: int = 2) -> str:
    return f"{value * 100:.{digits}f} %"


def duration(seconds: float) -> str:
    """
    >>> duration(16260), duration(2148), duration(41.5)
    ('4 h 31 min', '35 min 48 s', '41.5 s')
    """
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds >= 60:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{seconds:.1f} s"


def step_time(seconds: float) -> str:
    """
    >>> step_time(0.3218), step_time(2.5)
    ('321.8 ms', '2.500 s')
    """
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.3f} s"


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def metric_value(name: str, value: float) -> str:
    """A metric as screens show it: accuracies in percent, perplexity and loss as they are.

    >>> metric_value("accuracy", 0.9128), metric_value("perplexity", 4.6912)
    ('91.28 %', '4.691')
    """
    if not math.isfinite(value):
        return str(value)
    if is_share(name):
        return percent(value)
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def is_share(name: str) -> bool:
    """Metrics that are fractions of one, so that their difference is in points."""
    return name.endswith(("accuracy", "f1", "matthews"))


def listed(names: list[str] | tuple[str, ...]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
