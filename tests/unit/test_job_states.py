"""What Slurm says, understood without a Slurm: parsed answers, verdicts, and readers that ask rarely."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.config import as_dict
from oelm_core.errors import NotFound
from oelm_core.launch import remote_devices
from oelm_core.launch.slurm import commands, job_states, submission
from oelm_core.launch.slurm.commands import JobInfo, JobsAnswer, is_unreachable, plain_words
from oelm_core.launch.slurm.job import Job, current_job
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.schema import Attempt, Outcome, RunRecord, RunState, SlurmJob
from oelm_core.runs.store import Run, read_run
from oelm_tui import cli
from tests import run_factory
from tests.chaos.lab import experiment

JOB = Job("7", 0, 1, "node1", ("0", "1"), 8, 2)


def test_answers_of_squeue_scontrol_and_sacct_mean_the_same() -> None:
    pending, running = commands.parse_squeue(
        "7|PENDING|Dependency|1790000000|1:00:00||afterok:5(unfulfilled),afterany:6|a|b\n"
        "8|RUNNING|None|1790000000|9:59|n[1-2]|(null)|run.1\n"
        "half a line\n"
    )
    assert (pending.id, pending.reason, pending.waits_for, pending.name) == (
        "7",
        "Dependency",
        "afterok:5,afterany:6",
        "a|b",
    )
    assert (running.node, running.left, running.start, running.waits_for) == ("n[1-2]", "9:59", 1790000000.0, "")
    [detailed] = commands.parse_scontrol(
        "scontrol: show job 9\nJobId=9 JobName=run.1 JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9 NodeList=n3 "
        "StartTime=1790000000 Command=/x JobState.sh\n"
    )
    assert (detailed.id, detailed.state, detailed.code, detailed.node) == ("9", "FAILED", "0:9", "n3")
    cancelled, memory = commands.parse_sacct("7|CANCELLED by 1000|0:15|n1|run.1\n8|OUT_OF_ME+|0:125|n2|run.2\n")
    assert (cancelled.state, memory.state) == ("CANCELLED", "OUT_OF_MEMORY")


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        (JobInfo("7", "OUT_OF_MEMORY"), "failed", "oom"),
        (JobInfo("7", "TIMEOUT", "TimeLimit"), "stopped", "timeout"),
        (JobInfo("7", "DEADLINE"), "stopped", "timeout"),
        (JobInfo("7", "PREEMPTED"), "stopped", "preempted"),
        (JobInfo("7", "NODE_FAIL"), "stopped", "node_fail"),
        (JobInfo("7", "BOOT_FAIL"), "stopped", "node_fail"),
        (JobInfo("7", "CANCELLED"), "stopped", "signal"),
        (JobInfo("7", "CANCELLED", "DependencyNeverSatisfied"), "stopped", "dependency"),
        (JobInfo("7", "FAILED", code="0:9"), "failed", "signal"),
        (JobInfo("7", "FAILED", code="2:0"), "failed", "error"),
        (JobInfo("7", "COMPLETED"), "lost", None),
        (JobInfo("7", "SOMETHING_NEW"), "failed", "error"),
    ],
)
def test_every_way_to_end_is_told_apart(job: JobInfo, state: str, reason: str | None) -> None:
    status = job_states.ended(job, stop_asked=False)
    assert (status.state, status.reason) == (state, reason)
    assert "7" in (status.message or "")
    if state == "stopped" and job.state != "CANCELLED":
        assert job_states.ended(job, stop_asked=True).reason == "user"


def test_a_shortened_out_of_memory_is_still_out_of_memory() -> None:
    [job] = commands.parse_sacct("8|OUT_OF_ME+|0:125|n2|run.2\n")
    assert job_states.ended(job, stop_asked=False).reason == "oom"


def test_why_a_job_waits_is_said_with_slurms_own_word_and_the_expected_start() -> None:
    now = time.mktime((2026, 5, 4, 10, 0, 0, 0, 0, -1))
    assert job_states.pending(JobInfo("7", "PENDING", "Priority", now + 5400), now).endswith(
        "(Priority), start expected 11:30"
    )
    assert "2026-05-05 10:00" in job_states.pending(JobInfo("7", "PENDING", "Resources", now + 86400), now)
    assert "limit of its owner (QOSMaxJobsPerUserLimit)" in job_states.pending(
        JobInfo("7", "PENDING", "QOSMaxJobsPerUserLimit"), now
    )
    assert "lower time" in job_states.pending(JobInfo("7", "PENDING", "PartitionTimeLimit"), now)
    assert (
        job_states.running(JobInfo("7", "RUNNING", left="3:20:00", node="n4")) == "Slurm job 7 runs on n4, 3:20:00 left"
    )


def test_a_job_in_a_lane_names_the_one_before_it_and_the_run_it_was_told_to_wait_for() -> None:
    lane = commands.parse_squeue(
        "5|RUNNING|None|0|1:00|n1|(null)|a\n"
        "6|PENDING|Dependency|N/A|1:00||afterany:5(unfulfilled)|b\n"
        "7|PENDING|Dependency|N/A|1:00||afterany:5(unfulfilled),afterany:6(unfulfilled)|c\n"
        "8|PENDING|Dependency|N/A|1:00||afterok:5(unfulfilled),afterany:5(unfulfilled),afterany:6(unfulfilled),"
        "afterany:7(unfulfilled)|d\n"
    )
    others = {job.id: job for job in lane}
    named = [job_states.directly(job, others).waits_for for job in lane]
    assert named == ["", "afterany:5", "afterany:6", "afterok:5,afterany:7"]
    assert job_states.directly(lane[2], {"7": lane[2]}) == lane[2]  # nothing is known of the others: all are named


def test_silence_is_no_refusal() -> None:
    assert is_unreachable("Unable to contact slurm controller (connect failure)")
    assert is_unreachable("Socket timed out on send/recv operation")
    assert not is_unreachable("Invalid partition name specified")
    assert plain_words("sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more information\n") == (
        "unrecognized option '--x'"
    )


def test_a_run_is_queued_again_only_while_allowed_and_getting_on() -> None:
    assert JOB.why_not_again(progressed=True) is None
    assert "without a single new step" in (JOB.why_not_again(progressed=False) or "")
    assert "2 times" in (JOB._replace(restart=2).why_not_again(progressed=True) or "")


def test_only_the_jobs_own_runner_believes_it_is_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert current_job("run-1") is None
    monkeypatch.setenv("OELM_JOB_OF", "run-1")
    assert current_job("run-2") is None
    job = current_job("run-1")
    assert job is not None
    assert (job.id, job.restart, job.nodes, job.cards) == ("7", 0, 1, ())


@pytest.mark.parametrize(
    ("environment", "cards"),
    [
        ({"SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}, ("0",)),
        ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, ("0", "1")),
        ({"OELM_CARDS_ASKED": "1", "CUDA_VISIBLE_DEVICES": "MIG-a"}, ("MIG-a",)),
        ({"OELM_CARDS_ASKED": "0", "CUDA_VISIBLE_DEVICES": "0"}, ()),  # from the login node
    ],
)
def test_a_job_trains_on_the_cards_it_was_given_however_slurm_says_so(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], cards: tuple[str, ...]
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SLURM_JOB_ID": "7", "OELM_JOB_OF": "run-1", **environment}.items():
        monkeypatch.setenv(name, value)
    job = current_job("run-1")
    assert job is not None
    assert job.cards == cards
    assert job.devices("auto").kind == ("cuda" if cards else "cpu")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SLURM_GPUS_ON_NODE": "1"}, "SLURM_GPUS_ON_NODE=1"),
        ({"OELM_CARDS_ASKED": "2"}, "it asked for 2"),
        ({"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "SLURM_JOB_GPUS=0"),
    ],
)
def test_a_job_whose_cards_cannot_be_seen_is_refused_instead_of_training_on_processors(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SLURM_JOB_ID": "7", "OELM_JOB_OF": "run-1", **environment}.items():
        monkeypatch.setenv(name, value)
    job = current_job("run-1")
    assert job is not None
    with pytest.raises(NotFound, match=words) as refused:
        job.devices("auto")
    assert "--device cpu" in str(refused.value)
    assert job.devices("cpu").kind == "cpu"


def test_only_a_later_life_of_the_same_job_takes_its_run_over_unasked() -> None:
    again = JOB._replace(restart=1)
    assert again.takes_over(Attempt(slurm=SlurmJob("7", 0)))
    assert not JOB.takes_over(Attempt(slurm=SlurmJob("7", 0)))
    assert not again.takes_over(Attempt())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    config = as_dict(experiment())
    record = RunRecord(preset="stand-in", config=config, seed=1, created=time.time(), launcher="slurm")
    state = RunState(state="queued", launcher="slurm", heartbeat=time.time() - 500)
    folder = create(tmp_path / "runs", record, state)
    intent = submission.intend(folder, None)
    submission.record(folder, replace(intent, job="7", sent=time.time() - 500))
    return read_run(folder)


class Pretend(job_states.SlurmCache):
    """Slurm as the test has it."""

    def __init__(self, *jobs: JobInfo, problem: str | None = None) -> None:
        super().__init__()
        self.jobs, self.problem, self.questions = jobs, problem, 0

    def about(self, ids: list[str], names: list[str], *, fresh: bool = False) -> JobsAnswer:
        self.questions += 1
        return JobsAnswer({job.id: job for job in self.jobs}, self.problem, frozenset([*ids, *names]))


def seen(run: Run, *jobs: JobInfo, problem: str | None = None) -> tuple[str, str | None]:
    [after] = job_states.overlay([run], Pretend(*jobs, problem=problem))
    return after.state, after.reason


def test_a_queued_run_stays_queued_without_a_runner_until_slurm_says_otherwise(run: Run) -> None:
    assert run.state == "queued"
    assert seen(run, problem="no answer") == ("queued", None)
    assert seen(run, JobInfo("7", "PENDING", "Resources")) == ("queued", None)
    assert seen(run, JobInfo("7", "RUNNING", node="n1")) == ("queued", None)
    assert seen(run) == ("lost", None)
    slurm = Pretend()
    job_states.overlay([run], slurm)
    assert slurm.questions == 0  # nobody asks for ever about a job that Slurm forgot


def test_slurms_last_word_is_kept_and_not_asked_for_again(run: Run) -> None:
    assert seen(run, JobInfo("7", "OUT_OF_MEMORY")) == ("failed", "oom")
    slurm = Pretend()
    [after] = job_states.overlay([run], slurm)
    assert (after.state, after.reason, slurm.questions) == ("failed", "oom", 0)
    run.folder.write(RunState(state="running", heartbeat=time.time() + 1, host="elsewhere"))
    assert seen(read_run(run.folder), JobInfo("7", "RUNNING", node="n1")) == ("running", None)


def test_the_workers_own_word_counts_more_than_slurms(run: Run) -> None:
    run.folder.write(Outcome("failed", "nonfinite", "loss is NaN"))
    assert seen(run, JobInfo("7", "FAILED", code="1:0")) == ("failed", "nonfinite")


def test_a_run_on_a_silent_node_is_running_when_slurm_says_so(run: Run) -> None:
    run.folder.write(RunState(state="running", host="n9", boot_id="x", pid=5, heartbeat=time.time() - 300))
    stale = read_run(run.folder)
    assert stale.state == "unknown"
    assert seen(stale, JobInfo("7", "RUNNING", node="n9")) == ("running", None)
    assert seen(stale, JobInfo("7", "NODE_FAIL", node="n9")) == ("stopped", "node_fail")


def test_a_stop_by_signal_may_be_a_preemption_that_starts_again(run: Run) -> None:
    now = time.time()
    run.folder.write(RunState(state="stopped", reason="signal", heartbeat=now, ended=now - 5, attempt=1))
    stopped = read_run(run.folder)
    assert seen(stopped, JobInfo("7", "PENDING", "BeginTime")) == ("queued", None)
    assert seen(stopped, JobInfo("7", "COMPLETING")) == ("stopping", "signal")
    assert seen(stopped, JobInfo("7", "RUNNING", start=time.time(), node="n1")) == ("queued", None)
    assert seen(stopped, JobInfo("7", "PREEMPTED")) == ("stopped", "preempted")


def test_what_the_run_said_stands_before_what_slurm_says(run: Run) -> None:
    def message(*jobs: JobInfo, problem: str | None = None) -> str | None:
        return job_states.overlay([read_run(run.folder)], Pretend(*jobs, problem=problem))[0].message

    queued = RunState(state="queued", launcher="slurm", message="Node b did not answer. Queued again, from step 150.")
    run.folder.write(replace(queued, attempt=1, heartbeat=time.time()))
    again = "Node b did not answer. Queued again, from step 150; Slurm job 7 "
    assert message(JobInfo("7", "PENDING", "BeginTime")) == f"{again}may start later (BeginTime)"
    assert message(JobInfo("7", "RUNNING", node="n1")) == f"{again}runs on n1; it is starting"
    ending = RunState(state="stopping", message="Rank 1 failed; the others are being ended.", host="n1", boot_id="x")
    run.folder.write(replace(ending, pid=5, heartbeat=time.time()))
    said = "Rank 1 failed; the others are being ended; "
    assert message(JobInfo("7", "RUNNING", node="n1")) == f"{said}Slurm job 7 runs on n1"
    assert message(problem="no answer") == f"{said}Slurm does not answer (no answer)"


def test_many_readers_ask_one_question_every_few_seconds_and_rarely_while_slurm_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, calls = [0.0], []

    def about(ids: list[str], patience: float) -> JobsAnswer:
        calls.append(ids)
        return JobsAnswer({}, "no answer" if len(calls) > 1 else None)

    monkeypatch.setattr(job_states, "about_jobs", about)
    cache = job_states.SlurmCache(lambda: clock[0])
    for now, expected in ((0.0, 1), (1.0, 1), (2.9, 1), (3.1, 2), (10.0, 2), (18.2, 3)):
        clock[0] = now
        cache.about(["7"], [])
        assert len(calls) == expected


def test_of_two_submissions_at_once_only_one_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_numbers", lambda folder: [])  # both looked before either wrote
    with pytest.raises(Exception, match="just submitted"):
        submission.intend(run.folder, None)


def test_devices_of_other_nodes_come_from_the_workers_own_samples(run: Run) -> None:
    run.folder.metrics.write_text(
        '{"t": 1.0, "step": 1, "kind": "system", "util": 10.0}\n'
        '{"t": 2.0, "step": 2, "kind": "system", "util": 93.0, "memory": 5e9, "memory_reserved": 6e9}\n'
        '{"t": 3.0, "step": 3, "kind": "train", "loss": 1.0}\n{"t": 4.0, "kind": "system", "ut'
    )
    there = replace(run, state="running", host="n4", devices=("gpu:2",))
    [card] = remote_devices.remote_cards(
        [there, replace(there, host="here"), replace(there, state="finished")], here="here"
    )
    assert (card.node, card.device, card.utilisation, card.memory_used, card.measured) == ("n4", "gpu:2", 93, 6e9, 2.0)
    run.folder.metrics.write_text('{"t": 5.0, "step": 5, "kind": "system", "util": null, "memory": 5e9}\n')
    [card] = remote_devices.remote_cards([there], here="here")
    assert (card.utilisation, card.memory_used) == (None, 5e9)


def test_the_runner_in_a_job_pays_for_no_pydantic() -> None:
    code = "import sys, oelm_core.launch.runner, oelm_core.launch.slurm.job; print('pydantic' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_a_folder_without_slurm_is_read_from_its_files(tmp_path: Path) -> None:
    assert job_states.run_status(RunFolder(tmp_path)).state == "unknown"


def test_a_comparison_sees_what_slurm_knows(tmp_path, monkeypatch, capsys):
    """`oelm compare` has the states that `oelm runs` has."""
    finished = run_factory.write_run(tmp_path / "runs", run_factory.experiment("arm"))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    ended = replace(read_run(RunFolder(finished.path)), state="stopped", reason="timeout")
    monkeypatch.setattr("oelm_core.launch.launcher.with_job_states", lambda runs: [ended for _ in runs])
    for wanted in ("--all", ended.id):
        monkeypatch.setattr("sys.argv", ["oelm", "compare", wanted])
        cli.main()
        assert f"{ended.id}: stopped (timeout), so not complete" in capsys.readouterr().out
