"""Runs killed with SIGKILL at random moments and resumed end with the same weights and metrics as one never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oelm_core.launch.spawn import HeldPort, hold_port, rank_environment
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import UNFROZEN, Outcome, Stop
from tests.training_runs import BERT, GPT, experiment, figures, run_folder, texts, weights
from tests.warm_worker import WarmWorker

pytestmark = pytest.mark.xdist_group("processes")
UNFREEZE = [
    "method.unfreeze.at=4",
    "method.unfreeze.order=top-down",
    "method.unfreeze.every=4",
    "method.unfreeze.warmup=3",
]
SHORT = ["train.max_steps=16", "train.eval_every=4", "train.checkpoint_every=2", "train.samples=1"]
CASES = {
    "an encoder with accumulation": (BERT, [*SHORT, "train.batch_size=3", "train.accumulate=3"]),
    "an encoder that unfreezes": (BERT, [*SHORT, *UNFREEZE]),
    "a GPT": (GPT, SHORT),
    "a GPT that unfreezes, with accumulation": (GPT, [*SHORT, *UNFREEZE, "train.accumulate=2"]),
}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> WarmWorker:
    return WarmWorker({"OELM_HOME": str(tmp_path_factory.mktemp("home")), "OELM_THREADS": "1", "OELM_DEVICE": "cpu"})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


def wait_for(ready: Callable[[], bool], alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not ready() and alive():
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.001)


def lines(folder: RunFolder) -> int:
    return folder.metrics.read_bytes().count(b"\n") if folder.metrics.exists() else 0


def drafts(folder: RunFolder) -> bool:
    return any(folder.checkpoints.glob(".step-*"))


def kill_somewhere(warm: WarmWorker, folder: RunFolder, dice: random.Random) -> bool:
    """Starts the run and kills it after a random number of further records, or while it writes a checkpoint."""
    pid = warm.start(folder.path)
    goal = lines(folder) + dice.randint(1, 8)
    in_checkpoint = dice.random() < 0.4
    gone = lambda: not Path(f"/proc/{pid}/stat").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text()  # noqa: E731
    wait_for(lambda: lines(folder) >= goal and (not in_checkpoint or drafts(folder)), lambda: not gone())
    os.kill(pid, signal.SIGKILL)
    return warm.wait(pid) == -signal.SIGKILL


def unfrozen(folder: RunFolder) -> list[int]:
    """The steps that were the first to train a layer, by the events of the run."""
    records = map(json.loads, folder.metrics.read_text().splitlines())
    return [record["step"] for record in records if record["kind"] == "event" and record["what"] == UNFROZEN]


def outcome(folder: RunFolder) -> Outcome:
    found = folder.read(Outcome)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES)
def test_killed_and_resumed_equals_never_killed(warm: WarmWorker, data: Path, tmp_path: Path, case: str) -> None:
    base, settings = CASES[case]
    chosen = experiment(base, data, *settings)
    whole = run_folder(tmp_path / "whole", chosen)
    assert warm.wait(warm.start(whole.path)) == 0
    dice = random.Random(os.environ.get("OELM_TEST_SEED") or case)
    broken = run_folder(tmp_path / "broken", chosen)
    kills = sum(kill_somewhere(warm, broken, dice) for _ in range(3))
    assert warm.wait(warm.start(broken.path)) == 0
    assert kills >= 2
    assert outcome(broken).state == outcome(whole).state == "finished"
    assert figures(broken) == figures(whole)
    assert unfrozen(broken) == unfrozen(whole) == ([5, 9] if "unfreezes" in case else [])
    assert weights(broken) == weights(whole)
    samples = [
        [json.loads(line)["text"] for line in f.samples.read_text().splitlines()]
        for f in (broken, whole)
        if f.samples.exists()
    ]
    assert not samples or samples[0] == samples[1]


def test_a_run_asked_to_stop_checkpoints_and_goes_on_to_the_same_end(
    warm: WarmWorker, data: Path, tmp_path: Path
) -> None:
    chosen = experiment(BERT, data, "train.max_steps=60", "train.eval_every=50")
    whole, stopped = run_folder(tmp_path / "whole", chosen), run_folder(tmp_path / "stopped", chosen)
    assert warm.wait(warm.start(whole.path)) == 0
    for number, state, code in ((signal.SIGTERM, "signal", 0), (signal.SIGUSR2, "preempted", 75)):
        pid = warm.start(stopped.path)
        goal = lines(stopped) + 4
        wait_for(lambda goal=goal: lines(stopped) >= goal, lambda: True)  # type: ignore[misc]
        os.kill(pid, number)
        assert warm.wait(pid) == code
        ended = outcome(stopped)
        assert (ended.state, ended.reason) == ("stopped", state)
        assert (stopped.checkpoints / "latest").readlink() == Path(f"step-{ended.step}")
    stopped.write(Stop("me@here", 0.0))
    pid = warm.start(stopped.path)
    os.kill(pid, signal.SIGTERM)  # perhaps before it has begun: it may die of it, or stop by itself
    assert warm.wait(pid) in (0, -signal.SIGTERM)
    assert warm.wait(warm.start(stopped.path)) == 0
    assert figures(stopped) == figures(whole)
    assert weights(stopped) == weights(whole)


@pytest.mark.parametrize(("world", "settings"), [(2, []), (3, UNFREEZE)])
def test_ranks_killed_and_resumed_equal_those_never_killed(
    warm: WarmWorker, data: Path, tmp_path: Path, world: int, settings: list[str]
) -> None:
    # Of three ranks sums depend on their order, and so on where a weight lies in its bucket.
    chosen = experiment(BERT, data, *SHORT, *settings)

    def start(folder: RunFolder) -> list[int]:
        port = hold_port()
        held.append(port)
        return [warm.start(folder.path, **rank_environment(rank, world, port.number)) for rank in range(world)]

    held: list[HeldPort] = []
    whole, broken = run_folder(tmp_path / "whole", chosen), run_folder(tmp_path / "broken", chosen)
    assert [warm.wait(pid) for pid in start(whole)] == [0] * world
    pids = start(broken)
    wait_for(lambda: lines(broken) >= 5, lambda: True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert [warm.wait(pid) for pid in pids] == [-signal.SIGKILL] * world
    assert [warm.wait(pid) for pid in start(broken)] == [0] * world
    assert figures(broken) == figures(whole)
    assert weights(broken) == weights(whole)
