"""Reports of a comparison or of an audit: one document, many formats.

A new format is a module with its renderer, a function from a `Report` to text or bytes, and a line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from oelm_core.errors import BadInput

if TYPE_CHECKING:
    from oelm_core.compare.comparison import Comparison, Finding
    from oelm_core.report.document import Report


class ExportFormat(NamedTuple):
    name: str
    """As `--format` takes it."""
    ending: str
    """Of files in this format, without the dot."""
    title: str
    renderer: str
    """`module:function`, imported when it is first used."""

    def render(self, report: Report) -> str | bytes:
        from pkgutil import resolve_name

        renderer: Callable[[Report], str | bytes] = resolve_name(self.renderer)
        return renderer(report)


FORMATS = {
    one.name: one
    for one in (
        ExportFormat("markdown", "md", "Markdown", "oelm_core.report.markdown:render_markdown"),
        ExportFormat("csv", "csv", "CSV", "oelm_core.report.data:render_csv"),
        ExportFormat("json", "json", "JSON", "oelm_core.report.data:render_json"),
        ExportFormat("latex", "tex", "LaTeX", "oelm_core.report.latex:render_latex"),
        ExportFormat("html", "html", "HTML", "oelm_core.report.html:render_html"),
        ExportFormat("svg", "svg", "SVG, the figures", "oelm_core.report.picture:render_svg"),
        ExportFormat("parquet", "parquet", "Parquet", "oelm_core.report.rows:render_parquet"),
    )
}


def format_named(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise BadInput(f"--format {name}: write one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def format_of_file(file_name: str) -> ExportFormat:
    """The format that the file's ending asks for."""
    ending = PurePath(file_name).suffix.lower()
    for one in FORMATS.values():
        if f".{one.ending}" == ending:
            return one
    raise BadInput(f"'{file_name}': end the name with one of {', '.join(f'.{f.ending}' for f in FORMATS.values())}.")


def render(comparison: Comparison, format: str, lang: str = "en") -> str | bytes:  # noqa: A002 - the option's name
    """The comparison in one of FORMATS. `lang`: en or zh headings."""
    from oelm_core.report.document import comparison_report

    return format_named(format).render(comparison_report(comparison, lang))


def render_audit(findings: Sequence[Finding], format: str, lang: str = "en") -> str | bytes:  # noqa: A002
    """The audit of published figures by itself, in one of FORMATS."""
    from oelm_core.report.document import audit_report

    return format_named(format).render(audit_report(findings, lang))
