"""LaTeX with booktabs: a document that compiles as it is, and tables that can be cut out of it."""

from __future__ import annotations

from collections.abc import Sequence

from oelm_core.plain_text import visible
from oelm_core.report.cells import PairLine, ReportTable
from oelm_core.report.document import Report, ReportSection

_PREAMBLE = r"""\documentclass[10pt]{article}
%s\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,array,graphicx,amssymb}
\newsavebox{\widetable}
\newenvironment{fitted}{\begin{lrbox}{\widetable}}{\end{lrbox}\ifdim\wd\widetable>\linewidth
  \resizebox{\linewidth}{!}{\usebox{\widetable}}\else\usebox{\widetable}\fi}
\setlength{\parindent}{0pt}\setlength{\parskip}{4pt}
"""
_LATIN = (
    "\\usepackage[T1]{fontenc}\n\\usepackage[utf8]{inputenc}\n\\IfFileExists{lmodern.sty}{\\usepackage{lmodern}}{}\n"
)
_CHINESE = "% compile with xelatex\n\\usepackage[UTF8]{ctex}\n"
_SYMBOLS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "✔": r"\checkmark{}",
    "✗": r"$\times$",
    "⚠": r"$\triangle$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≠": r"$\neq$",
    "–": r"\textendash{}",
    '"': "''",
    "…": r"\ldots{}",
}
LONG = 40
"""Text cells longer than this wrap in a column of fixed width."""
SHORT = 13
"""Columns up to this wide never wrap."""


def render_latex(report: Report) -> str:
    parts = [_PREAMBLE % (_CHINESE if report.lang == "zh" else _LATIN)]
    parts.append(
        f"\\title{{{escape(report.title)}}}\n\\date{{{escape(report.about)}}}\n\\begin{{document}}\n\\maketitle"
    )
    for section in report.sections:
        parts += [f"\\section*{{{escape(section.heading)}}}", *_section(section)]
    return "\n\n".join(parts) + "\n\n\\end{document}\n"


def escape(text: str) -> str:
    # two hyphens would be set as a dash, and a command copied from the page would not run
    return "".join(_SYMBOLS.get(character, character) for character in visible(text)).replace("--", "-{}-")


def _begun(shown: str) -> str:
    r"""What follows an \item, or the \\ of the row before, where a bracket or a star would be an option of that."""
    return f"{{{shown[0]}}}{shown[1:]}" if shown.startswith(("[", "*")) else shown


def _section(section: ReportSection) -> list[str]:
    parts = [escape(paragraph) for paragraph in section.paragraphs]
    parts += _items([*map(_pair, section.pairs)])
    for table in section.tables:
        if table.rows:
            parts.append(latex_table(table))
            parts += _items([*map(_pair, table.pairs), *table.notes])
    if section.code:
        lines = " \\\\\n".join(f"\\texttt{{{escape(line)}}}" for line in section.code)
        parts.append(f"{{\\raggedright {lines}\\par}}")
    return [*parts, *_items(section.items)]


def _pair(pair: PairLine) -> str:
    return f"{pair.mark}{pair.name}: {pair.text}"


def _items(lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    items = "\n".join(f"\\item {_begun(escape(line))}" for line in lines)
    return [f"{{\\raggedright\\begin{{itemize}}\n{items}\n\\end{{itemize}}}}"]


def latex_table(table: ReportTable) -> str:
    """`tabular`, shrunk to the line when too wide; text-heavy ones as `longtable` over pages."""
    widths = [max(len(row[column]) for row in (table.columns, *table.rows)) for column in range(len(table.columns))]
    wrapped = any(width > LONG for width in widths)
    columns = _wrapped_columns(table, widths) if wrapped else table.align
    head = " & ".join(escape(heading) for heading in table.columns) + r" \\"
    body = "\n".join(
        _begun(" & ".join(_cell(cell, p in table.strong) for cell in row)) + r" \\" for p, row in enumerate(table.rows)
    )
    if wrapped:
        return (
            f"{{\\small\\setlength{{\\tabcolsep}}{{4pt}}\n\\begin{{longtable}}{{{columns}}}\n\\multicolumn{{{len(table.columns)}}}{{l}}"
            f"{{\\textbf{{{escape(table.title)}}}}} \\\\\n\\toprule\n{head}\n\\midrule\n\\endhead\n"
            f"{body}\n\\bottomrule\n\\end{{longtable}}}}"
        )
    return (
        f"\\begin{{center}}\\small\n\\textbf{{{escape(table.title)}}}\\\\[2pt]\n\\begin{{fitted}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{fitted}\n\\end{center}"
    )


def _cell(text: str, strong: bool) -> str:
    return f"\\textbf{{{escape(text)}}}" if strong else escape(text)


def _wrapped_columns(table: ReportTable, widths: list[int]) -> str:
    """Short columns keep their width; long text shares what they leave of the line."""
    long = [min(width, 90) if width > SHORT else 0 for width in widths]
    room = 0.98 - 0.0175 * len(widths)  # the space between columns, 4 pt on each side
    room -= sum(0.0125 * width for width in widths if width <= SHORT)
    return "".join(
        f">{{\\raggedright\\arraybackslash}}p{{{room * share / sum(long):.3f}\\linewidth}}" if share else align
        for share, align in zip(long, table.align, strict=True)
    )
