"""The audit of published figures as a report of its own, in every format."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence

from oelm_core.compare.comparison import GRADES, Finding
from oelm_core.errors import BadInput
from oelm_core.report.document import Document, Section
from oelm_core.report.headings import Words
from oelm_core.report.html import render_html
from oelm_core.report.latex import render_latex
from oelm_core.report.markdown import render_markdown
from oelm_core.report.tables import fairness_table


def render_findings(findings: Sequence[Finding], format: str, lang: str) -> str:  # noqa: A002 - the option's name
    words = Words(lang)
    if format == "json":
        content = {"audit": [dataclasses.asdict(finding) for finding in findings]}
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if format == "csv":
        return _csv(findings)
    if format == "text":
        return _text(findings)
    layouts = {"markdown": render_markdown, "latex": render_latex, "html": render_html}
    if format not in layouts:
        raise BadInput(f"--format {format}: write one of markdown, csv, json, latex, html.")
    by_grade = [[finding for finding in findings if finding.grade == grade] for grade in GRADES]
    sections = tuple(
        Section(words(grade), tables=(fairness_table(group, words, with_source=True),), findings=tuple(group))
        for grade, group in zip(GRADES, by_grade, strict=True)
        if group
    )
    return layouts[format](Document(words("Published figures"), lang, sections))


def _csv(findings: Sequence[Finding]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["grade", "what", "arms", "why", "settle_with", "source"])
    for f in findings:
        writer.writerow([f.grade, f.what, " ".join(f.arms), f.why, f.settle_with or "", f.source or ""])
    return out.getvalue()


def _text(findings: Sequence[Finding]) -> str:
    from rich.console import Console

    from oelm_core.report.terminal import findings_table

    console = Console(width=100, no_color=True, highlight=False, record=True, file=io.StringIO())
    console.print(findings_table(findings))
    return console.export_text(styles=False)
