"""CSV and JSON: the numbers of a report for programs, in plain units (fractions, seconds, bytes)."""

from __future__ import annotations

import csv
import io
import re

from oelm_core.plain_text import json_text, visible
from oelm_core.report.document import Report
from oelm_core.report.translations import Translations


def render_csv(report: Report) -> str:
    """Columns are the same for every comparison; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(Translations(report.lang).column, report.rows[0] if report.rows else ()))
    writer.writerows(map(_cell, row.values()) for row in report.rows)  # None is written as an empty cell
    return out.getvalue()


_RUNS = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take the text of a cell for something to compute."""


def _cell(value: str | int | float | None) -> str | int | float | None:
    """Numbers as they are; text that a spreadsheet would run begins with an apostrophe, which makes it text.

    >>> _cell(-9.1), _cell("=1+1"), _cell("-7 42"), _cell("-7")
    (-9.1, "'=1+1", "'-7 42", '-7')
    """
    if not isinstance(value, str):
        return value
    if value.startswith(_RUNS) and not re.fullmatch(r"[-+]?\d+(\.\d+)?", value):
        value = f"'{value}"
    return visible(value)


def render_json(report: Report) -> str:
    return json_text(report.data()) + "\n"
