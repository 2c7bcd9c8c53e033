"""`oelm evaluate`: a finished run scored on other text, once, with every look counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from oelm_core.errors import BadInput, NotFound
from oelm_core.runs.evaluations import best_predictions, later_scores
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Result, RunState
from oelm_core.training import answering, later_score
from oelm_core.training.supervision import StopRequest
from oelm_core.training.worker import train_run
from tests.functional.oelm import Oelm
from tests.training_runs import BERT, experiment, run_folder, texts


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home: Path) -> RunFolder:
    """A tiny classifier with a held-out test part; its best evaluation is not its last."""
    data = texts(home / "texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OELM_HOME", str(home))
        patch.setenv("OELM_THREADS", "1")
        settings = ("data.test=held-out 0.2", "train.lr=0.03", "train.max_steps=6", "train.eval_every=2")
        folder = run_folder(home / "runs", experiment(BERT, data, *settings))
        train_run(folder, StopRequest())
    folder.write(RunState(state="finished", reason="completed", step=6, total=6))
    return folder


def test_a_run_is_scored_once_kept_beside_it_and_scored_again_only_when_asked(
    run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oelm = Oelm(home, OELM_THREADS="1")
    other = home / "other.tsv"
    shutil.copy(home / "texts" / "reviews" / "valid.tsv", other)  # so what it must find is known
    result, best = run.read(Result), best_predictions(run)
    assert result is not None
    assert result.best is not None
    assert best is not None
    ended = oelm("evaluate", run.id, "--data", str(other))
    assert ended.returncode == 0, ended.stderr
    assert f"best checkpoint (step {best.step}), on {other}: n = 20" in ended.stdout
    assert f"acc {100 * float(result.best['accuracy'] or 0):.2f}" in ended.stdout
    assert "looked at" not in ended.stderr
    [kept] = later_scores(run)
    assert kept.predictions is not None
    assert kept.predictions.predictions == best.predictions
    assert kept.score.values["loss"] == pytest.approx(result.best["loss"])

    monkeypatch.setenv("OELM_HOME", str(home))
    again = later_score.score(run, str(home / "texts" / "reviews"), "validation", False, [])
    assert (again.scored, again.looks, again.own_looks) == (False, 1, 1)  # another path, the same text
    assert again.kept == kept
    assert len(later_scores(run)) == 1


def test_a_second_look_is_counted_and_stays_one_file(
    run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(home))
    text = home / "few.tsv"
    text.write_text("sentence\tlabel\nthe film was good .\t1\nthe film was bad .\t0\n")
    first = later_score.score(run, str(text), None, False, [])
    second = later_score.score(run, str(text), None, True, [])
    assert (first.scored, first.looks, second.scored, second.looks, second.own_looks) == (True, 0, True, 1, 1)
    assert first.file == second.file
    assert first.kept is not None
    assert second.kept is not None
    assert len(second.kept.looked) == 2
    assert second.kept.score == first.kept.score


@pytest.mark.parametrize(
    ("table", "settings", "sentence"),
    [
        ("sentence\tlabel\nthe film was good .\t2\n", [], r"label '2'; labels of 2 classes run from 0 to 1\."),
        ("sentence\tlabel\nthe film was good .\tgreat\n", [], r"label 'great'.*--set data\.labels="),
        ("words\tlabel\nthe film was good .\t1\n", [], r"no column sentence.*--set data\.text="),
        ("sentence\tclass\nthe film was good .\t1\n", [], r"no column 'label'.*--set data\.label="),
        ("words\tlabel\nthe film was good .\t1\n", ["train.lr=1"], r"a finished run keeps its settings"),
    ],
)
def test_text_that_does_not_fit_is_refused(
    run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch, table: str, settings: list[str], sentence: str
) -> None:
    monkeypatch.setenv("OELM_HOME", str(home))
    (home / "odd.tsv").write_text(table)
    with pytest.raises(BadInput, match=sentence):
        later_score.score(run, str(home / "odd.tsv"), None, False, settings)


def test_columns_of_another_name_can_be_given(run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OELM_HOME", str(home))
    (home / "columns.tsv").write_text("words\tlabel\nthe film was fine .\t1\n")
    answer = later_score.score(run, str(home / "columns.tsv"), None, False, ["data.text=[words]"])
    assert answer.kept is not None
    assert answer.kept.score.examples == 1


def test_a_run_without_its_checkpoint_or_not_finished_is_refused(run: RunFolder, home: Path, tmp_path: Path) -> None:
    copy = RunFolder(home / "runs" / run.id.replace("-s42-", "-s43-"))
    shutil.copytree(run.path, copy.path, symlinks=True)
    shutil.rmtree(copy.checkpoints)
    with pytest.raises(NotFound, match="has no best checkpoint that can be read"):
        later_score.score(copy, str(home / "few.tsv"), None, False, [])
    copy.write(RunState(state="stopped", reason="user", step=2, total=6))
    oelm = Oelm(home)
    few = tmp_path / "few.tsv"
    few.write_text("sentence\tlabel\n")
    assert "is stopped; only a finished run can be evaluated" in oelm.refusal(
        "evaluate", copy.id, "--data", str(few), code=2
    )
    assert "no such file or folder" in oelm.refusal("evaluate", run.id, "--data", str(tmp_path / "gone"), code=2)
    shutil.rmtree(copy.path)


def test_what_the_process_says_of_an_error_reaches_the_command(run: RunFolder, home: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(answering, "guard", lambda folder: None)
    monkeypatch.setenv("OELM_HOME", str(home))
    assert later_score.main([f"--run-folder={run.path}", f"--data={home / 'nothing.tsv'}"]) == BadInput.exit_code
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["code"] == 2
    assert "no such file or folder" in said["error"]
