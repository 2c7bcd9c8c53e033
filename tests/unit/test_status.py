"""What a reader concludes from state.json, outcome.json, the clock and which processes live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oelm_core.launch.ending import Ending, look, stuck_sentence
from oelm_core.launch.run_writer import RunWriter
from oelm_core.launch.worker_exit import DISK_EXIT_CODE, RankEnd, failed_rank, judge, last_words
from oelm_core.runs import outcomes, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunState, Worker, WorkerProgress
from oelm_core.runs.status import Observer, RunStatus, derive, run_status
from oelm_core.runs.store import read_run
from tests.run_factory import experiment, write_run

NOW = 1_000_000.0
RUNNER, WORKER = 100, 200


def reader(*alive: int, host: str = "here", boot: str = "boot-1", now: float = NOW) -> Observer:
    return Observer(host, boot, now, lambda pid, started, booted: pid in alive, lambda pid: False)


def state(**values: Any) -> RunState:
    usual: dict[str, Any] = {
        "state": "running",
        "host": "here",
        "boot_id": "boot-1",
        "pid": RUNNER,
        "started": 1.0,
        "workers": [Worker(WORKER, 2.0)],
        "heartbeat": NOW - 0.5,
    }
    return RunState(**{**usual, **values})


OUTCOME = Outcome("finished", "completed", "best 0.9", 5)


@pytest.mark.parametrize(
    ("written", "outcome", "here", "expected"),
    [
        (state(), None, reader(RUNNER, WORKER), "running"),
        (state(), OUTCOME, reader(RUNNER), "running"),  # the runner lives: it will write the end itself
        (state(), None, reader(WORKER), "stopping"),  # its runner was killed, the worker still saves
        (state(), OUTCOME, reader(), "finished"),
        (state(), None, reader(), "lost"),
        (state(), None, reader(RUNNER, WORKER, boot="boot-2"), "lost"),  # rebooted: the pids are other people's
        (state(), OUTCOME, reader(boot="boot-2"), "finished"),
        (state(state="failed"), OUTCOME, reader(), "failed"),  # what the runner wrote last stands
        (state(), None, reader(host="elsewhere"), "running"),
        (state(), None, reader(host="elsewhere", now=NOW + 100), "unknown"),
        (state(), OUTCOME, reader(host="elsewhere", now=NOW + 100), "finished"),
        (state(state="queued", pid=None, workers=[]), None, reader(), "queued"),
        (state(state="queued", pid=None, workers=[]), None, reader(now=NOW + 11), "lost"),
        (state(state="queued", pid=None, workers=[]), None, reader(now=NOW - 86400), "lost"),  # clock set back a day
        (RunState(state="dancing"), None, reader(), "unknown"),
    ],
)
def test_the_true_state_follows_from_who_lives_and_who_spoke_last(
    written: RunState, outcome: Outcome | None, here: Observer, expected: str
) -> None:
    assert derive(written, outcome, here).state == expected


def test_without_a_state_file_nothing_is_known(tmp_path: Path) -> None:
    assert run_status(RunFolder(tmp_path)).state == "unknown"


def test_an_unknown_run_shows_the_age_of_its_heartbeat() -> None:
    assert derive(state(host="node7"), None, reader(now=NOW + 599.5)).message == "No heartbeat from node7 for 10 min."


def test_a_runner_that_lives_but_is_silent_is_told() -> None:
    status = derive(state(), None, reader(RUNNER, now=NOW + 599.5))
    assert status == ("running", None, "Its runner lives but has said nothing for 10 min.")


def test_a_living_process_is_known_by_its_birth_and_a_reused_pid_is_not() -> None:
    me = process.me()
    assert process.is_alive(me.pid, me.started, me.boot_time)
    assert process.is_alive(me.pid, me.started)
    assert me.started is not None
    assert not process.is_alive(me.pid, me.started + 60, me.boot_time)
    assert not process.is_alive(me.pid, None, me.boot_time)
    assert not process.is_alive(None, me.started)


def test_identity_survives_a_clock_that_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    me = process.me()
    monkeypatch.setattr(process, "boot_time", lambda: (me.boot_time or 0.0) + 3600.0)  # what setting the clock does
    assert process.is_alive(me.pid, me.started, me.boot_time)


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
    assert process.birth(child.pid) is None
    child.wait()


def test_descendants_reach_through_the_generations() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    while len(process.descendants(child.pid)) == 0:
        assert child.poll() is None
    assert child.pid in process.descendants()
    assert set(process.descendants(child.pid)) < set(process.descendants())
    child.communicate()


@pytest.mark.parametrize(
    ("code", "outcome", "conditions", "expected"),
    [
        (0, OUTCOME, {}, ("finished", "completed")),
        (1, OUTCOME, {}, ("finished", "completed")),  # what it said counts for more than its exit code
        (0, Outcome("stopped", "signal"), {"stop_asked": True}, ("stopped", "user")),
        (0, Outcome("stopped", "user"), {}, ("stopped", "signal")),
        (75, Outcome("stopped", "preempted"), {"stop_asked": True}, ("stopped", "preempted")),
        (-9, None, {}, ("failed", "signal")),
        (-9, None, {"kernel_killed": True}, ("failed", "oom")),
        (137, None, {"kernel_killed": True}, ("failed", "oom")),
        (-15, None, {"kernel_killed": True}, ("failed", "signal")),
        (-9, None, {"stop_asked": True}, ("stopped", "user")),
        (-15, None, {"signalled": True}, ("stopped", "signal")),
        (75, None, {}, ("stopped", "preempted")),
        (0, None, {}, ("failed", "error")),
        (3, None, {}, ("failed", "error")),
        (-6, None, {"log_tail": "Watchdog caught collective operation timeout: WorkNCCL\n"}, ("failed", "nccl")),
        (-6, None, {"log_tail": "CUDA error: uncorrectable ECC error encountered\n"}, ("failed", "gpu_fault")),
        (1, None, {"log_tail": "NCCL version 2.21.5+cuda12.4\nValueError\n"}, ("failed", "error")),
        (-9, None, {"log_tail": "CUDA out of memory"}, ("failed", "signal")),
    ],
)
def test_how_a_worker_ended(
    code: int, outcome: Outcome | None, conditions: dict[str, Any], expected: tuple[str, str]
) -> None:
    known: dict[str, Any] = {"stop_asked": False, "signalled": False, "kernel_killed": False, **conditions}
    said = {} if outcome is None else {0: outcome}
    assert judge({0: RankEnd(code)}, said, **known)[:2] == expected


def lost(at: float) -> Outcome:
    return Outcome("failed", "error", "another rank is gone", t=at, consequence=True)


def silence(at: float) -> Outcome:
    return Outcome("failed", "hang", "another rank did not answer for 600 s", t=at, consequence=True)


def oom(at: float) -> Outcome:
    return Outcome("failed", "oom", "out of memory", t=at)


TOLD = RankEnd(-9, 9.0, told=True)


@pytest.mark.parametrize(
    ("ends", "said", "expected", "words"),
    [
        ((RankEnd(1, 5.1), RankEnd(1, 5.0)), {0: lost(5.0), 1: oom(4.9)}, ("failed", "oom"), "out of memory"),
        ((RankEnd(1, 5.1), RankEnd(1, 5.0)), {0: oom(5.0), 1: lost(4.9)}, ("failed", "oom"), "out of memory"),
        ((RankEnd(1, 5.1), RankEnd(1, 5.0)), {0: oom(4.9), 1: Outcome("failed", "data", t=5.0)}, ("failed", "oom"), ""),
        ((RankEnd(1, 5.0), RankEnd(-9, 5.1)), {0: lost(5.0)}, ("failed", "signal"), "Rank 1 was killed by SIGKILL"),
        ((RankEnd(-9, 5.0), RankEnd(1, 5.1)), {1: lost(5.0)}, ("failed", "signal"), "Rank 0 was killed by SIGKILL"),
        # unknown words of a backend, said a moment before the runner saw the other rank dead
        ((RankEnd(1, 5.0), RankEnd(-9, 5.1)), {0: Outcome("failed", "error", t=5.0)}, ("failed", "signal"), "Rank 1"),
        # a rank that aborts does so because the other one failed
        ((RankEnd(1, 5.0), RankEnd(-6, 5.1)), {0: oom(5.0)}, ("failed", "oom"), "out of memory"),
        ((RankEnd(1, 5.0), TOLD), {0: oom(5.0)}, ("failed", "oom"), "out of memory"),
        ((RankEnd(1, 5.0), TOLD), {0: lost(5.0)}, ("failed", "hang"), "Rank 1 did not answer: it is held"),
        ((TOLD, RankEnd(1, 5.0)), {1: silence(5.0)}, ("failed", "hang"), "Rank 0 did not answer. another rank"),
        (
            (RankEnd(3, 5.5, told=True), RankEnd(1, 5.0)),
            {1: lost(5.0)},
            ("failed", "error"),
            "Rank 0 ended with exit code 3",
        ),
        ((TOLD, RankEnd(1, 5.0)), {1: lost(5.0)}, ("failed", "error"), "Rank 0 is gone without a word. another rank"),
        ((RankEnd(0, 5.0), RankEnd(-9, 5.1)), {0: OUTCOME}, ("finished", "completed"), "best"),
        ((RankEnd(0, 5.0), RankEnd(-9, 4.9)), {0: Outcome("stopped", "signal")}, ("failed", "signal"), "Rank 1"),
        ((RankEnd(1, 5.1), RankEnd(1, 5.0)), {0: lost(5.0), 1: lost(5.1)}, ("failed", "error"), "another rank is gone"),
        ((RankEnd(1, 5.1),), {0: lost(5.0)}, ("failed", "error"), "Rank 1 is gone without a word"),  # under srun
    ],
)
def test_of_several_ranks_the_first_that_says_something_of_its_own_is_believed(
    ends: tuple[RankEnd, ...], said: dict[int, Outcome], expected: tuple[str, str], words: str
) -> None:
    end = judge(
        dict(enumerate(ends)),
        said,
        stop_asked=False,
        signalled=False,
        kernel_killed=False,
        ranks=2,
        looks={1: "it is held by SIGSTOP"},
    )
    assert end[:2] == expected
    assert words in (end.message or "")


def test_the_log_of_a_run_without_cards_says_nothing_of_cards() -> None:
    known: dict[str, Any] = {"stop_asked": False, "signalled": False, "kernel_killed": False, "on_cards": False}
    tail = "CUDA error: unspecified launch failure\n"
    assert judge({0: RankEnd(-6)}, {}, log_tail=tail, **known).reason == "signal"
    tail = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes\n"
    assert judge({0: RankEnd(-6)}, {}, log_tail=tail, **known).reason == "oom"


@pytest.mark.parametrize(
    ("said", "silent", "expected"),
    [
        ({0: lost(4.0), 1: oom(5.0)}, [], (1, "Rank 1 failed; the others are being ended.")),
        ({0: lost(4.0)}, [2], (2, "Rank 2 is gone; the others are being ended.")),
        ({1: lost(4.0)}, [], (1, "Rank 1 lost touch with another; all are being ended.")),
        ({0: Outcome("stopped", "user")}, [], None),
    ],
)
def test_while_ranks_are_ended_the_one_that_failed_by_itself_is_named(
    said: dict[int, Outcome], silent: list[int], expected: tuple[int, str] | None
) -> None:
    assert failed_rank(said, silent) == expected


def test_ranks_that_lose_each_other_while_they_are_stopped_were_stopped() -> None:
    ends = {0: RankEnd(1, 5.0, told=True), 1: TOLD}
    assert judge(ends, {0: lost(5.0)}, stop_asked=True, signalled=False, kernel_killed=False, ranks=2)[:2] == (
        "stopped",
        "user",
    )


def test_without_a_runner_readers_believe_the_rank_that_failed_by_itself(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    outcomes.write(folder, 0, lost(5.0))
    outcomes.write(folder, 1, oom(4.9))
    assert (tmp_path / "outcome-rank1.json").exists()
    found = outcomes.last_word(folder)
    assert found is not None
    assert found.reason == "oom"
    outcomes.remove_all(folder)
    assert outcomes.last_word(folder) is None


def test_a_process_that_survives_its_kill_is_named_and_not_signalled_for_ever() -> None:
    ending = Ending()
    ending.by(10.0)
    seconds = [tenth / 10 for tenth in range(6000)]
    kills = [now for now in seconds if ending.kills(now)]
    assert kills[0] == 10.0
    assert 5 < len(kills) < 25
    assert not ending.is_stuck(14.9)
    assert ending.is_stuck(15.1)
    assert str(os.getpid()) in stuck_sentence([os.getpid()], {os.getpid(): "rank 1"})


def test_a_sleep_that_nothing_interrupts_is_told_from_a_process_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeping(state: str) -> str:
        monkeypatch.setattr(process, "stat_fields", lambda pid: [state])
        monkeypatch.setattr(process, "read_text", lambda path: "nfs_wait_bit_killable")
        return look(7)

    assert "uninterruptibly (nfs_wait_bit_killable)" in sleeping("D")
    assert "SIGSTOP" in sleeping("T")
    assert sleeping("S") == ""


def test_the_last_words_of_a_log_go_into_the_message() -> None:
    log = "step 1\nTraceback ...\nValueError: bad batch\n\n---\n"
    assert last_words(log) == "ValueError: bad batch"
    end = judge({0: RankEnd(1)}, {}, stop_asked=False, signalled=False, kernel_killed=False, log_tail=log)
    assert end == RunStatus("failed", "error", "The worker ended with exit code 1: ValueError: bad batch")


def test_processes_are_found_by_their_run_folder(tmp_path: Path) -> None:
    argument = f"--run-folder={tmp_path}"
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", argument], stdin=subprocess.PIPE)
    while not process.with_argument(argument):  # the kernel shows the arguments a moment after exec
        assert child.poll() is None
    assert process.with_argument(argument) == [child.pid]
    child.communicate()
    assert process.with_argument(argument) == []


def test_the_step_of_a_run_that_ended_is_the_one_its_worker_ended_at(tmp_path: Path) -> None:
    """progress.json is written twice a second, so a stopped run stood at 116 where its log said 118."""
    folder = write_run(tmp_path, experiment("a")).folder
    folder.write(WorkerProgress(116, 700))
    outcomes.write(folder, 0, Outcome("stopped", "user", step=118))
    writer = RunWriter(folder)
    writer.take_progress()
    writer.take_last_step()
    assert (writer.state.step, writer.state.total) == (118, 700)
    folder.write(state(step=116, total=700))  # the runner was killed before it could write the end
    assert read_run(folder, reader()).step == 118


def test_a_run_whose_worker_is_held_says_so_and_how_it_goes_on() -> None:
    written = state()
    held = reader(RUNNER, now=NOW)._replace(frozen=lambda pid: pid == written.workers[0].pid)
    status = derive(written, None, held)
    assert status.state == "running"
    assert "Its worker" in (status.message or "")
    assert f"kill -CONT {written.workers[0].pid}" in (status.message or "")


def test_a_worker_that_found_no_room_for_its_last_word_failed_for_the_disk() -> None:
    end = judge({0: RankEnd(DISK_EXIT_CODE)}, {}, stop_asked=False, signalled=False, kernel_killed=False)
    assert (end.state, end.reason) == ("failed", "disk")
