"""One run over two nodes of a real Slurm: faults are named, stops save, and the loss of a node is survived."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import cancel, submit
from oelm_core.runs import outcomes, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunState
from oelm_core.training.supervision import StopRequest
from oelm_core.training.worker import train_run
from tests.integration.conftest import SlurmLab
from tests.training_runs import GPT, figures, run_folder, texts
from tests.training_runs import experiment as tiny

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
SLOW = 100_000


@pytest.fixture(autouse=True)
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_PEERS", "1")
    monkeypatch.setenv("OELM_RANK_GRACE", "2")


def left_of(run: RunFolder) -> list[int]:
    return process.with_argument(f"--run-folder={run.path}")


@pytest.mark.parametrize(
    ("how", "rank", "reason", "words"),
    [
        ("outcome:oom", 3, "oom", "as asked"),
        ("kill", 2, "signal", "Rank 2 was killed by SIGKILL."),
    ],
)
def test_a_fault_on_either_node_is_named_and_nobody_is_left_on_the_other(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch, how: str, rank: int, reason: str, words: str
) -> None:
    monkeypatch.setenv("STAND_IN_FAIL", how)
    monkeypatch.setenv("STAND_IN_FAIL_RANK", str(rank))
    run = lab.start(SLOW, "cpus=1", nodes=2, device="cpu", per_run=2)
    assert lab.end(run) == ("failed", reason), lab.story(run)
    assert lab.look(run).message == words
    assert sorted(outcomes.read_all(run)) == [one for one in range(4) if one != rank or how != "kill"]
    lab.until(lambda: not left_of(run), run, 30, "end of every process")


def test_two_nodes_use_the_card_of_each_save_when_stopped_and_go_on_with_one(lab: SlurmLab) -> None:
    whole = lab.start(60, device="cpu")
    run = lab.start(60, nodes=2)
    lab.reaches(run, 6)
    cancel.stop(run)
    assert lab.end(run) == ("stopped", "user")
    stopped = run.read(Outcome)
    assert stopped is not None
    assert (run.checkpoints / f"step-{stopped.step}").is_dir()
    log = run.log.read_text()
    assert log.count("OELM_DEVICE=cuda\nCUDA_VISIBLE_DEVICES=0\n") == 2, log
    submit.resume(run, settings=["nodes=1"])
    assert lab.end(run) == ("finished", "completed")
    assert [made.world_size for made in lab.attempts(run)] == [2, 1]
    assert lab.end(whole) == ("finished", "completed")
    assert lab.value(run) == lab.value(whole)


def test_a_lost_node_is_named_and_the_run_goes_on_elsewhere_from_its_checkpoint(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_STEP", "0.05")
    whole = lab.start(120, "extra=--nodelist=alpha", device="cpu")
    run = lab.start(120, "cpus=1", nodes=2, device="cpu")  # five seconds left at the kill, which looks at every process
    lab.reaches(run, 12)
    lab.cluster.kill_node("beta")
    lab.until(lambda: (run.read(RunState) or RunState(state="")).state == "queued", run)
    state = run.read(RunState)
    assert state is not None
    assert (state.message or "").startswith("Node beta did not answer any more. Queued again, from step 1"), state
    lab.cluster.replace_node("beta")
    assert lab.end(run) == ("finished", "completed"), lab.story(run) + lab.cluster.story()
    first, second = lab.attempts(run)
    assert (first.state, first.reason) == ("stopped", "node_fail")
    assert (second.from_step or 0) >= 10
    assert second.slurm is not None
    assert (second.slurm.restart, second.slurm.nodes) == (1, 2)
    assert lab.end(whole) == ("finished", "completed")
    assert lab.value(run) == lab.value(whole)


def test_a_supervisor_that_is_killed_ends_the_run_at_once(lab: SlurmLab) -> None:
    run = lab.start(SLOW, "cpus=1", nodes=2, device="cpu")
    lab.reaches(run, 2)
    on_beta = [pid for pid in left_of(run) if "SLURMD_NODENAME=beta" in process.read_text(f"/proc/{pid}/environ")]
    [supervisor] = [pid for pid in on_beta if b"launch.slurm.node" in _program(pid)]
    os.kill(supervisor, signal.SIGKILL)
    assert lab.end(run) == ("failed", "signal")
    assert lab.look(run).message == "The supervisor of the ranks on beta was killed by SIGKILL."


def test_torch_trains_over_two_nodes_what_it_trains_in_one_process(
    lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real worker: its ranks meet over gloo at MASTER_ADDR, a port of the first node."""
    monkeypatch.delenv("OELM_WORKER")
    monkeypatch.setenv("OELM_MASTER_ADDR", "localhost")  # both pretend nodes are this machine, whatever its name
    steps = ("train.max_steps=4", "train.log_every=1", "train.eval_every=4", "train.samples=0", "train.threads=1")
    chosen = tiny(GPT, texts(tmp_path / "texts"), "model.dropout=0.0", "train.warmup_steps=0", *steps)
    run = submit.start(RunRequest(chosen, chosen.seed, "cpu", nodes=2, slurm=("cpus=1",), command=("test",)))
    alone = run_folder(tmp_path / "alone", chosen)
    monkeypatch.setenv("OELM_DEVICE", "cpu")
    train_run(alone, StopRequest())  # while the cluster starts
    assert lab.end(run, 120) == ("finished", "completed"), lab.story(run)
    [attempt] = lab.attempts(run)
    assert attempt.slurm is not None
    assert (attempt.slurm.nodes, attempt.world_size) == (2, 2)
    both = [[line for line in figures(one) if line.kind == "train"] for one in (run, alone)]
    assert [line.step for line in both[0]] == [line.step for line in both[1]] == [1, 2, 3, 4]
    for two, one in zip(*both, strict=True):
        assert two.values["tokens"] == one.values["tokens"]
        assert two.values["loss"] == pytest.approx(one.values["loss"], rel=1e-5)


def _program(pid: int) -> bytes:
    """Interpreter and module: not the shell around a supervisor, nor the ranks below it."""
    return b" ".join(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3])
