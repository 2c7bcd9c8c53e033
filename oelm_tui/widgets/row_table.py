"""A table that draws only the rows in view, keeps its cursor on a row's key, and drops columns in a stated order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from oelm_tui import glyphs
from oelm_tui.actions import bindings
from oelm_tui.text import Cell, Column, LazyRows, Line, Row, fit, width_of
from oelm_tui.widgets.lines import LineWidget

TOP = 1
"""Lines of the heading."""
MEASURED = 60
"""So many of the first rows, and those in view, say how wide columns have to be."""


class RowTable(ScrollView, LineWidget, can_focus=True):
    BINDINGS = bindings("lines", "table")
    empty_words: reactive[str] = reactive("")
    cursor: reactive[int] = reactive(0)

    @dataclass
    class Moved(Message):
        """The cursor stands on another row. `by_hand`: somebody moved it, not a new order of the rows."""

        table: RowTable
        key: str | None
        by_hand: bool = True

    class Chosen(Moved):
        """Enter, or a click on the row that already had the cursor."""

    @dataclass
    class HeaderPressed(Message):
        table: RowTable
        column: str

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.columns = list(columns)
        self.rows: Sequence[Row] = []
        self.keys: list[str] = []
        self.marked: set[str] = set()
        self.sorted_by = ""
        self.descending = False
        self.key: str | None = None
        """Of the row under the cursor."""
        self._layout: list[tuple[Column, int]] = []
        self._natural: dict[str, int] = {}
        self._drawn: dict[int, Row] = {}
        """The rows that are on the screen, by their number."""

    # What it shows

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Shows new rows; the cursor stays with its key, else near its place. Only changed lines are repainted."""
        before = len(self.rows)
        self.rows = rows if isinstance(rows, LazyRows) else list(rows)
        self.keys = rows.keys if isinstance(rows, LazyRows) else [row.key for row in rows]
        if before != len(self.rows):
            self.virtual_size = Size(self.size.width, len(self.rows) + TOP)
        if self.key is not None and self.key in self.keys:
            place = self.keys.index(self.key)
        else:
            place = min(self.cursor, max(0, len(self.rows) - 1))
        key = self.keys[place] if self.rows else None
        moved = place != self.cursor or self.key != key
        if self._lay_out() or before != len(self.rows) or moved:
            self._drawn.clear()
            self.refresh()
        else:
            for number, old in list(self._drawn.items()):
                if number < len(self.rows) and old != self.rows[number]:
                    self._refresh_row(number)
        if moved:
            self.key = key
            self.set_reactive(RowTable.cursor, place)
            self._keep_in_view()
            self.post_message(self.Moved(self, self.key, by_hand=False))

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Shows these columns from now on."""
        self.columns = list(columns)
        self._natural.clear()
        self._lay_out()
        self.refresh()

    def go_to(self, key: str) -> bool:
        """Puts the cursor on a key; False when it is not among the rows."""
        if key not in self.keys:
            return False
        self.cursor = self.keys.index(key)
        return True

    def can_mark(self, key: str) -> bool:
        return True

    def toggle_mark(self) -> None:
        if self.key is not None and self.can_mark(self.key):
            self.marked ^= {self.key}
            self._refresh_row(self.cursor)
        self.action_move(1)

    def clear_marks(self) -> None:
        self.marked.clear()
        self.refresh()

    def watch_cursor(self, before: int, after: int) -> None:
        self.key = self.keys[after] if 0 <= after < len(self.keys) else None
        self._refresh_row(before)
        self._refresh_row(after)
        self._keep_in_view()
        self.post_message(self.Moved(self, self.key))

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, len(self.rows) - 1))

    # Moving

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, self.size.height - TOP - 1)

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: events.Click) -> None:
        y = event.y - self.gutter.top
        if y < 0:
            return
        if y < TOP:
            self._press_header(event.x - self.gutter.left)
            return
        number = y - TOP + round(self.scroll_y)
        if number < len(self.rows):
            if number == self.cursor:
                self.action_choose()
            else:
                self.cursor = number

    def _press_header(self, x: int) -> None:
        at = 2
        for column, width in self._layout:
            if at <= x < at + width + 1:
                self.post_message(self.HeaderPressed(self, column.key))
                return
            at += width + 1

    # Drawing

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows) + TOP)
        self._lay_out()
        self._keep_in_view()

    def _lay_out(self) -> bool:
        """Widths for the rows at hand; True when they changed. A column grows with what is seen and never shrinks."""
        top = round(self.scroll_y)
        for row in (*self.rows[:MEASURED], *self.rows[max(MEASURED, top) : top + self.size.height]):
            for key, width in row.widths.items():
                if width > self._natural.get(key, -1):
                    self._natural[key] = width
        layout = lay_out(self.columns, self.size.width - 2, self._natural)
        changed, self._layout = layout != self._layout, layout
        return changed

    def watch_scroll_y(self, before: float, after: float) -> None:
        super().watch_scroll_y(before, after)
        self._drawn.clear()
        if round(after) + self.size.height > MEASURED and self._lay_out():
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y < TOP:
            return self.draw_line(self._header())
        number = y - TOP + round(self.scroll_y)
        if number >= len(self.rows):
            words = self.empty_words if not self.rows and y == TOP else ""
            return self.draw_line([("  " + words, "faint")])
        over = ("chosen" if self.has_focus else "blurred") if number == self.cursor else ""
        row = self._drawn[number] = self.rows[number]
        return self.draw_line(self._line(row), over)

    def _header(self) -> Line:
        spans: Line = [("  ", "")]
        for column, width in self._layout:
            title = column.title
            if column.key == self.sorted_by:
                title += glyphs.signs.down if self.descending else glyphs.signs.up
            spans += [*fit((title, "head"), width, column.right), (" ", "")]
        return spans

    def _line(self, row: Row) -> Line:
        sign = glyphs.signs.marked if row.key in self.marked else " "
        spans: Line = [(sign, "accent"), (" ", "")]
        for cell, width, right in placed(row, self._layout):
            spans += [*fit(cell, width, right), (" ", "")]
        return [(text, role or row.role) for text, role in spans] if row.role else spans

    def _refresh_row(self, number: int) -> None:
        y = number - round(self.scroll_y) + TOP
        if TOP <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def _keep_in_view(self) -> None:
        room = max(1, self.size.height - TOP)
        top = round(self.scroll_y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + room:
            self.scroll_to(y=self.cursor - room + 1, animate=False)

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()


LEAST_SPILL = 10


def placed(row: Row, layout: Sequence[tuple[Column, int]]) -> list[tuple[Cell, int, bool]]:
    """The row's cells with their widths; words that have no column of their own take the longest empty stretch."""
    cells: list[tuple[Cell, int, bool]] = [(row.cells.get(c.key, ""), width, c.right) for c, width in layout]
    words = row.cells.get(row.spill, "")
    if not width_of(words) or any(column.key == row.spill for column, _ in layout):
        return cells
    best = range(0)
    room = start = length = 0
    for place, (cell, width, _) in enumerate(cells):
        if width_of(cell):
            start = place + 1
            continue
        length = length + width + 1 if place > start else width
        if length > room:
            room, best = length, range(start, place + 1)
    if room < LEAST_SPILL:
        return cells
    return [*cells[: best.start], (words, room, False), *cells[best.stop :]]


