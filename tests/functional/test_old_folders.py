"""Run folders as version 0.1 wrote them (tests/golden/version-0.1) are listed, compared and resumed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oelm_core.compare import compare_runs
from oelm_core.config import as_dict, build_experiment, config_hash
from oelm_core.config.catalogue import Catalogue
from oelm_core.launch import local
from oelm_core.runs import attempts
from oelm_core.runs.evaluations import best_predictions
from oelm_core.runs.folder import RunFolder, read_record
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Attempt, Checks, Outcome, Result, RunRecord, RunState, WorkerProgress
from oelm_core.runs.store import list_runs
from tests.chaos.lab import STAND_IN, open_lab

WRITTEN = Path(__file__).resolve().parents[1] / "golden" / "version-0.1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "home" / "runs"))


def folders(root: Path) -> tuple[RunFolder, RunFolder]:
    """Those of the baseline and of OELM."""
    baseline, oelm = sorted(root.glob("tiny-*"))
    return RunFolder(baseline), RunFolder(oelm)


def change(path: Path, **values: Any) -> None:
    """Other values in a file, as version 0.1 wrote them: NaN and Infinity bare."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}, indent=1))


def contains(found: Any, written: Any) -> bool:
    """Whether everything that was written is found again, beside keys that came later."""
    if isinstance(written, dict):
        return all(key in found and contains(found[key], value) for key, value in written.items())
    if isinstance(written, list):
        return len(found) == len(written) and all(map(contains, found, written))
    return bool(found == written)


def test_every_record_fits_and_nothing_in_it_is_lost(root: Path) -> None:
    for folder in folders(root):
        for kind in (RunRecord, RunState, Outcome, WorkerProgress, Checks, Result):
            assert folder.problem(kind) is None
            written = json.loads((folder.path / kind.FILE).read_text())
            if "true_baseline" in written:  # its name in version 0.1
                written["qk_untouched"] = written.pop("true_baseline")
            assert contains(msgspec.to_builtins(folder.read(kind)), written)
        assert read_record(attempts.path_of(folder, 1), Attempt) is not None
        assert [line.step for line in read_metrics(folder.metrics, "eval")] == [4, 8]
        predictions = best_predictions(folder)
        assert predictions is not None
        assert predictions.step == 4


def test_they_are_listed_and_compared(root: Path) -> None:
    _, oelm = folders(root)
    change(oelm.path / "result.json", final={"step": 8, "loss": math.nan, "accuracy": 0.45, "perplexity": math.inf})
    with open(oelm.metrics, "a") as file:
        file.write('{"t": 1.0, "step": 9, "kind": "eval", "loss": NaN, "accuracy": -Infinity}\n')
    runs = list_runs(root)
    assert {run.preset: (run.state, run.step, run.metric_value) for run in runs} == {
        "tiny-baseline": ("finished", 8, 0.45),
        "tiny-oelm": ("finished", 8, 0.45),
    }
    assert runs[0].message == "best accuracy 0.4500 at step 4"
    result = oelm.read(Result)
    assert result is not None
    assert result.final == {"step": 8, "loss": None, "accuracy": 0.45, "perplexity": None}
    [group] = compare_runs(runs, Catalogue({})).groups
    assert [arm.id for arm in group.arms] == ["tiny-baseline", "tiny-oelm"]
    assert [pair.arm for pair in group.pairs] == ["tiny-oelm"]
    assert group.pairs[0].delta == 0.0


def test_they_are_of_one_arm_with_new_runs_of_the_same_recipe(root: Path) -> None:
    """Their hash has another form, and their configuration lacks what was added since."""
    for folder in folders(root):
        record = folder.read(RunRecord)
        assert record is not None
        new = as_dict(build_experiment(record.config, "again"))
        [old] = [run for run in list_runs(root) if run.id == folder.id]
        assert record.config_hash != config_hash(new) == old.config_hash


def test_one_that_was_stopped_continues_in_its_folder(root: Path, tmp_path: Path) -> None:
    _, oelm = folders(root)
    change(oelm.path / "run.json", worker=str(STAND_IN))
    change(oelm.path / "state.json", state="stopped", reason="user", step=4, ended=math.nan)
    change(oelm.path / "attempts" / "1.json", state="stopped", reason="user")
    for name in ("result.json", "outcome.json"):
        (oelm.path / name).unlink()
    with open_lab(tmp_path) as lab:
        assert [run.state for run in list_runs() if run.preset == "tiny-oelm"] == ["stopped"]
        local.resume(oelm)
        assert lab.end(oelm).state == "finished"
        assert attempts.numbers(oelm) == [1, 2]
        first, second = attempts.read_all(oelm)
        assert (first.reason, second.attempt, second.reason) == ("user", 2, "completed")
