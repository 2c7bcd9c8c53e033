"""One chart as rows of (text, role): legend, curves, axes and a cursor that reads values. Pure: no widget, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from oelm_core import formatting
from oelm_tui.charts.axes import count_label, linear_ticks, log_ticks, tick_labels, time_label, time_ticks
from oelm_tui.charts.canvas import AsciiCanvas, Canvas
from oelm_tui.charts.reduce import Bucket, extent, reduce, value_at
from oelm_tui.text import Line

GUTTER = 6
"""Columns for the labels of y: fixed, so that a live chart does not jump sideways when a label grows."""


@dataclass(frozen=True)
class PlotCurve:
    """Points to draw. `role` names the colour, `mark` is the sign that tells it from the others without colour."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    role: str
    mark: str = "●"
    raw: Sequence[float] | None = None
    """The values before smoothing, drawn faintly beneath."""


@dataclass(frozen=True)
class ChartView:
    """How to look: what x means, which scale, which part, where the cursor is."""

    x: str = "step"
    log_y: bool = False
    smoothing: float = 0.0
    window: tuple[float, float] | None = None
    cursor: float | None = None


@dataclass(frozen=True)
class Picture:
    """What was drawn and where, so that a mouse position can be turned into an x."""

    rows: list[Line]
    left: int = 0
    columns: int = 0
    x0: float = 0.0
    x1: float = 1.0
    readings: dict[str, tuple[float, float]] = field(default_factory=dict)

    def x_of_column(self, column: int) -> float:
        share = (column - self.left + 0.5) / max(1, self.columns)
        return self.x0 + min(1.0, max(0.0, share)) * (self.x1 - self.x0)


