"""A preset's card in lines: for the screen's pane, and for `oelm presets show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm_tui import glyphs
from oelm_tui.text import Line, heading, named_lines, wrapped

if TYPE_CHECKING:
    from oelm_core.preset_card import CardRow, PresetCard

GRADES = {"breaks": "bad", "confounds": "wait", "note": "faint"}
ROLES = {**GRADES, "command": "key", "faint": "faint"}
NAMES, MOST = 14, 30
"""Columns for the names of rows, at least and at most."""


def card_lines(card: PresetCard, width: int, titled: bool = True) -> list[Line]:
    lines: list[Line] = [[(card.id, "title"), (f"  {card.title}", "label")]] if titled else []
    for section in card.sections:
        if section.title and lines:
            lines.append([])
        if section.title:
            lines.append(heading(section.title))
        longest = max((len(row.name) for row in section.rows), default=0) + 3
        column = min(max(NAMES, longest), MOST, max(NAMES, width // 3))
        for row in section.rows:
            lines += _row(row, width, column)
    if glyphs.signs.ascii_only:
        return [[(text.replace("±", glyphs.signs.spread), role) for text, role in line] for line in lines]
    return lines


def _sign(grade: str) -> str:
    signs = glyphs.signs
    return {"breaks": signs.bad, "confounds": signs.warn}.get(grade, signs.note)


def _row(row: CardRow, width: int, column: int) -> list[Line]:
    role = ROLES.get(row.tone, "")
    if not row.name:
        return wrapped(row.value, width, role, indent="  ")
    name = f"{_sign(row.tone)} {row.name}" if row.tone in GRADES else row.name
    lines = named_lines(name if len(name) + 3 <= column else "", row.value, width, column, role)
    if len(name) + 3 > column:  # a long name has a line of its own
        lines.insert(0, [(f"  {name}", "faint")])
    if row.tone in ("breaks", "confounds"):  # the mark has the colour, the sentence is read
        lines = [[(lines[0][0][0], role), *((text, "") for text, _ in lines[0][1:])], *_plain(lines[1:])]
    if not row.extra:
        return lines
    last = sum(len(text) for text, _ in lines[-1])
    if last + 2 + len(row.extra) <= width - 1 and row.tone not in GRADES:
        return [*lines[:-1], [*lines[-1], (f"  {row.extra}", "faint")]]
    return [*lines, *wrapped(row.extra, width, "faint", indent=" " * column)]


def _plain(lines: list[Line]) -> list[Line]:
    return [[(text, "") for text, _ in line] for line in lines]
