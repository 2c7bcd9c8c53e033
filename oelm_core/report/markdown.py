"""Markdown that GitHub renders."""

from __future__ import annotations

from oelm_core.report.cells import PairLine, ReportTable
from oelm_core.report.document import Report, ReportSection

_RULES = {"l": ":---", "r": "---:"}


def render_markdown(report: Report) -> str:
    parts = [f"# {report.title}"]
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
        parts.append("```bash\n" + "\n".join(section.code) + "\n```")
    return parts + _list([*map(_text, section.items)])


def _list(lines: list[str]) -> list[str]:
    return ["\n".join(f"- {line}" for line in lines)] if lines else []


def _pair(pair: PairLine) -> str:
    return f"{pair.mark}{_text(pair.name)}: {_text(pair.text)}"


def markdown_table(table: ReportTable) -> str:
    lines = [_row(table.columns), _row([_RULES[align] for align in table.align])]
    for place, row in enumerate(table.rows):
        cells = [_cell(cell) for cell in row]
        if place in table.strong:
            cells[0] = f"**{cells[0]}**"
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")


def _text(text: str) -> str:
    """Keeps names with underscores, stars and angle brackets as they are."""
    for mark in ("\\", "*", "_", "`", "<", ">"):
        text = text.replace(mark, "\\" + mark)
    return text
