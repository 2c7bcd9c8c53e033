"""Real runners with a stand-in worker: starting, stopping, resuming, deleting, and every way to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oelm_core.errors import NotFound, Refused
from oelm_core.launch import local
from oelm_core.runs import attempts, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.ledger import read_ledger
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Attempt, MachineState, Outcome, Result, RunRecord, RunState
from oelm_core.runs.status import LIVE, run_status
from oelm_core.runs.store import list_runs, read_run
from tests import needs
from tests.chaos.lab import Lab, experiment, open_lab
from tests.functional.oelm import Oelm

pytestmark = pytest.mark.xdist_group("processes")
SLOW = 100_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as opened:
        yield opened


def attempt(run: RunFolder, number: int) -> Attempt:
    found = attempts.read(run, number)
    assert found is not None
    return found


def before(run: RunFolder) -> MachineState:
    """The machine as it was before the first attempt's worker."""
    machine = attempt(run, 1).machine
    assert machine is not None
    return machine.before


def test_a_run_finishes_and_writes_down_everything_about_it(lab: Lab) -> None:
    run = lab.start(steps=12)
    assert lab.end(run) == ("finished", "completed", None)
    described, state, made = run.read(RunRecord), lab.state(run), attempt(run, 1)
    assert described
    assert described.id == run.id
    assert described.config["seed"] == described.seed == 1
    assert (state.step, state.total, state.workers) == (12, 12, [])
    assert (made.exit_code, made.signal, made.reason, made.threads) == (0, None, "completed", 1)
    assert made.machine is not None
    assert made.machine.after is not None
    assert (before(run).t or 0.0) < (made.machine.after.t or 0.0)
    assert lab.held() == []
    assert read_run(run).metric_value == json.loads((run.path / "result.json").read_text())["metric"]["value"]


def test_the_run_outlives_the_process_that_started_it_killed_with_its_whole_session(lab: Lab) -> None:
    script = (
        "import os, time; from tests.chaos.lab import Lab; from pathlib import Path\n"
        f"print(Lab(Path({str(lab.folder)!r})).start(steps={SLOW}).path, flush=True); time.sleep(600)"
    )
    root = Path(__file__).resolve().parents[2]
    launcher = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=root
    )
    assert launcher.stdout
    path = launcher.stdout.readline().strip()
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    run = list_runs()[0]
    assert str(run.folder.path) == path
    lab.worker(run.folder)
    reached = lab.step(run.folder)
    lab.until(lambda: lab.step(run.folder) > reached, what="another step after the launcher's death")
    assert run_status(run.folder).state in ("starting", "running")


