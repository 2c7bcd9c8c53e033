"""A self-contained HTML report: tables, findings, curves with hover values, in one file that needs no network.

Style (light, dark, print) and script (hover values) are in page.html, beside this module.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from string import Template

from oelm_core.compare.comparison import Finding
from oelm_core.plain_text import visible
from oelm_core.report.cells import GRADE_MARKS, MARKS, PairLine, ReportTable
from oelm_core.report.document import Report, ReportSection
from oelm_core.report.svg import inline, svg_chart
from oelm_core.report.svg_heads import draw_heads
from oelm_core.report.translations import Translations


def escape(text: str) -> str:
    return html.escape(visible(text))


def render_html(report: Report) -> str:
    translate = Translations(report.lang)
    body = "".join(
        f'<section id="s{place}"><h2>{escape(section.heading)}</h2>{_section(section, translate)}</section>'
        for place, section in enumerate(report.sections)
    )
    links = "".join(f'<a href="#s{place}">{escape(s.heading)}</a>' for place, s in enumerate(report.sections))
    page = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    return page.substitute(
        language="zh-Hans" if report.lang == "zh" else "en",
        theme="明/暗" if report.lang == "zh" else "light / dark",
        title=escape(report.title),
        whole_title=escape(f"{report.title}: {report.about}" if report.about else report.title),
        about=escape(report.about),
        links=links,
        body=body,
    )


def _section(section: ReportSection, translate: Translations) -> str:
    parts = [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    if section.pairs:
        parts.append(_pairs(section.pairs))
    if section.charts:
        parts.append(f'<div class="charts">{"".join(svg_chart(chart, translate) for chart in section.charts)}</div>')
    parts += [f'<div class="charts">{inline(draw_heads(panels, translate))}</div>' for panels in section.heads]
    if section.findings:  # as cards: a table of sentences is hard to read
        parts.append(_cards(section.findings, translate))
    else:
        parts += [html_table(table, section.heading) for table in section.tables if table.rows]
    if section.code:
        parts.append(f"<pre><code>{chr(10).join(map(escape, section.code))}</code></pre>")
    if section.items:
        items = "".join(f"<li>{escape(item)}</li>" for item in section.items)
        parts.append(f'<ul class="plain">{items}</ul>')
    return "\n".join(parts)


def html_table(table: ReportTable, heading: str = "") -> str:
    caption = f"<caption>{escape(table.title)}</caption>" if table.title and table.title != heading else ""
    head = "".join(
        f"<th{_side(align)}>{escape(text)}</th>" for text, align in zip(table.columns, table.align, strict=True)
    )
    rows = []
    for place, row in enumerate(table.rows):
        cells = "".join(
            f"<td{_side(align, cell)}>{escape(cell)}</td>" for cell, align in zip(row, table.align, strict=True)
        )
        rows.append(f'<tr class="strong">{cells}</tr>' if place in table.strong else f"<tr>{cells}</tr>")
    body = "".join(rows)
    whole = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    notes = "".join(f'<p class="under">{escape(note)}</p>' for note in table.notes)
    return f'{_pairs(table.pairs)}<div class="scroll">{whole}</div>{notes}'


def _pairs(pairs: Sequence[PairLine]) -> str:
    """Above the table: what was found comes first."""
    lines = "".join(
        f'<li class="{pair.verdict or "open"}"><b>{escape(pair.mark + pair.name)}:</b> {escape(pair.text)}</li>'
        for pair in pairs
    )
    return f'<ul class="pairs">{lines}</ul>' if lines else ""


def _side(align: str, cell: str = "") -> str:
    classes = ["r"] if align == "r" else []
    classes += [name for name in MARKS if cell.startswith(f"{MARKS[name]} ")]
    return f' class="{" ".join(classes)}"' if classes else ""


def _cards(findings: Sequence[Finding], translate: Translations) -> str:
    """Warnings stand open; notes beside them are folded, and open when there is nothing else, or on paper."""
    warnings = [finding for finding in findings if finding.grade != "note"]
    notes = [finding for finding in findings if finding.grade == "note"]
    shown, folded = (warnings, notes) if warnings else (notes, [])
    parts = [f'<ul class="findings">{"".join(_finding(finding, translate) for finding in shown)}</ul>']
    if folded:
        count = translate("1 note" if len(folded) == 1 else "{} notes").format(len(folded))
        cards = "".join(_finding(finding, translate) for finding in folded)
        parts.append(f'<details><summary>{escape(count)}</summary><ul class="findings">{cards}</ul></details>')
    return "".join(parts)


def _finding(finding: Finding, translate: Translations) -> str:
    more = []
    if finding.settle_with:
        more.append(f"{escape(translate('Settle with'))}: <code>{escape(finding.settle_with)}</code>")
    if finding.source:
        more.append(f"{escape(translate('Source'))}: {escape(finding.source)}")
    label = f"{GRADE_MARKS[finding.grade]} {translate(finding.grade)}: {finding.what}"
    why = escape(finding.sentence)
    small = f'<span class="settle">{" · ".join(more)}</span>' if more else ""
    return f'<li class="{finding.grade}"><span class="badge">{escape(label)}</span>{why}{small}</li>'
