"""One chart as rows of (text, role): legend, curves, axes and a cursor that reads values. Pure: no widget, no clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oelm_core import formatting
from oelm_tui.charts.axes import count_label, linear_ticks, log_ticks, tick_labels, time_label, time_ticks
from oelm_tui.charts.canvas import PALE, AsciiCanvas, Canvas
from oelm_tui.charts.reduce import Bucket, extent, reduce, value_at
from oelm_tui.text import Line, joined

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
    """The values before smoothing, drawn faintly beneath; what is read off are always these."""
    band: tuple[Sequence[float], Sequence[float]] | None = None
    """Least and greatest value at each x, over seeds; filled palely beneath."""

    @property
    def measured(self) -> Sequence[float]:
        return self.ys if self.raw is None else self.raw


@dataclass(frozen=True)
class AxisMark:
    """Something that happened at an x: a sign on the axis, and with `through` a line up the chart."""

    x: float
    sign: str
    role: str = "accent"
    through: bool = False


@dataclass(frozen=True)
class Panel:
    """What one chart shows."""

    curves: Sequence[PlotCurve]
    y_name: str = ""
    percent: bool = False
    marks: Sequence[AxisMark] = ()
    named: bool = True
    """Whether its legend has the names of the curves, or their signs and values alone."""


@dataclass(frozen=True)
class ChartView:
    """How to look: what x means, which scale, which part, where the cursor is."""

    x: str = "step"
    log_y: bool = False
    smoothing: float | None = 0.0
    """Weight of the mean before; None for what fits the number of points."""
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


def draw(panel: Panel, view: ChartView, width: int, height: int, *, ascii_only: bool = False) -> Picture:
    """The chart in exactly `height` rows of at most `width` cells."""
    curves, percent = panel.curves, panel.percent
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
    span = _y_span(reduced, _band_ends(shown, x0, x1), view.log_y)
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
    for curve in shown:
        if curve.band is not None:
            _fill_band(canvas, curve, scale, x0, x1)
    for _, raw in reduced:
        _trace(canvas, raw, scale, PALE)
    for curve, (fine, _) in zip(shown, reduced, strict=True):
        _trace(canvas, fine, scale, curve.role)
    for place, (fine, _) in enumerate(reduced):
        if len(shown) > 1 or len(fine) < 2 or shown[place].raw is not None:
            _sign(canvas, fine, scale, shown[place], place, len(shown))
    readings: dict[str, tuple[float, float]] = {}
    cursor_column = None
    if view.cursor is not None:
        cursor = min(max(view.cursor, x0), x1)
        cursor_column = min(columns - 1, int((cursor - x0) / (x1 - x0) * columns))
        points = ((curve.name, value_at(curve.xs, curve.measured, cursor)) for curve in shown)
        readings = {name: point for name, point in points if point is not None}
    at_columns = {int((mark.x - x0) / (x1 - x0) * (columns - 1)): mark for mark in panel.marks if x0 <= mark.x <= x1}
    for column, mark in at_columns.items():
        if mark.through:
            canvas.upright(column, mark.sign, PALE)
    name = f"{panel.y_name} (log)" if panel.y_name and log_y else panel.y_name
    rows = [_legend(shown, view, readings, width, name, percent, panel.named)]
    rows += _body(canvas, scale, ticks, labels, left, cursor_column, ascii_only)
    rows += _x_axis(view, x0, x1, left, columns, ascii_only, at_columns)
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


def _band_ends(curves: Sequence[PlotCurve], x0: float, x1: float) -> list[float]:
    """The values of all bands in view."""
    found = [(x, edge) for curve in curves if curve.band for side in curve.band for x, edge in zip(curve.xs, side)]  # noqa: B905
    return [edge for x, edge in found if x0 <= x <= x1 and math.isfinite(edge)]


def _fill_band(canvas: Canvas, curve: PlotCurve, scale: _Scale, x0: float, x1: float) -> None:
    """Every second dot between least and greatest, so that two bands show through one another."""
    assert curve.band is not None
    points = [point for point in zip(curve.xs, *curve.band) if all(map(math.isfinite, point))]  # noqa: B905
    per_x = (canvas.width * canvas.dots_across - 1) / (x1 - x0)
    for (ax, alow, ahigh), (bx, blow, bhigh) in itertools.pairwise(points):
        first, last = round((ax - x0) * per_x), round((bx - x0) * per_x)
        for column in range(max(0, first), min(canvas.width * canvas.dots_across - 1, last) + 1):
            share = (column - first) / (last - first) if last > first else 1.0
            top, bottom = (scale.row(a + share * (b - a)) for a, b in ((ahigh, bhigh), (alow, blow)))
            for row in range(top, bottom + 1):
                if (column + row) % 2 == 0:
                    canvas.dot(column, row, f"{curve.role}-pale")


def _y_span(reduced: Reduced, bands: list[float], log_y: bool) -> tuple[float, float, bool] | None:
    values = [value for pair in reduced for part in pair for bucket in part for value in (bucket.low, bucket.high)]
    values += bands
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
    named: bool,
) -> Line:
    row: Line = [(y_name + "  ", "label")] if y_name else []
    used = len(y_name) + 2 if y_name else 0
    names = [curve.name if named else "" for curve in curves]
    if used + sum(len(name) + 12 for name in names) > width:  # narrow: only where the names differ
        names = without_common_start(names)
    entries = [_read_off(name, curve, readings, percent) for name, curve in zip(names, curves, strict=True)]
    if used + sum(len(words) + 2 for words in entries) > width + 2 and not readings and named:
        entries = [f"{curve.mark} {name}".rstrip() for name, curve in zip(names, curves, strict=True)]
    elif readings and curves and named:
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
        return " ".join(filter(None, (curve.mark, name, exact(readings[curve.name][1], percent))))
    ys = curve.measured
    last = next((y for y in reversed(ys) if math.isfinite(y)), math.nan)
    words = " ".join(filter(None, (curve.mark, name, exact(last, percent))))
    return words + " (now not finite)" if len(ys) and not math.isfinite(ys[-1]) else words


def without_common_start(names: list[str]) -> list[str]:
    """
    >>> without_common_start(["demo-gpt-oelm", "demo-gpt-baseline"]), without_common_start(["GPT-01", "GPT-02"])
    (['oelm', 'baseline'], ['GPT-01', 'GPT-02'])
    """
    if len(names) < 2:
        return names
    parts = [name.split("-") for name in names]
    same = 0
    while all(len(part) > same + 1 for part in parts) and len({part[same] for part in parts}) == 1:
        if any(part[same + 1][:1].isdigit() for part in parts):  # a bare number says nothing
            break
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
    """An x as one reads it off: whole, so that it can be found in the log."""
    return time_label(x) if kind == "time" else f"{kind} {x:,.0f}"


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


def _x_axis(
    view: ChartView,
    x0: float,
    x1: float,
    left: int,
    columns: int,
    ascii_only: bool,
    marks: Mapping[int, AxisMark],
) -> list[Line]:
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
    axis: Line = [(gutter + corner, "axis")]
    for column, text in enumerate(line):
        mark = marks.get(column)
        axis.append((mark.sign, mark.role) if mark else (text, "axis"))
    return [joined(axis), [(" " * left + "".join(labels), "axis")]]
