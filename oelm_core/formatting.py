"""How numbers are written for people: metrics, gaps, p-values, times, sizes, counts. Decided here and nowhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from oelm_core.metric import metric_named


def metric_value(name: str | None, value: float | None, *, unit: bool = False) -> str:
    """Shares in percent, with `unit` saying so; perplexity and loss as they are.

    >>> metric_value("accuracy", 0.9117), metric_value("f1", 0.5, unit=True), metric_value("perplexity", 5.0431)
    ('91.17', '50.00 %', '5.043')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    if metric_named(name).is_share:
        return percent(value) if unit else f"{value * 100:.2f}"
    size_of_it = abs(value)
    fine = 4 if metric_named(name).name == "loss" else 3
    digits = fine if size_of_it < 10 else 2 if size_of_it < 1000 else 1
    return f"{value:.{digits}f}" if size_of_it < 1e5 else f"{value:.1e}"


def metric(name: str | None, value: float | None) -> str:
    """
    >>> metric("accuracy", 0.9128), metric("perplexity", None)
    ('acc 91.28', '-')
    """
    return "-" if name is None or value is None else f"{metric_named(name).short} {metric_value(name, value)}"


def p_value(p: float | None) -> str:
    """
    >>> p_value(0.0804), p_value(0.00001)
    ('p = 0.080', 'p < 0.001')
    """
    if p is None:
        return "p unknown"
    return f"p {p_number(p)}" if p < 0.001 else f"p = {p_number(p)}"


def p_number(p: float) -> str:
    """For a column called p; with the digits that show on which side of 0.05 it is.

    >>> p_number(0.0804), p_number(0.0499), p_number(0.0504), p_number(0.31)
    ('0.080', '0.0499', '0.0504', '0.31')
    """
    if p < 0.001:
        return "< 0.001"
    if p >= 0.1:
        return f"{p:.2f}"
    digits = 3
    while digits < 9 and p != 0.05 and float(f"{p:.{digits}f}") == 0.05:
        digits += 1
    return f"{p:.{digits}f}"


def chance(p: float | None) -> str:
    """What a p-value means for the reader.

    >>> chance(0.08)
    'could be chance: p = 0.080'
    """
    return "not testable" if p is None else f"{luck(p)}: {p_value(p)}"


def luck(p: float) -> str:
    return "unlikely to be chance" if p < 0.05 else "could be chance"


def points(value: float, digits: int = 2) -> str:
    """A difference of fractions in percentage points: -0.0184 -> '-1.84 pp'."""
    return f"{value * 100:+.{digits}f} pp"


def relative(value: float, digits: int = 1) -> str:
    return f"{value * 100:+.{digits}f} %"


def percent(value: float, digits: int = 2) -> str:
    return f"{value * 100:.{digits}f} %"


def gap(name: str, value: float) -> str:
    """A difference in a metric: percentage points for a share, else relative to what it is set against.

    >>> gap("accuracy", -0.0184), gap("perplexity", 0.05)
    ('-1.84 pp', '+5.0 %')
    """
    return points(value) if metric_named(name).is_share else relative(value)


def interval(name: str, bounds: tuple[float, float]) -> str:
    """An end near zero has the digits that show its sign: whether zero is inside is what a reader looks for.

    >>> interval("accuracy", (-0.01, 0.02)), interval("accuracy", (0.00003, 0.02)), interval("loss", (-0.005, -0.0002))
    ('[-1.00, +2.00] pp', '[+0.003, +2.00] pp', '[-0.5, -0.02] %')
    """
    low, high = (_with_sign(name, bound) for bound in bounds)
    return f"[{low.partition(' ')[0]}, {high.replace(' ', '] ')}"


def _with_sign(name: str, bound: float) -> str:
    """A gap that is not rounded to zero, unless it is zero but for the noise of arithmetic."""
    show, digits = (points, 2) if metric_named(name).is_share else (relative, 1)
    if abs(bound) < 1e-9:
        return show(0.0, digits)
    while float(show(bound, digits).partition(" ")[0]) == 0:
        digits += 1
    return show(bound, digits)