def draw(
    curves: Sequence[PlotCurve],
    view: ChartView,
    width: int,
    height: int,
    *,
    y_name: str = "",
    percent: bool = False,
    ascii_only: bool = False,
) -> Picture:
    """The chart in exactly `height` rows of at most `width` cells."""
    shown = [curve for curve in curves if len(curve.xs)]
    bounds = x_bounds(shown, view)
    if width < 16 or height < 4 or bounds is None:
        words = "no points yet" if bounds is None else "too small for a chart"
        return Picture([[(words[:width], "faint")]] + [[] for _ in range(height - 1)])
    x0, x1 = bounds
    kind = AsciiCanvas if ascii_only else Canvas
    plot_height = height - 3  # the legend above, the axis and its labels below
    left = GUTTER
    reduced = _reduced(shown, x0, x1, (width - left) * kind.dots_across)
    span = _y_span(reduced, view.log_y)
    if span is None:
        return Picture([_nothing_finite(shown, view, width)] + [[] for _ in range(height - 1)], x0=x0, x1=x1)
    y0, y1, log_y = span
    ticks = (log_ticks if log_y else linear_ticks)(y0, y1, max(2, plot_height // 2))
    labels = tick_labels([tick * (100 if percent else 1) for tick in ticks])
    widest = max((len(label) for label in labels), default=0) + 1
    if widest > left:  # rare: long labels take columns from the curves
        left = widest
        reduced = _reduced(shown, x0, x1, (width - left) * kind.dots_across)
    columns = width - left
    canvas = kind(columns, plot_height)
    scale = _Scale(y0, y1, log_y, plot_height * canvas.dots_down)
    for curve, (fine, raw) in zip(shown, reduced, strict=True):
        _trace(canvas, raw, scale, "faint")
        _trace(canvas, fine, scale, curve.role)
    for place, (fine, _) in enumerate(reduced):
        if len(shown) > 1 or len(fine) < 2:
            _sign(canvas, fine, scale, shown[place], place, len(shown))
    readings: dict[str, tuple[float, float]] = {}
    cursor_column = None
    if view.cursor is not None:
        cursor = min(max(view.cursor, x0), x1)
        cursor_column = min(columns - 1, int((cursor - x0) / (x1 - x0) * columns))
        points = ((curve.name, value_at(curve.xs, curve.ys, cursor)) for curve in shown)
        readings = {name: point for name, point in points if point is not None}
    rows = [_legend(shown, view, readings, width, y_name, percent)]
    rows += _body(canvas, scale, ticks, labels, left, cursor_column, ascii_only)
    rows += _x_axis(view, x0, x1, left, columns, ascii_only)
    return Picture(rows, left, columns, x0, x1, readings)


def x_bounds(curves: Sequence[PlotCurve], view: ChartView) -> tuple[float, float] | None:
    """The part of x in view, widened when all points share one x."""
    if view.window is not None:
        low, high = view.window
    else:
        spans = [span for curve in curves if (span := extent(curve.xs)) is not None]
        if not spans:
            return None
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    if high <= low:
        high = low + max(1.0, abs(low) * 1e-6)
    return low, high


Reduced = list[tuple[list[Bucket], list[Bucket]]]
"""Of each curve: what is drawn, and what it was before smoothing."""


def _reduced(curves: Sequence[PlotCurve], x0: float, x1: float, columns: int) -> Reduced:
    return [
        (reduce(one.xs, one.ys, x0, x1, columns), [] if one.raw is None else reduce(one.xs, one.raw, x0, x1, columns))
        for one in curves
    ]


def _y_span(reduced: Reduced, log_y: bool) -> tuple[float, float, bool] | None:
    values = [value for pair in reduced for part in pair for bucket in part for value in (bucket.low, bucket.high)]
    if not values:
        return None
    low, high = min(values), max(values)
    if log_y:
        positive = [value for value in values if value > 0]
        if positive:
            low = min(positive)
            return (low / 1.1, max(high, low) * 1.1, True) if high <= low else (low, high, True)
    pad = (high - low) * 0.03 or abs(low) * 0.05 or 0.5
    return low - pad, high + pad, False


class _Scale:
    """Value to dot row, counted from the top."""

    def __init__(self, y0: float, y1: float, log_y: bool, dots: int) -> None:
        self.log = log_y
        self.dots = dots
        self._y0 = math.log(y0) if log_y else y0
        self._per_unit = (dots - 1) / ((math.log(y1) if log_y else y1) - self._y0)

    def row(self, value: float) -> int:
        if self.log:
            if value <= 0:
                return self.dots + 1  # below the chart: nothing is drawn
            value = math.log(value)
        return self.dots - 1 - round((value - self._y0) * self._per_unit)


def _trace(canvas: Canvas, buckets: list[Bucket], scale: _Scale, role: str) -> None:
    before: Bucket | None = None
    for bucket in buckets:
        if before is not None:
            canvas.line(before.column, scale.row(before.last), bucket.column, scale.row(bucket.first), role)
        canvas.column(bucket.column, scale.row(bucket.high), scale.row(bucket.low), role)
        before = bucket


def _sign(canvas: Canvas, buckets: list[Bucket], scale: _Scale, curve: PlotCurve, place: int, of: int) -> None:
    """The curve's own sign at its end and, shifted from the others' signs, along the way."""
    spots = buckets[-1:]
    if len(buckets) > 8:
        step = len(buckets) / 4
        spots += [buckets[int(step * (k + place / of))] for k in range(4)]
    for bucket in spots:
        column, row = bucket.column // canvas.dots_across, scale.row(bucket.last) // canvas.dots_down
        canvas.mark(column, row, curve.mark, curve.role)


def _legend(
    curves: Sequence[PlotCurve],
    view: ChartView,
    readings: dict[str, tuple[float, float]],
    width: int,
    y_name: str,
    percent: bool,
) -> Line:
    row: Line = [(y_name + "  ", "label")] if y_name else []
    used = len(y_name) + 2 if y_name else 0
    names = [curve.name for curve in curves]
    if used + sum(len(name) + 12 for name in names) > width:  # narrow: only where the names differ
        names = _without_common_start(names)
    entries = [_read_off(name, curve, readings, percent) for name, curve in zip(names, curves, strict=True)]
    if used + sum(len(words) + 2 for words in entries) > width + 2 and not readings:
        entries = [f"{curve.mark} {name}" for name, curve in zip(names, curves, strict=True)]
    elif readings and curves:
        x = next(iter(readings.values()))[0]
        entries.append(f"at {x_label(view.x, x)}")
    for words, role in zip(entries, [*(curve.role for curve in curves), "label"], strict=False):
        if used + len(words) > width:
            break
        row.append((words + "  ", role))
        used += len(words) + 2
    return row


def _read_off(name: str, curve: PlotCurve, readings: dict[str, tuple[float, float]], percent: bool) -> str:
    """A curve's mark, name and value: at the cursor, or its last."""
    if curve.name in readings:
        return f"{curve.mark} {name} {exact(readings[curve.name][1], percent)}"
    last = next((y for y in reversed(curve.ys) if math.isfinite(y)), math.nan)
    words = f"{curve.mark} {name} {exact(last, percent)}"
    return words + " (now not finite)" if len(curve.ys) and not math.isfinite(curve.ys[-1]) else words


def _without_common_start(names: list[str]) -> list[str]:
    """
    >>> _without_common_start(["demo-gpt-oelm", "demo-gpt-baseline"])
    ['oelm', 'baseline']
    """
    if len(names) < 2:
        return names
    parts = [name.split("-") for name in names]
    same = 0
    while all(len(part) > same + 1 for part in parts) and len({part[same] for part in parts}) == 1:
        same += 1
    return ["-".join(part[same:]) for part in parts]


def _nothing_finite(curves: Sequence[PlotCurve], view: ChartView, width: int) -> Line:
    count = sum(len(curve.ys) for curve in curves)
    words = "no points in this window; 0 shows all" if view.window else f"{count} points, none of them finite"
    return [(words[:width], "bad" if not view.window else "faint")]


def exact(value: float, percent: bool = False) -> str:
    """A value as one reads it off: five significant digits, percent for fractions."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if percent:
        return formatting.percent(value)
    return f"{value:.2e}" if value and (abs(value) < 1e-3 or abs(value) >= 1e6) else f"{value:.5g}"


def x_label(kind: str, x: float) -> str:
    return time_label(x) if kind == "time" else f"{kind} {count_label(x)}"


def _body(
    canvas: Canvas,
    scale: _Scale,
    ticks: list[float],
    labels: list[str],
    left: int,
    cursor: int | None,
    ascii_only: bool,
) -> list[Line]:
    stem, tick_stem = ("|", "+") if ascii_only else ("│", "┤")
    at_row: dict[int, str] = {}
    for tick, label in zip(ticks, labels, strict=True):
        at_row.setdefault(scale.row(tick) // canvas.dots_down, label)
    rows: list[Line] = []
    for number, runs in enumerate(canvas.rows()):
        here = at_row.get(number)
        row: Line = [((here or "").rjust(left - 1) + (tick_stem if here is not None else stem), "axis")]
        row += runs if cursor is None else _with_cursor(runs, cursor, stem)
        rows.append(row)
    return rows


def _with_cursor(runs: Line, cursor: int, bar: str) -> Line:
    row: Line = []
    column = 0
    for text, owner in runs:
        place = cursor - column
        if 0 <= place < len(text):
            here = text[place]
            cut = [(text[:place], owner), (bar if here == " " else here, "cursor"), (text[place + 1 :], owner)]
            row += [part for part in cut if part[0]]
        else:
            row.append((text, owner))
        column += len(text)
    return row


def _x_axis(view: ChartView, x0: float, x1: float, left: int, columns: int, ascii_only: bool) -> list[Line]:
    corner, flat, tick_flat = ("+", "-", "+") if ascii_only else ("└", "─", "┬")
    make_ticks, label = (time_ticks, time_label) if view.x == "time" else (linear_ticks, count_label)
    line = [flat] * columns
    labels = [" "] * columns
    free_from = 0
    for tick in make_ticks(x0, x1, max(2, columns // 10)):
        column = min(columns - 1, int((tick - x0) / (x1 - x0) * columns))
        text = label(tick)
        start = min(max(0, column - len(text) // 2), columns - len(text))
        line[column] = tick_flat
        if start >= free_from:
            labels[start : start + len(text)] = text
            free_from = start + len(text) + 1
    name = f" {view.x}"
    if free_from + len(name) <= columns:
        labels[columns - len(name) :] = name
    gutter = " " * (left - 1)
    return [[(gutter + corner + "".join(line), "axis")], [(" " * left + "".join(labels), "axis")]]
