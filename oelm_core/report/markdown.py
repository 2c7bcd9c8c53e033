"""Markdown that GitHub renders."""

from __future__ import annotations

import re

from oelm_core.plain_text import visible
from oelm_core.report.cells import PairLine, ReportTable
from oelm_core.report.document import Report, ReportSection

_RULES = {"l": ":---", "r": "---:"}


def render_markdown(report: Report) -> str:
    parts = [f"# {_text(report.title)}", *([_text(report.about)] if report.about else [])]
    for section in report.sections:
        parts += [f"## {section.heading}", *_section(section)]
    return "\n\n".join(parts) + "\n"


def _section(section: ReportSection) -> list[str]:
    parts = [_text(paragraph) for paragraph in section.paragraphs]
    parts += _list([*map(_pair, section.pairs)])
    for table in section.tables:
        if table.rows:
            if table.title and table.title != section.heading:
                parts.append(f"**{_text(table.title)}**")
            parts.append(markdown_table(table))
            parts += _list([*map(_pair, table.pairs), *map(_text, table.notes)])
    if section.code:
        parts.append(_fenced(section.code))
    return parts + _list([*map(_text, section.items)])


def _list(lines: list[str]) -> list[str]:
    return ["\n".join(f"- {line}" for line in lines)] if lines else []


def _pair(pair: PairLine) -> str:
    return f"{pair.mark}{_text(pair.name)}: {_text(pair.text)}"


def markdown_table(table: ReportTable) -> str:
    lines = [_row([*map(_cell, table.columns)]), _row([_RULES[align] for align in table.align])]
    for place, row in enumerate(table.rows):
        cells = [_cell(cell) for cell in row]
        if place in table.strong:
            cells[0] = f"**{cells[0]}**"
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return _marked(text).replace("|", "\\|")


_MARKS = re.compile(r"[\\*_`<>~]|&(?=#?\w+;)|\](?=[(\[:])")
"""Emphasis, code, HTML, and what makes a link or an image of words in brackets."""
_START = re.compile(r"^(#|[-+=](?=[-+= ]|$)|\d+[.)] )")
"""At the start of a line: a heading, a rule, a list."""


def _marked(text: str) -> str:
    return _MARKS.sub(r"\\\g<0>", visible(text).lstrip(" "))


def _text(text: str) -> str:
    r"""Text as it is: no emphasis, link, image, HTML, heading or list comes of it.

    >>> print(_text("![x](http://y) <b>"), _text("1. a_b"), _text("# no"), _text("-0.5 [1]"))
    ![x\](http://y) \<b\> 1\. a\_b \# no -0.5 [1]
    """
    return _START.sub(lambda found: _unstarted(found[0]), _marked(text), count=1)


def _unstarted(start: str) -> str:
    number = start.rstrip(".) ")
    return f"{number}\\{start[len(number) :]}" if number.isdigit() else f"\\{start}"


def _fenced(lines: tuple[str, ...]) -> str:
    """A block that no line of it can end."""
    shown = [visible(line) for line in lines]
    fence = max(["```", *("`" * (len(run) + 1) for line in shown for run in re.findall("`{3,}", line))], key=len)
    return "\n".join([f"{fence}bash", *shown, fence])
