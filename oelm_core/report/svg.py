"""Curves as inline SVG: readable without scripts, with the values at hand for hovering."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable

from oelm_core.formatting import metric_value, whole
from oelm_core.metric import metric_named
from oelm_core.report.document import ReportChart

WIDTH, HEIGHT = 560, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 34
DASHES = ("", "6 3", "2 3", "8 3 2 3")
COLOURS = 8


def svg_chart(chart: ReportChart) -> str:
    """One figure: axes, a line per run (colour by arm, dash by seed), and its points as data for the script."""
    finite = [(x, y) for line in chart.lines for x, y in line.points if math.isfinite(y)]
    if not finite:
        return ""
    steps = [x for x, _ in finite]
    values = [y for _, y in finite]
    logarithmic = chart.logarithmic and min(values) > 0
    low, high = _padded(min(values), max(values), logarithmic)
    first, last = min(steps), max(max(steps), min(steps) + 1)

    def across(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first)

    def down(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if logarithmic else (value - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = [_axes(chart, (first, last), (low, high), across, down)]
    keys, data = [], []
    for line, (colour, dash) in zip(chart.lines, _line_styles(chart), strict=True):
        label = html.escape(line.label)
        shown = [(x, y) for x, y in line.points if math.isfinite(y) and (y > 0 or not logarithmic)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in shown)
        style = f' stroke-dasharray="{dash}"' if dash else ""
        keys.append(
            '<span class="key"><svg width="26" height="8">'
            f'<line class="line c{colour}" x1="1" x2="25" y1="4" y2="4"{style}/></svg>{label}</span>'
        )
        parts.append(f'<polyline class="line c{colour}" points="{path}"{style}/>')
        if len(shown) <= 40:
            parts += [
                f'<circle class="dot c{colour}" cx="{across(x):.1f}" cy="{down(y):.1f}" r="2.4">'
                f"<title>{label}, {whole(x)}: {metric_value(chart.metric, y, unit=True)}</title></circle>"
                for x, y in shown
            ]
        points = [[x, round(across(x), 1), round(down(y), 1), y] for x, y in shown]
        data.append({"label": line.label, "colour": colour, "points": points})
    payload = html.escape(json.dumps(data, separators=(",", ":")), quote=True)
    title, share = html.escape(chart.title), ' data-share="1"' if metric_named(chart.metric).is_share else ""
    return (
        f'<figure class="chart"><figcaption>{title}</figcaption><div class="legend">{"".join(keys)}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"{share} '
        f'data-lines="{payload}">'
        f'{"".join(parts)}<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>'
        '<div class="tip" hidden></div></figure>'
    )


def _line_styles(chart: ReportChart) -> list[tuple[int, str]]:
    """(colour number, dash) of each line: one colour an arm, seeds of an arm told apart by dashes."""
    lines_of: dict[str, int] = {}  # arms in their order, and how many lines of each came before
    styles = []
    for line in chart.lines:
        dash = DASHES[lines_of.setdefault(line.arm, 0) % len(DASHES)]
        lines_of[line.arm] += 1
        styles.append((list(lines_of).index(line.arm) % COLOURS, dash))
    return styles


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


def _axes(
    chart: ReportChart,
    steps: tuple[int, int],
    values: tuple[float, float],
    across: Callable[[float], float],
    down: Callable[[float], float],
) -> str:
    parts, is_share = [], metric_named(chart.metric).is_share
    for tick in ticks(*values):
        if values[0] <= tick <= values[1]:  # above zero on a logarithmic axis, for its lower end is
            y, label = down(tick), f"{tick * 100:.6g} %" if is_share else f"{tick:.6g}"
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in ticks(*steps, 6):
        if steps[0] <= tick <= steps[1] and tick == int(tick):  # there is no step 2.5
            x = across(tick)
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{whole(tick)}</text>'
            )
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(
        f'<text class="label" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{html.escape(chart.x)}</text>'
    )
    return "".join(parts)
