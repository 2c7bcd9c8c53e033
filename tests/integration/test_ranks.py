"""Two ranks under their runner, over gloo: they train the recipe's own batch, and a fault of either is named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oelm_core.config import Experiment, as_dict, config_hash
from oelm_core.launch import lease
from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Outcome, RunRecord, RunState
from oelm_core.runs.status import FINAL
from oelm_core.training import checkpoint
from oelm_core.training.supervision import Interrupted, StopRequest
from oelm_core.training.tasks import ClassificationTask
from oelm_core.training.worker import train_run
from tests import needs
from tests.training_runs import BERT, experiment, figures, run_folder, texts
from tests.warm_worker import WarmWorker

pytestmark = [pytest.mark.slow, needs.two_cores, pytest.mark.xdist_group("processes")]
RANK_TIMEOUT = 4.0
LIMIT = 90.0
"""Seconds within which a run is over: its start, three steps, the time-out above, the grace, on a slow machine."""
PROMISED = 30.0
"""Seconds from the first outcome of a rank to the end of the run, as docs/training.md has it."""
SHORT_GRACE = {"OELM_RANK_GRACE": "1"}
ENDLESS = "train.max_steps=100000"


@pytest.fixture(scope="module")
def leases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("leases")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, leases: Path) -> WarmWorker:
    home = tmp_path_factory.mktemp("home")
    settings = {"OELM_HOME": home, "OELM_LEASES": leases, "OELM_THREADS": 1, "OELM_RANK_TIMEOUT": RANK_TIMEOUT}
    return WarmWorker({name: str(value) for name, value in settings.items()})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


def two_ranks(root: Path, chosen: Experiment) -> RunFolder:
    config = as_dict(chosen)
    record = RunRecord(
        preset=chosen.id,
        config=config,
        config_hash=config_hash(config),
        seed=chosen.seed,
        devices_asked="cpu",
        per_run=2,
    )
    return create(root, record, None)


def state(folder: RunFolder) -> RunState:
    found = folder.read(RunState)
    assert found is not None
    return found


def is_over(folder: RunFolder) -> bool:
    found = folder.read(RunState)
    return found is not None and found.state in FINAL


def wait_for(true: Callable[[], object], folder: RunFolder, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, folder.log.read_text()
        assert not is_over(folder) or true(), folder.log.read_text()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("fault", "reason", "words", "rank"),
    [
        ("kill", "signal", "Rank {} was killed by SIGKILL.", 0),
        ("kill", "signal", "Rank {} was killed by SIGKILL.", 1),
        ("oom", "oom", "rank {}: out of memory: asked for 2.00 GiB", 0),
        ("oom", "oom", "rank {}: out of memory: asked for 2.00 GiB", 1),
        ("nonfinite", "nonfinite", "rank {}: non-finite loss at step 3", 0),
        ("nonfinite", "nonfinite", "rank {}: non-finite loss at step 3", 1),
        ("hang", "hang", "Rank {} did not answer: it is held by SIGSTOP", 0),
        ("hang", "hang", "Rank {} did not answer: it is held by SIGSTOP", 1),
        ("ecc", "gpu_fault", "rank {}: CUDA error: uncorrectable ECC error encountered; resume", 1),
        ("exit", "error", "rank {}: the training code called sys.exit(3).", 1),
    ],
)
def test_a_fault_of_either_rank_is_named_and_the_other_is_ended(
    warm: WarmWorker, leases: Path, data: Path, tmp_path: Path, fault: str, reason: str, words: str, rank: int
) -> None:
    folder = two_ranks(tmp_path, experiment(BERT, data, ENDLESS, "train.eval_every=3"))
    # Only a rank that hangs has the grace run out: once is enough.
    grace = SHORT_GRACE if (fault, rank) == ("hang", 0) else {}
    runner = warm.start(folder.path, runner=True, RANK_FAULT=f"{fault}:{rank}:3", **grace)
    wait_for(lambda: is_over(folder), folder, LIMIT)
    assert warm.wait(runner) == 1
    end = state(folder)
    assert (end.state, end.reason) == ("failed", reason), folder.log.read_text()
    assert (end.message or "").startswith(words.format(rank)), end.message
    said = outcomes.read_all(folder)
    assert said[1 - rank].consequence
    assert (rank in said) == (fault not in ("kill", "hang"))
    first = min(one.t or 0.0 for one in said.values())
    assert first > 0.0
    assert first - 1.0 <= (end.ended or 0.0) <= first + PROMISED
    taken = list(leases.glob("*.lease"))
    assert taken
    assert not [path for path in taken if lease.holder(path.stem, leases)]


def test_two_ranks_give_what_one_process_gives_and_stop_at_the_same_step(
    warm: WarmWorker, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    monkeypatch.setenv("OELM_DEVICE", "cpu")
    # Without dropout: each rank draws its own masks, so only then must the sums agree. Never done unless stopped.
    settings = ["model.dropout=0.0", ENDLESS, "train.warmup_ratio=0.0", "train.eval_every=20"]
    chosen = experiment(BERT, data, *settings, "train.batch_size=3", "train.lr=0.00001")
    together = two_ranks(tmp_path / "together", chosen)
    runner = warm.start(together.path, runner=True)
    wait_for(lambda: len(read_metrics(together.metrics, "eval")) >= 1, together)
    os.kill(runner, signal.SIGTERM)
    warm.wait(runner)
    assert (state(together).state, state(together).reason) == ("stopped", "signal"), together.log.read_text()
    stopped = together.read(Outcome)
    assert stopped is not None
    assert "Traceback" not in together.log.read_text()
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
