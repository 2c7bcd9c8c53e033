"""CSV and JSON: the numbers of a report for programs, in plain units (fractions, seconds, bytes)."""

from __future__ import annotations

import csv
import io
import json

from oelm_core.report.document import Report
from oelm_core.report.translations import Translations


def render_csv(report: Report) -> str:
    """Columns are the same for every comparison; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(Translations(report.lang).column, report.rows[0] if report.rows else ()))
    writer.writerows(row.values() for row in report.rows)  # None is written as an empty cell
    return out.getvalue()


def render_json(report: Report) -> str:
    return json.dumps(report.data, indent=1, ensure_ascii=False) + "\n"
