"""Two processes through torchrun train the recipe's own batch: the result is one process's, up to rounding."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from oelm_core.launch.spawn import worker_command
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Outcome
from oelm_core.training import checkpoint
from oelm_core.training.supervision import Interrupted, StopRequest
from oelm_core.training.tasks import ClassificationTask
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, experiment, figures, run_folder, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


def torchrun(folder: RunFolder, home: Path) -> subprocess.Popen[bytes]:
    """The very command the runner starts."""
    settings = {"OELM_HOME": str(home), "OELM_DEVICE": "cpu", "OELM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    log = open(folder.log, "ab")  # noqa: SIM115 - the child keeps it
    return subprocess.Popen(
        worker_command(folder.path, None, 2), env={**os.environ, **settings}, stdout=log, stderr=log, cwd=Path.cwd()
    )


def test_two_processes_give_what_one_gives_and_stop_at_the_same_step(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    monkeypatch.setenv("OELM_DEVICE", "cpu")
    # Without dropout: each rank draws its own masks, so only then must the sums agree. Never done unless stopped.
    settings = ["model.dropout=0.0", "train.max_steps=100000", "train.warmup_ratio=0.0", "train.eval_every=20"]
    chosen = experiment(BERT, data, *settings, "train.batch_size=3", "train.lr=0.00001")
    together = run_folder(tmp_path / "together", chosen)
    ranks = torchrun(together, tmp_path)
    deadline = time.monotonic() + 240
    while len(read_metrics(together.metrics, "eval")) < 1:
        assert ranks.poll() is None, together.log.read_text()
        assert time.monotonic() < deadline, together.log.read_text()
        time.sleep(0.01)
    ranks.send_signal(signal.SIGTERM)
    ranks.wait()
    stopped = together.read(Outcome)
    assert stopped is not None
    assert (stopped.state, stopped.reason) == ("stopped", "signal"), together.log.read_text()
    assert "Traceback" not in together.log.read_text().split("SIGTERM")[0]
    latest = checkpoint.newest(together.checkpoints)
    assert latest is not None
    assert (latest.step, latest.state.world_size) == (stopped.step, 2)

    alone = run_folder(tmp_path / "alone", chosen)
    stop = StopRequest()
    monkeypatch.setattr(ClassificationTask, "evaluate", lambda *_: stop.request(15) or _interrupted())
    assert train_run(alone, stop)[0].step == 20
    mine = [line for line in figures(together) if line.kind == "train" and line.step <= 20]
    theirs = [line for line in figures(alone) if line.kind == "train"]
    assert len(mine) == len(theirs) == 11
    for two, one in zip(mine, theirs, strict=True):
        assert two.step == one.step
        for name, tolerance in (("tokens", 0), ("lr", 0), ("loss", 1e-5), ("grad_norm", 1e-4)):
            assert two.values[name] == pytest.approx(one.values[name], rel=tolerance, abs=0)


def _interrupted() -> None:
    raise Interrupted