def test_stopping_saves_and_says_that_the_user_asked(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    local.stop(run)
    assert lab.end(run)[:2] == ("stopped", "user")
    saved = attempts.newest_checkpoint_step(run)
    outcome = run.read(Outcome)
    assert outcome is not None
    assert saved == outcome.step > 0
    state = run.read(RunState)
    assert state is not None
    assert state.step == outcome.step
    assert lab.all_gone()


def test_the_runner_tells_the_user_of_the_end_and_writes_down_where_that_failed(lab: Lab) -> None:
    told = lab.folder / "told"
    (lab.root.parent).mkdir(parents=True, exist_ok=True)
    settings = f'notify: echo "$OELM_RUN $OELM_STATE" >> {told}; echo the post is closed >&2; exit 3\n'
    (lab.root.parent / "settings.yaml").write_text(settings)
    run = lab.start(steps=3)
    assert lab.end(run).state == "finished"
    assert lab.all_gone()
    assert told.read_text() == f"{run.id} finished\n"
    assert "notify failed with exit code 3: the post is closed" in run.log.read_text()


def test_a_signal_without_a_stop_request_is_not_called_the_users_wish(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    os.kill(lab.runner(run), signal.SIGTERM)
    assert lab.end(run)[:2] == ("stopped", "signal")


def test_stop_now_kills_a_worker_that_does_not_listen(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STUBBORN", "1")
    run = lab.start(steps=SLOW)
    lab.worker(run)
    local.stop(run, now=True)
    assert lab.end(run)[:2] == ("stopped", "user")
    assert attempt(run, 1).signal == "SIGKILL"
    assert lab.all_gone()


def test_after_the_grace_a_worker_that_does_not_listen_is_killed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STUBBORN", "1")
    monkeypatch.setenv("OELM_GRACE", "0.5")
    run = lab.start(steps=SLOW)
    lab.worker(run)
    local.stop(run)
    assert lab.end(run)[:2] == ("stopped", "user")


def test_a_frozen_worker_and_a_frozen_runner_can_be_stopped(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    os.kill(lab.worker(run), signal.SIGSTOP)
    os.kill(lab.runner(run), signal.SIGSTOP)
    local.stop(run)
    assert lab.end(run)[:2] == ("stopped", "user")


def test_a_resumed_run_ends_at_the_very_same_result_in_the_same_folder(lab: Lab) -> None:
    whole, broken = lab.start(steps=40), lab.start(steps=40)
    lab.until(lambda: lab.step(broken) >= 10, what="step 10")
    local.stop(broken)
    assert lab.end(broken).state == "stopped"
    local.resume(broken)
    assert lab.end(broken).state == lab.end(whole).state == "finished"
    assert broken.read(Result) == whole.read(Result) is not None
    assert [line.step for line in read_metrics(broken.metrics, "train")] == list(range(1, 41))
    assert attempts.numbers(broken) == [1, 2]
    assert (attempt(broken, 2).from_step or 0) >= 10
    assert broken.log.read_text().count("starts at step") == 2
    told = [event for event in read_ledger(lab.root).events if event.run == broken.id]
    assert [(event.event, event.state, event.reason) for event in told] == [
        *(("launched", None, None), ("ended", "stopped", "user")),
        *(("resumed", None, None), ("ended", "finished", "completed")),
    ]
    assert (told[-1].preset, told[-1].seed, told[-1].metric) == ("stand-in", 1, "accuracy")
    assert told[-1].value == read_run(broken).metric_value is not None


@needs.two_cores
def test_a_run_is_resumed_with_another_number_of_processes_when_asked_and_keeps_it(lab: Lab) -> None:
    def stopped(run: RunFolder, past: int) -> int:
        lab.until(lambda: lab.step(run) > past, what="a step")
        local.stop(run)
        assert lab.end(run).state == "stopped"
        return lab.state(run).step

    oelm, run = Oelm(lab.folder / "home"), lab.start(arm=experiment(steps=SLOW, threads=None))
    config = run.read(RunRecord)
    step = stopped(run, 0)
    too_many = oelm.refusal("resume", run.id, "--per-run", "100000", code=2)
    assert "more processes than the" in too_many
    assert "does not run under Slurm; leave --nodes out" in oelm.refusal("resume", run.id, "--nodes", "2", code=2)
    assert attempts.numbers(run) == [1]
    resumed = oelm("resume", run.id, "--per-run", "2")
    assert (resumed.returncode, resumed.stdout.strip()) == (0, run.id), resumed.stderr
    step = stopped(run, step)
    local.resume(run)  # as it was left
    step = stopped(run, step)
    local.resume(run, per_run=1)
    stopped(run, step)
    made = [attempt(run, number) for number in attempts.numbers(run)]
    assert [(one.world_size, one.per_run) for one in made] == [(1, 1), (2, 2), (2, 2), (1, 1)]
    assert [one.threads for one in made] == [made[0].threads, *2 * [(made[0].threads or 0) // 2], made[0].threads]
    assert run.read(RunRecord) == config  # what was asked for at launch, its batch too


def test_resuming_is_refused_while_alive_and_when_finished(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    with pytest.raises(Refused, match="stop it before"):
        local.resume(run)
    local.stop(run)
    lab.end(run)
    done = lab.start(steps=3)
    lab.end(done)
    with pytest.raises(Refused, match="has finished"):
        local.resume(done)


def test_of_two_resumes_at_once_only_one_claims_the_attempt(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    local.stop(run, now=True)
    lab.end(run)
    command = [sys.executable, "-m", "oelm_core.launch.runner", f"--run-folder={run.path}"]
    rivals = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(3)]
    lab.until(lambda: sum(rival.poll() is not None for rival in rivals) == 2, what="the end of two of three")
    assert sorted(rival.poll() for rival in rivals if rival.poll() is not None) == [4, 4]
    assert attempts.numbers(run) == [1, 2]
    lab.until(lambda: run_status(run).state in LIVE, what="the third, which writes its state after the claim")
    local.stop(run, now=True)
    assert lab.end(run).state == "stopped"
    for rival in rivals:
        rival.wait()


@pytest.mark.parametrize(
    ("how", "state", "reason", "words"),
    [
        ("kill", "failed", "signal", "SIGKILL"),
        ("exit:3", "failed", "error", "exit code 3"),
        ("raise", "failed", "error", "asked to fail"),
        ("silent", "failed", "error", "without saying"),
        ("outcome:oom", "failed", "oom", "as asked"),
    ],
)
def test_every_way_to_end_is_told_apart(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str, state: str, reason: str, words: str
) -> None:
    monkeypatch.setenv("STAND_IN_FAIL", how)
    run = lab.start(steps=SLOW)
    end = lab.end(run)
    assert end[:2] == (state, reason)
    assert words in (end.message or "")
    assert lab.held() == []


def test_a_killed_runner_takes_its_worker_along_after_a_checkpoint_and_the_run_resumes(lab: Lab) -> None:
    run = lab.start(steps=60)
    worker = lab.worker(run)
    os.kill(lab.runner(run), signal.SIGKILL)
    lab.until(lambda: process.birth(worker) is None, what="the worker's end")
    assert lab.end(run).state in ("stopped", "finished")  # the worker's own last word
    assert lab.held() == []
    if run_status(run).state != "finished":
        local.resume(run)
    assert lab.end(run).state == "finished"


def test_runner_and_worker_killed_at_once_leave_a_lost_run_that_resumes(lab: Lab) -> None:
    run = lab.start(steps=60)
    worker, runner = lab.worker(run), lab.runner(run)
    for pid in (runner, worker):
        os.kill(pid, signal.SIGKILL)
    assert lab.end(run).state == "lost"
    assert lab.held() == []
    local.resume(run)
    assert lab.end(run).state == "finished"
    assert [attempt(run, number).state for number in (1, 2)] == ["lost", "finished"]


def test_hang_up_ends_nobody(lab: Lab) -> None:
    run = lab.start(steps=60)
    for pid in (lab.worker(run), lab.runner(run)):
        os.kill(pid, signal.SIGHUP)
    assert lab.end(run).state == "finished"


def test_stopping_a_run_that_waits_just_ends_it(lab: Lab) -> None:
    cores = len(os.sched_getaffinity(0))
    first = [lab.start(steps=SLOW) for _ in range(cores)]
    waiting = lab.start(steps=3)
    lab.until(lambda: "used by run" in (run_status(waiting).message or ""), what="the reason for waiting")
    local.stop(waiting)
    assert lab.end(waiting)[:2] == ("stopped", "user")
    assert all(run_status(run).state in ("waiting", "starting", "running") for run in first)


def test_deleting_spares_live_runs_and_everything_outside_the_runs_folder(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    with pytest.raises(Refused, match="only a run that is over"):
        local.delete(run)
    local.stop(run, now=True)
    lab.end(run)
    outside = lab.folder / "precious"
    outside.mkdir()
    link = lab.root / "link-s1-20260101-000000-0000"
    link.symlink_to(outside)
    for path in (outside, link, lab.root):
        with pytest.raises(Refused, match="left alone"):
            local.delete(type(run)(path))
    local.delete(run)
    assert not run.path.exists()
    assert outside.is_dir()
    told = read_ledger(lab.root)
    assert [event.event for event in told.events] == ["launched", "ended", "deleted"]
    assert (told.events[-1].state, told.events[-1].reason, told.breaks) == ("stopped", "user", [])


def test_a_run_after_another_waits_for_it_and_stops_when_that_one_fails(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = lab.start(steps=10)
    after_good = lab.start(steps=3, after=good.id)
    monkeypatch.setenv("STAND_IN_FAIL", "exit:1")
    bad = lab.start(steps=SLOW)
    monkeypatch.delenv("STAND_IN_FAIL")
    after_bad, regardless = lab.start(steps=3, after=bad.id), lab.start(steps=3, after=bad.id, after_any=True)
    assert lab.end(after_good).state == "finished"
    assert (before(after_good).t or 0.0) >= (lab.state(good).ended or 0.0) > 0
    end = lab.end(after_bad)
    assert end[:2] == ("stopped", "dependency")
    assert bad.id in (end.message or "")
    assert lab.end(regardless).state == "finished"


def test_waiting_for_a_run_that_is_not_there_is_refused_and_leaves_no_folder(lab: Lab) -> None:
    with pytest.raises(NotFound):
        lab.start(steps=3, after="nobody")
    assert not lab.root.exists() or not list(lab.root.iterdir())


def test_runs_queued_on_two_cores_all_finish_in_the_order_they_came(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP", "0.001")
    cores = len(os.sched_getaffinity(0))
    runs = [lab.start(steps=2) for _ in range(cores * 5)]
    for run in runs:
        assert lab.end(run).state == "finished"
    began = [before(run).t or 0.0 for run in runs]
    for earlier, later in zip(began, began[cores:], strict=False):
        assert earlier < later


def test_the_runner_imports_neither_torch_nor_pydantic_and_stays_small(lab: Lab) -> None:
    cores = len(os.sched_getaffinity(0))
    for _ in range(cores):
        lab.start(steps=SLOW)
    waiting = lab.start(steps=SLOW)
    lab.until(lambda: "used by run" in (run_status(waiting).message or ""), what="the reason for waiting")
    status = process.read_text(f"/proc/{lab.runner(waiting)}/status")
    resident = int(status.partition("VmRSS:")[2].split()[0])
    assert resident < 20_000
    maps = process.read_text(f"/proc/{lab.runner(waiting)}/maps")
    assert "torch" not in maps
    assert "pydantic" not in maps


def test_starting_imports_no_torch(lab: Lab) -> None:
    script = (
        "import sys, oelm_core.devices.machine, oelm_core.launch.launcher, oelm_core.launch.local\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas', 'numpy', 'scipy'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_full_or_forbidden_disk_is_one_sentence_and_leaves_nothing(lab: Lab) -> None:
    lab.root.parent.mkdir(parents=True)
    lab.root.write_text("a file where the runs folder should be")
    with pytest.raises(Refused, match="cannot create a run"):
        lab.start(steps=3)
    assert lab.all_gone()


def test_a_runner_that_cannot_write_ends_the_run_with_a_word_and_gives_the_device_back(lab: Lab) -> None:
    blocker = lab.start(steps=SLOW, arm=experiment(steps=SLOW, threads=1000))  # takes every core
    lab.worker(blocker)
    run = lab.start(steps=SLOW)
    lab.until(lambda: "used by run" in (run_status(run).message or ""), what="the wait")
    shutil.rmtree(run.attempts)
    run.attempts.write_text("no folder any more: writing the attempt must fail")
    local.stop(blocker, now=True)
    end = lab.end(run, 90)
    assert end[:2] == ("failed", "error")
    assert "could not continue" in (end.message or "")
    assert lab.held() == []
    assert lab.all_gone()


def test_the_heartbeat_is_younger_than_two_seconds_while_it_runs(lab: Lab) -> None:
    run = lab.start(steps=SLOW)
    lab.worker(run)
    first = heartbeat(lab, run)
    later = lab.until(lambda: heartbeat(lab, run) > first, 30, "the next heartbeat")
    assert later
    assert abs(time.time() - heartbeat(lab, run)) < 30


def heartbeat(lab: Lab, run: RunFolder) -> float:
    beat = lab.state(run).heartbeat
    assert beat is not None
    return beat
