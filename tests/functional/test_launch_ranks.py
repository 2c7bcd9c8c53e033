"""The real trainer behind the real launcher: one process, and two ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oelm_core.runs import attempts, evaluations
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Result
from tests import needs
from tests.chaos.lab import Lab, open_lab
from tests.functional.oelm import Oelm
from tests.training_runs import GPT, experiment, figures, texts

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as opened:
        del os.environ["OELM_WORKER"]  # until the lab is closed; monkeypatch would put it back later
        yield opened


def losses(run: RunFolder) -> list[float]:
    return [line.values["loss"] for line in figures(run)]


def test_a_study_is_started_and_followed_to_its_end_by_the_command(tmp_path: Path) -> None:
    studies = tmp_path / "home" / "presets" / "studies"
    studies.mkdir(parents=True)
    arms = "[demo-gpt-baseline, demo-gpt-oelm]"
    (studies / "pair.yaml").write_text(f"{{id: pair, title: Two arms, question: What for?, arms: {arms}, seeds: [7]}}")
    oelm = Oelm(tmp_path / "home")
    settings = ("train.max_steps=4", "train.eval_every=2", "train.samples=0")
    short = [part for setting in settings for part in ("--set", setting)]
    ended = oelm("study", "pair", "--device", "cpu", "--follow", *short)
    assert ended.returncode == 0, ended.stderr
    found = oelm.json("runs")
    assert [(run["state"], run["reason"], run["step"]) for run in found] == [("finished", "completed", 4)] * 2
    assert {run["preset"] for run in found} == {"demo-gpt-baseline", "demo-gpt-oelm"}


@needs.two_cores
def test_two_ranks_give_what_one_process_gives_on_the_same_global_batch(lab: Lab, tmp_path: Path) -> None:
    settings = ("train.threads=1", "train.max_steps=8", "train.eval_every=4", "model.dropout=0", "train.samples=0")
    folder = texts(tmp_path / "texts")
    (folder / "test.txt").write_text((folder / "stories" / "valid.txt").read_text() * 2)
    arm = experiment(GPT, folder, f"data.test={folder / 'test.txt'}", *settings)
    alone, together = lab.start(arm=arm), lab.start(arm=arm, per_run=2)
    assert lab.end(alone, 180).state == lab.end(together, 180).state == "finished"
    one, two, attempt = alone.read(Result), together.read(Result), attempts.last(together)
    assert one and two and attempt  # noqa: PT018 - all three for the reader's types
    assert attempt.world_size == two.world_size == 2
    assert one.effective_batch == two.effective_batch == 4
    assert losses(together) == pytest.approx(losses(alone), rel=1e-4)
    assert one.test and two.test  # noqa: PT018
    assert two.test.fingerprint == one.test.fingerprint
    assert two.test.values["loss"] == pytest.approx(one.test.values["loss"], rel=1e-4)
    by_document = [found.documents.losses for run in (alone, together) if (found := evaluations.test_losses(run))]
    assert by_document[1] == pytest.approx(by_document[0], rel=1e-3)
    assert lab.all_gone()
    assert lab.held() == []