def lay_out(columns: Sequence[Column], width: int, natural: Mapping[str, int]) -> list[tuple[Column, int]]:
    """Which columns fit, and how wide each is. `natural`: the widest content of each column."""
    columns = [column for column in columns if not column.optional or natural.get(column.key)]
    # A growing column with little in it takes no more than that: an empty one costs the others nothing. Any other has
    # room for what it shows, within reason, before a less important one has any.
    least = {
        column.key: min(column.width, max(natural.get(column.key, 0), len(column.title)))
        if column.grow
        else max(column.width, min(natural.get(column.key, 0), 2 * column.width))
        for column in columns
    }
    # A wide column that finds no room leaves it to the narrow ones after it.
    chosen: list[Column] = []
    room = width
    for column in sorted(columns, key=lambda column: -column.keep):
        if least[column.key] + 1 <= room or not chosen:
            chosen.append(column)
            room -= least[column.key] + 1
    spare = max(0, room)
    more: dict[str, int] = {}
    for column in sorted(chosen, key=lambda column: (column.grow, -column.keep)):  # nothing is cut while there is room
        more[column.key] = min(spare, max(0, natural.get(column.key, 0) - least[column.key]))
        spare -= more[column.key]
    kept = [column for column in columns if column in chosen]
    last = next((column for column in reversed(kept) if column.grow), None)
    if last is not None:
        more[last.key] += spare
    return [(column, least[column.key] + more[column.key]) for column in kept]
