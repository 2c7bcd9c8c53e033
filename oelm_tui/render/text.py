"""Small pieces the text panels share: headings, name-value lines, wrapped paragraphs."""

from __future__ import annotations

import textwrap

from rich.cells import cell_len

from oelm_tui.widgets.cells import Span
from oelm_tui.widgets.lines import Line


def heading(words: str) -> Line:
    return [(words, "title")]


def named(name: str, value: str, extra: Span | None = None, width: int = 22, role: str = "") -> Line:
    """`name` in a column of its own, then the value."""
    line: Line = [(f"  {name}".ljust(width), "faint"), (value, role)]
    return [*line, extra] if extra else line


def named_lines(name: str, value: str, room: int, width: int = 22, role: str = "") -> list[Line]:
    """As `named`, over as many rows as the value needs."""
    first, *more = wrapped(value, room - width, role, indent="")
    return [[(f"  {name}".ljust(width), "faint"), *first], *([(" " * width, ""), *line] for line in more)]


def wrapped(words: str, width: int, role: str = "", indent: str = "  ") -> list[Line]:
    """A paragraph folded to the panel; Chinese text is folded by what it takes on the screen."""
    lines: list[Line] = []
    for paragraph in words.splitlines() or [""]:
        if cell_len(paragraph) == len(paragraph):
            parts = textwrap.wrap(paragraph, max(8, width - len(indent) - 1)) or [""]
        else:
            parts = _fold_wide(paragraph, max(8, width - len(indent) - 1))
        lines += [[(indent + part, role)] for part in parts]
    return lines


def _fold_wide(text: str, width: int) -> list[str]:
    parts, line, used = [], "", 0
    for character in text:
        size = cell_len(character)
        if used + size > width:
            parts.append(line)
            line, used = "", 0
        line += character
        used += size
    return [*parts, line]


def folded(runs: list[Span], width: int) -> list[list[Span]]:
    """A line over as many rows as it needs."""
    rows: list[list[Span]] = [[]]
    room = width - 1
    for text, role in runs:
        part = ""
        for character in text:
            size = cell_len(character)
            if size > room:
                rows[-1].append((part, role))
                rows.append([])
                part, room = "", width - 1
            part += character
            room -= size
        if part:
            rows[-1].append((part, role))
    return rows
