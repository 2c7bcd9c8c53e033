"""Curves as SVG: inline in a page, readable without scripts, with the values at hand for hovering; or drawn alone."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from oelm_core.compare.comparison import BandPoint
from oelm_core.formatting import metric_value, whole
from oelm_core.metric import metric_named
from oelm_core.plain_text import visible
from oelm_core.report.document import ChartLine, ReportChart
from oelm_core.report.translations import Translations

WIDTH, HEIGHT = 560, 280
TOP, BOTTOM = 26, 34
CHARACTER = 6.2
"""Of a label, at most, in units of the picture: what keeps it from being clipped at an edge."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")
COLOURS = 8
FEW = 40
"""Points up to which each has a dot."""


class _Plane(NamedTuple):
    """Where steps and values lie in the picture."""

    steps: tuple[int, int]
    values: tuple[float, float]
    logarithmic: bool
    left: float
    right: float

    def across(self, step: float) -> float:
        first, last = self.steps
        return self.left + (WIDTH - self.left - self.right) * (step - first) / (last - first)

    def down(self, value: float) -> float:
        low, high = self.values
        share = math.log(value / low) / math.log(high / low) if self.logarithmic else (value - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


class Key(NamedTuple):
    """A line of the legend."""

    label: str
    colour: str
    dash: str

    def stroke(self, x: float, y: float) -> str:
        style = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'<line class="line {self.colour}" x1="{x + 1:g}" x2="{x + 25:g}" y1="{y:g}" y2="{y:g}"{style}/>'


class Drawing(NamedTuple):
    """A figure without its frame: what is in the picture, which is WIDTH wide."""

    title: str
    content: str
    height: float = HEIGHT
    keys: tuple[Key, ...] = ()
    values: str = ""
    """Of each line at each step, as JSON for the page's script."""


def inline(drawing: Drawing, *, shares: bool = False) -> str:
    """A figure of a page."""
    title, share = html.escape(visible(drawing.title)), ' data-share="1"' if shares else ""
    keys = "".join(
        f'<span class="key"><svg width="26" height="8">{key.stroke(0, 4)}</svg>{html.escape(visible(key.label))}</span>'
        for key in drawing.keys
    )
    lines = f' data-lines="{html.escape(drawing.values, quote=True)}"' if drawing.values else ""
    cursor = f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>' if drawing.values else ""
    return (
        f'<figure class="chart"><figcaption>{title}</figcaption><div class="legend">{keys}</div>'
        f'<svg viewBox="0 0 {WIDTH} {drawing.height:g}" role="img" aria-label="{title}"{share}{lines}>'
        f'{drawing.content}{cursor}</svg><div class="tip" hidden></div></figure>'
    )


def svg_chart(chart: ReportChart, translate: Translations) -> str:
    drawing = draw_chart(chart, translate)
    return inline(drawing, shares=metric_named(chart.metric).is_share) if drawing else ""


def draw_chart(chart: ReportChart, translate: Translations) -> Drawing | None:
    """Axes, for each arm the mean over its seeds with their band, and the points; None where nothing is finite."""
    drawn = [(line, [point for point in line.points if math.isfinite(point.mean)]) for line in chart.lines]
    values = [value for _, points in drawn for point in points for value in (point.low, point.high)]
    if not values:
        return None
    logarithmic = chart.logarithmic and min(values) > 0
    steps = [point.step for _, points in drawn for point in points]
    bounds = _padded(min(values), max(values), logarithmic)
    marks = log_ticks(*bounds) if logarithmic else ticks(*bounds)
    labels = {tick: _label(chart, tick) for tick in marks if bounds[0] <= tick <= bounds[1]}
    first, last = min(steps), max(max(steps), min(steps) + 1)
    left = max(30.0, 12 + CHARACTER * max((len(label) for label in labels.values()), default=0))
    plane = _Plane((first, last), bounds, logarithmic, left, max(14.0, CHARACTER / 2 * len(whole(last)) + 2))
    parts = [_axes(chart, plane, labels, translate)]
    bands = [_band(points, plane, place % COLOURS) for place, (line, points) in enumerate(drawn) if line.seeds > 1]
    keys, data = [], []
    for place, (line, points) in enumerate(drawn):
        # A colour that comes again has another dash.
        look = f"c{place % COLOURS}", DASHES[(place + place // COLOURS) % len(DASHES)]
        of = f" ({translate('mean')} {translate('over {} seeds').format(line.seeds)})" if line.seeds > 1 else ""
        keys.append(Key(line.label + of, *look))
        bands.append(_curve(chart, line, points, plane, *look))
        data.append({"label": line.label, "colour": place % COLOURS, "points": _points(line, points, plane)})
    values_at = json.dumps(data, separators=(",", ":"))
    return Drawing(chart.title, "".join(parts + bands), HEIGHT, tuple(keys), values_at)


def _band(points: Sequence[BandPoint], plane: _Plane, colour: int) -> str:
    edge = [(point.step, point.high) for point in points] + [(point.step, point.low) for point in reversed(points)]
    path = " ".join(f"{plane.across(x):.1f},{plane.down(y):.1f}" for x, y in edge)
    return f'<polygon class="band f{colour}" points="{path}"/>'


def _curve(
    chart: ReportChart, line: ChartLine, points: Sequence[BandPoint], plane: _Plane, colour: str, dash: str
) -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    path = " ".join(f"{plane.across(point.step):.1f},{plane.down(point.mean):.1f}" for point in points)
    parts = [f'<polyline class="line {colour}" points="{path}"{style}/>']
    if len(points) <= FEW:
        label = html.escape(visible(line.label))
        parts += [
            f'<circle class="dot {colour}" cx="{plane.across(at.step):.1f}" cy="{plane.down(at.mean):.1f}" r="2.4">'
            f"<title>{label}, {whole(at.step)}: {metric_value(chart.metric, at.mean, unit=True)}</title></circle>"
            for at in points
        ]
    return "".join(parts)


def _points(line: ChartLine, points: Sequence[BandPoint], plane: _Plane) -> list[list[float]]:
    """Step, where it lies, its mean; least and greatest where there are several seeds."""
    return [
        [at.step, round(plane.across(at.step), 1), round(plane.down(at.mean), 1), at.mean]
        + ([at.low, at.high] if line.seeds > 1 else [])
        for at in points
    ]


def _padded(low: float, high: float, logarithmic: bool) -> tuple[float, float]:
    if low == high:
        return (low * 0.9, high * 1.1) if logarithmic else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))
    if logarithmic:
        room = (high / low) ** 0.06
        return low / room, high * room
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between low and high.

    >>> ticks(0, 400)
    [0, 100, 200, 300, 400]
    """
    raw = (high - low) / max(count - 1, 1)
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * nice for nice in (1, 2, 2.5, 5, 10) if size * nice >= raw * 0.999)
    start = math.ceil(low / step - 1e-9)
    return [round(place * step, 10) for place in range(start, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten, or the powers alone; as on a linear axis where the range is small.

    >>> log_ticks(3.5, 60), log_ticks(4, 5), log_ticks(1, 1e6)[:3]
    ([5.0, 10.0, 20.0, 50.0], [4.0, 4.25, 4.5, 4.75, 5.0], [1.0, 10.0, 100.0])
    """
    if high / low < 4:
        return ticks(low, high)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 1000 else (1,)
    return [tick for power in powers for factor in factors if low <= (tick := factor * 10.0**power) <= high]


def _label(chart: ReportChart, tick: float) -> str:
    return f"{tick * 100:.6g} %" if metric_named(chart.metric).is_share else f"{tick:.6g}"


def _axes(chart: ReportChart, plane: _Plane, labels: dict[float, str], translate: Translations) -> str:
    left, end, base = plane.left, WIDTH - plane.right, HEIGHT - BOTTOM
    parts = []
    for tick, label in labels.items():
        y = plane.down(tick)
        parts.append(f'<line class="grid" x1="{left:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    first, last = plane.steps
    for tick in ticks(first, last, 6):
        if first <= tick <= last and tick == int(tick):  # there is no step 2.5
            x = plane.across(tick)
            parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 15}" text-anchor="middle">{whole(tick)}</text>')
    parts.append(f'<line class="axis" x1="{left:.1f}" x2="{end:.1f}" y1="{base}" y2="{base}"/>')
    scale = f" ({translate('logarithmic')})" if plane.logarithmic else ""
    several = max((line.seeds for line in chart.lines), default=1) > 1
    band = f"; {translate('band, least to greatest of seeds')}" if several else ""
    parts.append(f'<text class="label" x="0" y="11">{html.escape(visible(chart.y + scale + band))}</text>')
    middle = (left + end) / 2
    parts.append(
        f'<text class="label" x="{middle:.1f}" y="{HEIGHT - 4}" text-anchor="middle">{html.escape(chart.x)}</text>'
    )
    return "".join(parts)
