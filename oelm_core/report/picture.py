"""The figures of a report as one SVG file, for documents and slides: curves with bands, and what heads look at."""

from __future__ import annotations

import html
import math
from pathlib import Path

from oelm_core.errors import NotFound
from oelm_core.plain_text import visible
from oelm_core.report.document import Report
from oelm_core.report.svg import CHARACTER, WIDTH, Drawing, draw_chart
from oelm_core.report.svg_heads import draw_heads
from oelm_core.report.translations import Translations

EDGE, TITLE, LINE, STROKE = 16, 22, 16, 31


def render_svg(report: Report) -> str:
    """One figure under the other, with the page's own style: light or dark as the reader's screen is."""
    translate = Translations(report.lang)
    charts = [draw_chart(chart, translate) for section in report.sections[:1] for chart in section.charts]
    heads = [draw_heads(panels, translate) for section in report.sections for panels in section.heads]
    drawings = [drawing for drawing in (*charts, *heads) if drawing]
    if not drawings:
        raise NotFound("There is nothing to draw here: this report has no curves.")
    parts, y = [], float(EDGE)
    for drawing in drawings:
        parts.append(_placed(drawing, y))
        y += _height(drawing) + EDGE
    page = Path(__file__).with_name("page.html").read_text("utf-8")
    style = page.partition("<style>")[2].partition("</style>")[0]
    width = WIDTH + 2 * EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y:g}" width="{width}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{html.escape(visible(report.title))}">'
        f'<style>{style}</style><rect width="100%" height="100%" style="fill: var(--bg)"/>{"".join(parts)}</svg>\n'
    )


def _placed(drawing: Drawing, y: float) -> str:
    """The figure with its title and legend, as a group."""
    parts = [f'<text class="title" y="13">{html.escape(visible(drawing.title))}</text>']
    across = _keys_across(drawing)
    for place, key in enumerate(drawing.keys):
        row, column = divmod(place, across)
        x, line = column * WIDTH / across, TITLE + row * LINE
        label = html.escape(visible(key.label))
        parts.append(f'{key.stroke(x, line + 5)}<text class="label" x="{x + STROKE:g}" y="{line + 9}">{label}</text>')
    parts.append(f'<g transform="translate(0 {_above(drawing)})">{drawing.content}</g>')
    return f'<g transform="translate({EDGE} {y:g})">{"".join(parts)}</g>'


def _keys_across(drawing: Drawing) -> int:
    """Two keys of the legend in a line where the longest leaves room for it."""
    longest = max((len(key.label) for key in drawing.keys), default=0)
    return 2 if STROKE + CHARACTER * longest <= WIDTH / 2 else 1


def _above(drawing: Drawing) -> int:
    return TITLE + math.ceil(len(drawing.keys) / _keys_across(drawing)) * LINE + 4


def _height(drawing: Drawing) -> float:
    return _above(drawing) + drawing.height