def with_spread(mean: float, spread: float | None, show: Callable[[float], str]) -> str:
    """A mean and the spread around it, in one unit where both have the same.

    >>> with_spread(0.9128, 0.0012, percent), with_spread(65.0, None, duration_words)
    ('91.28 ± 0.12 %', '1 min 05 s')
    """
    text = show(mean)
    if spread is None:
        return text
    number, _, unit = show(spread).partition(" ")
    return f"{text.removesuffix(' ' + unit)} ± {number} {unit}" if unit else f"{text} ± {number}"


def measured(mean: float, spread: float | None, show: Callable[[float], str]) -> str:
    """With a spread that can be seen: nothing is said to vary by 0.

    >>> measured(87874.0, 0.0, whole), measured(87874.0, 25.0, whole), measured(1 << 20, 35.0, size)
    ('87,874', '87,874 ± 25', '1.0 MiB')
    """
    text = show(mean)
    hidden = spread is None or text in (show(mean + spread), show(mean - spread))
    return text if hidden else with_spread(mean, spread, show)


def whole(value: float) -> str:
    """
    >>> whole(109484547)
    '109,484,547'
    """
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """At most six characters; "" when it is not known.

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


def duration_words(seconds: float) -> str:
    """For sentences and reports.

    >>> duration_words(16260), duration_words(2148), duration_words(41.5)
    ('4 h 31 min', '35 min 48 s', '41.5 s')
    """
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds >= 60:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{seconds:.1f} s"


def exact_duration(seconds: float) -> str:
    """To the second, as the author's timing files have it.

    >>> exact_duration(4 * 3600 + 31 * 60 + 5), exact_duration(61)
    ('4h 31m 05s', '1m 01s')
    """
    hours, rest = divmod(round(seconds), 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}h {minutes:02d}m {secs:02d}s" if hours else f"{minutes}m {secs:02d}s"


def rough_duration(seconds: float) -> str:
    """In sentences where one unit is enough.

    >>> rough_duration(600), rough_duration(42)
    ('10 min', '42 s')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def age(seconds: float) -> str:
    """One unit is enough: 4m, 3h, 2d."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def step_time(seconds: float | None) -> str:
    """
    >>> step_time(0.3218), step_time(2.5)
    ('321.8 ms', '2.500 s')
    """
    if seconds is None:
        return ""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.3f} s"


def measured_time(seconds: float) -> str:
    """A measured time, however short.

    >>> measured_time(2.5), measured_time(0.01234), measured_time(0.0000235)
    ('2.50 s', '12.3 ms', '23.5 µs')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def rate(steps_per_second: float | None) -> str:
    """Steps a second, or seconds a step where that reads better."""
    if not steps_per_second or not math.isfinite(steps_per_second):
        return ""
    if steps_per_second >= 1:
        return f"{steps_per_second:.3g}/s" if steps_per_second < 1000 else f"{count(steps_per_second)}/s"
    return f"{1 / steps_per_second:.3g}s/it"


def flops(per_second: float) -> str:
    """
    >>> flops(3.2e9), flops(1.4e13)
    ('3.2 GFLOP/s', '14 TFLOP/s')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if per_second >= size:
            return f"{per_second / size:.2g} {unit}FLOP/s"
    return f"{per_second:.2g} FLOP/s"


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


def size(count_of_bytes: float | None) -> str:
    """Bytes in binary units.

    >>> size(512), size(3_900_000_000)
    ('512 B', '3.6 GiB')
    """
    if count_of_bytes is None:
        return "?"
    value = float(count_of_bytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def size_short(count_of_bytes: float | None) -> str:
    """For narrow columns.

    >>> size_short(23.7e9), size_short(512), size_short(3.1e6)
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


def day(when: float) -> str:
    """The date of a time in epoch seconds, where the reader is."""
    return time.strftime("%Y-%m-%d", time.localtime(when))


def listed(names: list[str] | tuple[str, ...]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
