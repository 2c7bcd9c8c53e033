"""Cells: text with a role, cut and padded by what a terminal shows (Chinese characters take two columns)."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from oelm_tui import glyphs
from oelm_tui.palette import role_style

Span = tuple[str, str]
"""Text and role."""
Cell = str | Span | tuple[Span, ...]


class BaseStyle(Widget):
    """Keeps the widget's own style: Textual walks all ancestors for it anew, and we need it for every line.

    Comes after a scrolling base: Textual inherits default styles from the first base only.
    """

    _base: tuple[str, Style] | None = None

    @property
    def base_style(self) -> Style:
        if self._base is None or self._base[0] != self.app.theme:
            self._base = self.app.theme, self.rich_style
        return self._base[1]

    def notify_style_update(self) -> None:
        self._base = None
        super().notify_style_update()


def runs_of(cell: Cell) -> tuple[Span, ...]:
    if isinstance(cell, str):
        return ((cell, ""),)
    if cell and isinstance(cell[0], str):
        return (cell,)  # type: ignore[return-value]
    return cell  # type: ignore[return-value]


def width_of(cell: Cell) -> int:
    return sum(cell_len(text) for text, _ in runs_of(cell))


def fit(cell: Cell, width: int, right: bool = False) -> list[Span]:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    runs = list(runs_of(cell))
    have = sum(cell_len(text) for text, _ in runs)
    if have <= width:
        pad = (" " * (width - have), "")
        return [pad, *runs] if right else [*runs, pad]
    if width <= 0:
        return []
    kept: list[Span] = []
    room = width - 1
    for text, role in runs:
        size = cell_len(text)
        if size <= room:
            kept.append((text, role))
            room -= size
            continue
        kept.append((set_cell_size(text, room) + glyphs.signs.ellipsis, role))
        break
    return kept


def strip_of(runs: Iterable[Span], width: int, theme: Theme, base: Style, over: Style | None = None) -> Strip:
    """A full-width line; `over` is laid over everything (a cursor)."""
    segments = [Segment(text, base + role_style(role, theme)) for text, role in runs if text]
    strip = Strip(segments).adjust_cell_length(width, base)
    if over is not None and over.reverse:  # 16 colours: coloured signs would become coloured blocks
        strip = Strip([Segment(segment.text, base + over) for segment in strip], strip.cell_length)
    elif over is not None:
        strip = Strip([Segment(s.text, (s.style or base) + over) for s in strip], strip.cell_length)
    return strip
