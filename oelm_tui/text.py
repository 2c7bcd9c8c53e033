"""What every part of the screen is made of: text with a role, in lines and in rows of cells. No widget, no colour.

Widths are what a terminal shows: a Chinese character takes two columns.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Row:
    """A table's row: a cell for each column's key."""

    key: str
    cells: dict[str, Cell]
    role: str = ""
    spill: str = ""
    """A column whose words go over the row's empty cells when it found no room itself."""


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
