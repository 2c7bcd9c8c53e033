"""Ranks on several nodes without a Slurm: what the nodes say, and what the runner makes of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from oelm_core.launch import worker_exit
from oelm_core.launch.slurm.job import Job
from oelm_core.launch.slurm.spread import NodeWord, Place, SpreadRanks
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome

JOB = Job("7", 0, 2, "node1", (), 8, 2)
HELLO = (NodeWord(0, "a"), NodeWord(1, "b"))
DONE = (NodeWord(0, "a", done=True), NodeWord(1, "b", done=True))
LOST = Outcome("failed", "error", "rank 0: another rank is gone.", 5, consequence=True, t=10.0)


def spread(*words: NodeWord) -> SpreadRanks:
    ranks = SpreadRanks(JOB, 4, lambda: None)
    ranks._srun = 4711  # as if it were started
    for word in words:
        ranks.heard(msgspec.json.encode(word) + b"\n")
    return ranks


def judged(ranks: SpreadRanks, said: dict[int, Outcome], log: str = "", *, stop: bool = False) -> tuple[str, ...]:
    end = worker_exit.judge(
        ranks.ends,
        said,
        stop_asked=stop,
        signalled=False,
        kernel_killed=ranks.kernel_killed,
        log_tail=log,
        ranks=4,
        looks=ranks.looks,
        trouble=ranks.trouble(log),
    )
    return end.state, end.reason or "", end.message or ""


def test_one_srun_starts_a_supervisor_on_each_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    monkeypatch.setenv("OELM_NODE_PYTHON", "apptainer exec 'my lab.sif' python")
    monkeypatch.setenv("OELM_MASTER_ADDR", "10.0.0.5")
    command = spread().command(Place(RunFolder(tmp_path), tmp_path, None, "cuda", 2), 4711)
    assert Path(command[0]).name == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=8"} <= set(command)
    at = command.index("apptainer")
    assert command[at : at + 5] == ["apptainer", "exec", "my lab.sif", "python", "-m"]
    assert {"--here=2", "--meet=10.0.0.5:4711", "--kind=cuda", "--threads=2"} <= set(command[at:])


def test_words_come_in_pieces_and_among_others() -> None:
    ranks = spread()
    line = msgspec.json.encode(NodeWord(1, "b", 3, -9, 12.0, kernel_killed=True)) + b"\n"
    ranks.heard(b"Welcome to node b\n" + line[:9])
    assert ranks.living() == [0, 1, 2, 3]
    ranks.heard(line[9:])
    assert ranks.living() == [0, 1, 2]
    assert ranks.ends[3] == worker_exit.RankEnd(-9, 12.0, False)
    assert ranks.kernel_killed


def test_a_killed_rank_is_named_with_its_number_among_all() -> None:
    ends = (NodeWord(1, "b", 3, -9, 9.0), *(NodeWord(rank // 2, "", rank, 1, 11.0) for rank in range(3)))
    said = dict.fromkeys(range(3), LOST)
    assert judged(spread(*HELLO, *ends, *DONE), said) == ("failed", "signal", "Rank 3 was killed by SIGKILL.")


def test_a_silent_node_is_named_unless_a_rank_had_failed_by_itself_or_a_stop_was_asked_for() -> None:
    ranks = spread(*HELLO, NodeWord(0, "a", 0, 1, 11.0), NodeWord(0, "a", 1, 1, 11.0), DONE[0])
    assert judged(ranks, {0: LOST, 1: LOST}) == ("stopped", "node_fail", "Node b did not answer any more.")
    full = Outcome("failed", "oom", "rank 2: out of memory", 5, t=9.0)
    assert judged(ranks, {0: LOST, 1: LOST, 2: full}) == ("failed", "oom", "rank 2: out of memory")
    assert judged(ranks, {0: LOST, 1: LOST}, stop=True)[:2] == ("stopped", "user")


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ((), ("failed", "error", "srun could not start the ranks: srun: error: Unable to create step")),
        ((NodeWord(1, "b", gone=127),), ("failed", "error", "The ranks on b could not be started (exit code 127): ")),
        ((*HELLO, NodeWord(1, "b", gone=137)), ("failed", "signal", "The supervisor of the ranks on b was killed by")),
        ((HELLO[0], NodeWord(1, "b", problem="Slurm gave 0 of 2 cards.")), ("failed", "config", "Slurm gave 0 of 2")),
    ],
)
def test_what_went_wrong_before_any_rank_is_said(words: tuple[NodeWord, ...], end: tuple[str, str, str]) -> None:
    ranks = spread(*words)
    state, reason, message = judged(ranks, {}, "srun: error: Unable to create step")
    assert (state, reason) == end[:2]
    assert message.startswith(end[2])
    if words:
        assert ranks.missing == [2, 3]
