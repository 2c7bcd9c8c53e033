"""What every part of the screen is made of: text with a role, in lines and in rows of cells. No widget, no colour.

Widths are what a terminal shows: a Chinese character takes two columns.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from rich.cells import cell_len, set_cell_size

from oelm_tui import glyphs

Span = tuple[str, str]
"""Text and role (palette.py), or a rich style in words."""
Line = list[Span]
Cell = str | Span | tuple[Span, ...]


@dataclass(frozen=True)
class Column:
    """A table's column. `keep` decides who gets room when it is narrow: the highest first.

    `grow` columns take what is left over, in their order and as far as their contents need it; the last takes the rest.
    """

    key: str
    title: str
    width: int
    right: bool = False
    keep: int = 100
    grow: bool = False
    optional: bool = False
    """Takes no room while no row has anything in it."""
    about: str = ""
    """What it shows, for who chooses columns."""


class LazyRows(Sequence["Row"]):
    """Rows that are made when somebody looks at them: of ten thousand a screen shows forty."""

    def __init__(self, keys: list[str], make: Callable[[int], Row]) -> None:
        self.keys, self._make = keys, make

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self._make(number) for number in range(*place.indices(len(self.keys)))]
        return self._make(range(len(self.keys))[place])


@dataclass(frozen=True)
class Row:
    """A table's row: a cell for each column's key."""

    key: str
    cells: dict[str, Cell]
    role: str = ""
    spill: str = ""
    """A column whose words go over the row's empty cells when it found no room itself."""

    @functools.cached_property
    def widths(self) -> dict[str, int]:
        """Of each cell's text."""
        return {key: width_of(cell) for key, cell in self.cells.items()}


def spans_of(cell: Cell) -> tuple[Span, ...]:
    if isinstance(cell, str):
        return ((cell, ""),)
    if cell and isinstance(cell[0], str):
        return (cell,)
    return cell


def width_of(cell: Cell) -> int:
    return sum(cell_len(text) for text, _ in spans_of(cell))


def fit(cell: Cell, width: int, right: bool = False) -> Line:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    spans = list(spans_of(cell))
    have = sum(cell_len(text) for text, _ in spans)
    if have <= width:
        pad = (" " * (width - have), "")
        return [pad, *spans] if right else [*spans, pad]
    if width <= 0:
        return []
    kept: Line = []
    room = width - 1
    for text, role in spans:
        size = cell_len(text)
        if size <= room:
            kept.append((text, role))
            room -= size
            continue
        kept.append((set_cell_size(text, room) + glyphs.signs.ellipsis, role))
        break
    return kept


def joined(line: Line) -> Line:
    """The same line with neighbours of one role in one piece."""
    pieces: Line = []
    for text, role in line:
        if pieces and pieces[-1][1] == role:
            pieces[-1] = (pieces[-1][0] + text, role)
        else:
            pieces.append((text, role))
    return pieces


def heading(words: str) -> Line:
    return [(words, "title")]


def named(name: str, value: str, extra: Span | None = None, width: int = 22, role: str = "") -> Line:
    """`name` in a column of its own, then the value."""
    line: Line = [(f"  {name}".ljust(width), "faint"), (value, role)]
    return [*line, extra] if extra else line


def named_lines(name: str, value: str, room: int, width: int = 22, role: str = "") -> list[Line]:
    """As `named`, over as many lines as the value needs."""
    first, *more = wrapped(value, room - width, role, indent="")
    return [[(f"  {name}".ljust(width), "faint"), *first], *([(" " * width, ""), *line] for line in more)]


def wrapped(words: str, width: int, role: str = "", indent: str = "  ") -> list[Line]:
    """Paragraphs as lines of at most `width` columns, broken between words."""
    lines: list[Line] = []
    for paragraph in words.splitlines() or [""]:
        room = max(8, width - len(indent) - 1)
        if cell_len(paragraph) == len(paragraph):
            parts = textwrap.wrap(paragraph, room) or [""]
        else:
            parts = ["".join(text for text, _ in line) for line in folded([(paragraph, "")], room + 1)]
        lines += [[(indent + part, role)] for part in parts]
    return lines


def windowed(line: Line, left: int, width: int) -> Line:
    """The columns of a line from `left` on, at most `width` of them."""
    found: Line = []
    at = 0
    for text, role in line:
        size = cell_len(text)
        start, end = max(0, left - at), min(size, left + width - at)
        at += size
        if start < end:
            found.append((text[start:end] if size == len(text) else _columns(text, start, end), role))
    return found


def _columns(text: str, start: int, end: int) -> str:
    """A part of a text that has wide characters; one that is cut through is left blank."""
    part, at = "", 0
    for character in text:
        size = cell_len(character)
        if at >= start and at + size <= end:
            part += character
        elif at < end and at + size > start:
            part += " " * (min(end, at + size) - max(start, at))
        at += size
    return part


def folded(line: Line, width: int) -> list[Line]:
    """A line over as many lines as it needs, broken anywhere."""
    lines: list[Line] = [[]]
    room = width - 1
    for text, role in line:
        part = ""
        for character in text:
            size = cell_len(character)
            if size > room:
                lines[-1].append((part, role))
                lines.append([])
                part, room = "", width - 1
            part += character
            room -= size
        if part:
            lines[-1].append((part, role))
    return lines
