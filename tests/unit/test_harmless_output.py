"""What others open: text of run folders runs nothing in a spreadsheet, a browser, TeX, a viewer or a terminal."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from oelm_core.compare import compare_runs
from oelm_core.config.catalogue import Catalogue
from oelm_core.report import render
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord
from oelm_tui.logs.clean import harmless
from tests.hostile_lab import check, is_harmless
from tests.in_process import oelm
from tests.run_factory import BERT, FROZEN, experiment, write_run

EVIL = (
    "=HYPERLINK(0)",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "<script>alert(1)</script>",
    "![x](http://tracker/x.png)",
    "\\input{/etc/passwd}",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\n# b",
    "```\n\n<b>",
    "[/nope]",
)


@pytest.fixture(params=range(len(EVIL)), ids=lambda place: f"text{place}")
def evil(request, tmp_path, monkeypatch) -> str:
    """Stands in every text of a run that a table shows."""
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    text = EVIL[request.param]
    for number, one in enumerate((experiment("base"), experiment("arm", BERT, method=FROZEN, baseline="base"))):
        folder = RunFolder(write_run(tmp_path / "runs", one, number=number).path)
        record = folder.read(RunRecord)
        record.preset = record.study = text if number else record.preset
        record.command, record.git_commit, record.versions = f"oelm {text}", text, {text: text}
        record.config["title"] = record.config["data"]["name"] = record.config["model"]["name"] = text
        record.config["method"]["name"] = text if number else record.config["method"]["name"]
        folder.write(record)
    return text


def test_every_command_writes_it_out(evil):
    for command in (("runs",), ("runs", "--json"), ("compare", "--all"), ("compare", "--all", "--json")):
        ended = oelm(*command)
        check(ended)
        assert ended.code == 0
    assert json.loads(oelm("runs", "--json").out)[0]["preset"] == evil  # programs get the text itself


def test_no_document_obeys_it(evil, tmp_path):
    from oelm_core.runs.store import list_runs

    comparison = compare_runs(list_runs(tmp_path / "runs"), Catalogue())
    documents = {form: render(comparison, form) for form in ("csv", "markdown", "html", "latex", "json")}
    for text in documents.values():
        assert all(is_harmless(line) for line in text.split("\n"))
    for row in csv.reader(io.StringIO(documents["csv"])):
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or re.fullmatch(r"[-+]?[\d.]+(e-?\d+)?", cell)
    assert "<script>alert" not in documents["html"]
    assert "\\input{" not in documents["latex"]
    markdown = re.sub(r"^(`{3,})bash\n.*?^\1$", "", documents["markdown"], flags=re.S | re.M)
    for obeyed in (r"(?<!\\)\]\(", r"(?<!\\)<[a-z/]", r"^# b"):
        assert not re.search(obeyed, markdown, flags=re.M)
    assert "```\n\n<b>" not in documents["markdown"]


def test_numbers_of_a_csv_stay_numbers(tmp_path):
    runs = [
        write_run(tmp_path, experiment("base"), score=0.9),
        write_run(tmp_path, experiment("arm", BERT, method=FROZEN, baseline="base"), number=1, score=0.8),
    ]
    rows = list(csv.DictReader(io.StringIO(render(compare_runs(runs, Catalogue()), "csv"))))
    assert float(next(row["delta"] for row in rows if row["arm"] == "arm")) < 0


def test_a_line_of_the_screen_is_as_wide_as_before_and_obeys_nothing():
    for text in EVIL:
        shown = harmless(text)
        assert shown.isprintable()
        assert len(shown) == len(text)
