"""Several charts side by side, two a row, over one x axis: pure, as the charts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len

from oelm_tui.charts.plot import ChartView, Panel, Picture, draw, without_common_start, x_bounds, x_label
from oelm_tui.text import Line, fit

SPACE = 2
LEAST = (36, 7)
"""Columns and rows under which a chart of a grid says too little."""


class Placed(NamedTuple):
    """A chart of a grid, and where its left edge is."""

    left: int
    picture: Picture


def has_room(width: int, height: int) -> bool:
    """For a legend and two rows of two charts."""
    return width >= 2 * LEAST[0] + SPACE and height > 2 * LEAST[1]


def draw_grid(
    panels: Sequence[Panel], view: ChartView, width: int, height: int, *, ascii_only: bool = False
) -> tuple[list[Line], list[Placed]]:
    """Rows for exactly `height` lines, and the charts in them; all show the same part of x, under one legend."""
    whole = x_bounds([curve for panel in panels for curve in panel.curves if len(curve.xs)], view)
    view = replace(view, window=whole) if whole else view
    column = (width - SPACE) // 2
    down = (len(panels) + 1) // 2
    lines: list[Line] = []
    height -= 1  # the legend
    panels = [replace(panel, named=False) for panel in panels]
    placed: list[Placed] = []
    for number in range(down):
        tall = height // down + (number < height % down)
        row = [draw(panel, view, column, tall, ascii_only=ascii_only) for panel in panels[2 * number : 2 * number + 2]]
        placed += [Placed(place * (column + SPACE), picture) for place, picture in enumerate(row)]
        left, right = row[0].rows, row[1].rows if len(row) > 1 else [[] for _ in row[0].rows]
        lines += [[*fit(tuple(one) or "", column + SPACE), *other] for one, other in zip(left, right, strict=True)]
    read = next((x for one in placed for x, _ in one.picture.readings.values()), None)
    return [_legend(panels, width, "" if read is None else f"at {x_label(view.x, read)}"), *lines], placed


def _legend(panels: Sequence[Panel], width: int, at: str) -> Line:
    """Where the cursor is, and each curve's sign and name once; those that find no room are counted."""
    curves = list({curve.name: curve for panel in panels for curve in panel.curves}.values())
    names = [curve.name for curve in curves]
    room = width - cell_len(at)
    if sum(cell_len(name) + 4 for name in names) > room:
        names = without_common_start(names)
    words = [f"{curve.mark} {name}  " for curve, name in zip(curves, names, strict=True)]
    fitting = len(words)
    while fitting and sum(map(cell_len, words[:fitting])) + (12 if fitting < len(words) else 0) > room:
        fitting -= 1
    line: Line = [(text, curve.role) for text, curve in zip(words[:fitting], curves, strict=False)]
    if fitting < len(words):
        line.append((f"and {len(words) - fitting} more  ", "faint"))
    return [*line, (at, "label")] if at else line
