"""docs/findings.md is what its records say, and nothing else."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest

from benchmarks import findings
from oelm_core.config.catalogue import load_catalogue
from oelm_core.errors import BadInput
from tests.run_factory import write_run


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))


def docs_in(folder: Path) -> Path:
    shutil.copytree(findings.DOCS / "findings", folder / "docs" / "findings")
    shutil.copy(findings.DOCS / "findings.md", folder / "docs" / "findings.md")
    return folder / "docs"


def test_the_committed_page_is_what_its_records_say(tmp_path):
    docs = docs_in(tmp_path)
    assert findings.restore(tmp_path / "home", docs)
    findings.write(tmp_path / "home", docs)
    for name in ("findings.md", *(f"findings/{study}.svg" for study in findings.STUDIES)):
        assert (docs / name).read_text("utf-8") == (findings.DOCS / name).read_text("utf-8"), name


def test_records_come_back_as_they_were_without_weights_and_logs(tmp_path):
    home, docs = tmp_path / "home", tmp_path / "docs"
    arm = load_catalogue(None).experiment("findings-gpt-baseline")
    run = write_run(home / "runs", arm, score=30.0)
    (run.folder.checkpoints / "step-1").mkdir()
    (run.folder.checkpoints / "step-1" / "model.safetensors").write_bytes(b"weights")
    run.folder.log.write_text("a log\n")
    (home / "ledger.jsonl").write_text("{}\n")
    (home / "studies").mkdir()
    (home / "studies" / "plan.json").write_text("{}")
    findings.keep(home, docs)
    first = findings.records(docs).read_bytes()
    findings.keep(home, docs)
    assert findings.records(docs).read_bytes() == first
    again = tmp_path / "again"
    assert findings.restore(again, docs)
    kept = {str(path.relative_to(again)) for path in again.rglob("*") if path.is_file()}
    assert f"runs/{run.id}/result.json" in kept
    assert {"ledger.jsonl", "studies/plan.json"} <= kept  # without the plan, nothing shows what was registered
    assert not [name for name in kept if "checkpoints" in name or name.endswith(".log")]
    assert (again / "runs" / run.id / "metrics.jsonl").read_bytes() == run.folder.metrics.read_bytes()
    assert not findings.restore(again, docs)  # a home with runs of its own is left alone


def test_records_of_finished_runs_are_never_lost_to_a_home_without_them(tmp_path):
    docs = docs_in(tmp_path)
    before = findings.records(docs).read_bytes()
    with pytest.raises(BadInput, match=r"lacks 16\d finished runs that records\.tar\.xz has"):
        findings.keep(tmp_path / "home", docs)
    assert findings.records(docs).read_bytes() == before


def test_a_study_without_results_says_so_and_how_far_it_is(tmp_path):
    docs = docs_in(tmp_path)
    shutil.rmtree(docs / "findings")
    (docs / "findings").mkdir()
    findings.write(tmp_path / "home", docs)
    page = (docs / "findings.md").read_text()
    assert re.search(r"Finished: 0 of 33 draws of tuning, 0 of 55 runs\.\*\n\n\*No run of it counts yet", page)


def test_the_records_hold_no_weights_and_name_nobodys_home():
    with tarfile.open(findings.records()) as archive:
        for member in archive:
            assert member.size < 4_000_000, member.name
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            assert f"{Path.home()}/".encode() not in content
            assert not re.search(rb"/(root|home/\w+)/", content), member.name


GENERATED = re.compile(r"<!-- made from the records: \S+ -->\n(.*?)<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"[-+]\d+\.\d %|\d+\.\d\d\b")
"""Gaps and scores as the tables write them."""


def test_every_figure_written_by_hand_is_one_of_the_tables():
    page = (findings.DOCS / "findings.md").read_text("utf-8")
    made = " ".join(GENERATED.findall(page))
    by_hand = [
        GENERATED.sub("", page).partition("## What it cannot tell")[0],
        (findings.DOCS.parent / "README.md").read_text("utf-8"),
    ]
    by_hand += [arm.finding for arm in load_catalogue(None).experiments.values() if arm.finding]
    assert len(by_hand) > 2  # some preset is recommended
    sentences = [line for text in by_hand for line in text.splitlines() if "perplexity" in line or "point" in line]
    figures = {figure for line in sentences for figure in FIGURE.findall(line)}
    assert figures
    assert [figure for figure in sorted(figures) if figure not in made] == []
