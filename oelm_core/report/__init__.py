"""Reports of a comparison: Markdown, CSV, JSON, LaTeX, HTML, and the terminal's tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oelm_core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oelm_core.compare.comparison import Comparison, Finding

FORMATS = ("markdown", "csv", "json", "latex", "html")


def render(comparison: Comparison, format: str, lang: str = "en") -> str:  # noqa: A002 - the option's name
    """The comparison as text in one of FORMATS (or "text", the terminal's). `lang`: en or zh headings."""
    from oelm_core.report.headings import Words

    Words(lang)  # an unknown language is refused whatever the format
    if format == "json":
        return json.dumps(comparison.to_json(), indent=1, ensure_ascii=False) + "\n"
    if format == "text":
        from oelm_core.report.terminal import print_report

        return print_report(comparison, lang)
    if format == "csv":
        from oelm_core.report.csv_rows import render_csv

        return render_csv(comparison, lang)
    if format not in FORMATS:
        raise BadInput(f"--format {format}: write one of {', '.join(FORMATS)}.")
    from oelm_core.report.document import build_document

    document = build_document(comparison, lang)
    if format == "markdown":
        from oelm_core.report.markdown import render_markdown

        return render_markdown(document)
    if format == "latex":
        from oelm_core.report.latex import render_latex

        return render_latex(document)
    from oelm_core.report.html import render_html

    return render_html(document)


def render_audit(findings: Sequence[Finding], format: str = "text", lang: str = "en") -> str:  # noqa: A002
    """The audit of published figures by itself, in one of FORMATS or "text"."""
    from oelm_core.report.audit_page import render_findings

    return render_findings(findings, format, lang)
