"""Runs on a real Slurm: submitted, finished, failed, cancelled, requeued, chained, spread over nodes."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.errors import BadInput, Refused
from oelm_core.launch import launcher
from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import cancel, commands, job_states, submission, submit
from oelm_core.launch.slurm.site import discover
from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunRecord, RunState
from oelm_core.runs.status import run_status
from oelm_core.runs.store import list_runs, read_run
from tests.chaos.lab import experiment
from tests.integration.conftest import SlurmLab, open_lab
from tests.integration.mini_slurm import MiniSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
SLOW = 100_000


@pytest.fixture(scope="module")
def at_the_limit(cluster: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SlurmLab, RunFolder]]:
    """A run with a time limit of a minute, started before the other tests because Slurm takes its time to notice."""
    with pytest.MonkeyPatch.context() as patch:
        lab = open_lab(tmp_path_factory.mktemp("limit") / "home", cluster, patch)
        patch.setenv("STAND_IN_STEP", "0.1")
        run = lab.start(400, "time=1", "signal_seconds=60", device="cpu")
    yield lab, run
    lab.close()


def test_a_job_finishes_on_the_card_slurm_gave_it(lab: SlurmLab, at_the_limit: object) -> None:
    run = lab.start(12)
    assert lab.end(run) == ("finished", "completed")
    [made] = lab.attempts(run)
    assert made.slurm is not None
    assert made.slurm.job == lab.job(run)
    assert made.slurm.node in ("alpha", "beta")
    assert made.devices == ["gpu:0"]
    assert made.leases == []
    assert (run.read(RunRecord) or RunRecord(config={})).launcher == "slurm"
    assert "finished" not in (submission.slurm_dir(run) / "job.log").read_text()


@pytest.mark.parametrize("form", ["gpus-per-node", "gpus"])
def test_slurm_takes_the_other_forms_of_asking_and_a_python_of_several_words(lab: SlurmLab, form: str) -> None:
    run = lab.start(3, f"cards_by={form}", "memory_per_card=100M", f"python=/usr/bin/env {sys.executable}")
    assert lab.end(run) == ("finished", "completed")
    assert lab.attempts(run)[0].devices == ["gpu:0"]


def test_the_script_in_the_folder_can_be_edited_and_submitted_by_hand(lab: SlurmLab) -> None:
    run = lab.start(SLOW, device="cpu")
    lab.reaches(run, 5)
    cancel.stop(run)
    assert lab.end(run) == ("stopped", "user")
    script = submission.script_path(run)
    script.write_text(script.read_text().replace("exec ", "echo edited by hand\nexec "))
    lab.cluster.call("sbatch", str(script), check=True)
    lab.until(lambda: len(lab.attempts(run)) == 2, run)
    lab.until(lambda: lab.look(run).state == "running", run)
    assert "edited by hand" in (submission.slurm_dir(run) / "job.log").read_text()
    again = lab.attempts(run)[1].slurm
    assert again is not None
    assert again.job == lab.job(run)
    cancel.stop(run, now=True)
    assert lab.end(run) == ("stopped", "user")


def test_a_worker_that_fails_or_is_killed_is_told_apart(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_FAIL", "raise")
    failed = lab.start(10, device="cpu")
    monkeypatch.setenv("STAND_IN_FAIL", "kill")
    killed = lab.start(10, device="cpu")
    assert lab.end(failed) == ("failed", "error")
    assert "asked to fail" in (lab.look(failed).message or "")
    assert lab.end(killed) == ("failed", "signal")


def test_a_pending_job_says_why_and_is_cancelled_without_a_runner(lab: SlurmLab) -> None:
    run = lab.start(10, "partition=closed", device="cpu")
    lab.until(lambda: "PartitionDown" in (lab.look(run).message or ""), run)
    assert run_status(run).state == lab.look(run).state == "queued"
    cancel.stop(run)
    assert lab.end(run) == ("stopped", "user")
    assert run_status(run).reason == "user"
    assert commands.about_jobs([lab.job(run)]).jobs[lab.job(run)].state == "CANCELLED"
    with pytest.raises(Refused, match="already over"):
        cancel.stop(run)


def test_stopped_and_resumed_it_ends_at_the_same_value(lab: SlurmLab) -> None:
    whole, run = lab.start(60, device="cpu"), lab.start(60, device="cpu")
    lab.reaches(run, 7)
    with pytest.raises(Refused, match="stop it before"):
        submit.resume(run)
    seen = lab.look(run)
    assert seen.state in ("starting", "running")
    assert "runs on" in (seen.message or "")
    assert cancel.stop(run).state == "stopping"
    assert lab.end(run) == ("stopped", "user")
    submit.resume(run)
    assert lab.end(run) == ("finished", "completed")
    assert [bool(made.from_step) for made in lab.attempts(run)] == [False, True]
    assert lab.end(whole) == ("finished", "completed")
    assert lab.value(run) == lab.value(whole)
    with pytest.raises(Refused, match="finished"):
        submit.resume(run)


def test_scancel_outside_the_lab_is_no_wish_of_the_user_here(lab: SlurmLab) -> None:
    run = lab.start(SLOW, device="cpu")
    lab.reaches(run, 1)
    lab.cluster.call("scancel", lab.job(run), check=True)
    lab.until(lambda: "cancelled outside" in (lab.look(run).message or ""), run)
    assert lab.end(run) == ("stopped", "signal")
    cancel.delete(run)
    assert list_runs(lab.root) == []


def test_requeued_by_hand_or_after_a_node_failed_a_run_goes_on_from_its_newest_checkpoint(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_STEP", "0.05")
    requeued = lab.start(80, "extra=--nodelist=alpha", device="cpu")
    stranded = lab.start(80, "extra=--nodelist=beta", device="cpu")
    lab.reaches(requeued, 12)
    lab.reaches(stranded, 12)
    lab.cluster.call("scontrol", "requeue", lab.job(requeued), check=True)
    lab.cluster.call("scontrol", "update", "NodeName=beta", "State=DOWN", "Reason=test", check=True)
    for run in (requeued, stranded):
        lab.until(lambda run=run: lab.look(run).state == "queued", run)  # type: ignore[misc]
        assert "Queued again" in (lab.look(run).message or "")
    lab.cluster.call("scontrol", "update", "NodeName=beta", "State=RESUME")  # it may be back by itself
    for run in (requeued, stranded):
        assert lab.end(run) == ("finished", "completed")
        first, second = lab.attempts(run)
        assert first.slurm is not None
        assert second.slurm is not None
        assert (first.slurm.restart, second.slurm.restart) == (0, 1)
        assert (second.from_step or 0) >= 10


def test_a_run_that_may_not_be_queued_again_says_so(lab: SlurmLab) -> None:
    run = lab.start(SLOW, "max_requeues=0", device="cpu")
    lab.reaches(run, 6)
    lab.cluster.call("scancel", "--signal=USR2", "--batch", lab.job(run), check=True)
    assert lab.end(run) == ("stopped", "timeout")
    assert "max_requeues" in (lab.look(run).message or "")


def test_a_killed_runner_is_known_from_slurm_alone_and_still_after_slurm_forgot(lab: SlurmLab) -> None:
    run = lab.start(SLOW, device="cpu")
    lab.reaches(run, 5)
    state = run.read(RunState)
    assert state is not None
    assert state.pid is not None
    os.kill(state.pid, signal.SIGKILL)
    lab.until(lambda: lab.look(run).state in ("failed", "stopped"), run)
    ended = lab.look(run)
    kept = submission.last(run)
    assert kept is not None
    assert kept.ended is not None
    assert (kept.ended.state, kept.ended.reason) == (ended.state, ended.reason)
    lab.until(lambda: not Path(f"/proc/{state.workers[0].pid}").exists(), run, what="end of the worker")
    submit.resume(run)
    lab.until(lambda: len(lab.attempts(run)) == 2, run)
    cancel.stop(run, now=True)
    assert lab.end(run) == ("stopped", "user")


def test_a_chain_with_a_failing_head_is_cleared(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_FAIL", "exit:3")
    monkeypatch.setenv("STAND_IN_FAIL_AT", "20")
    head = lab.start(40, device="cpu")
    monkeypatch.delenv("STAND_IN_FAIL")
    strict = lab.start(5, device="cpu", after=head.id)
    behind = lab.start(5, device="cpu", after=strict.id)
    anyway = lab.start(5, device="cpu", after=head.id, after_any=True)
    assert lab.end(head) == ("failed", "error")
    assert lab.end(strict) == ("stopped", "dependency")
    assert lab.end(behind) == ("stopped", "dependency")
    assert lab.end(anyway) == ("finished", "completed")
    late = lab.start(5, device="cpu", after=head.id)
    assert lab.end(late) == ("stopped", "dependency")
    assert submission.last(late) is None


def test_a_study_keeps_its_order_and_never_runs_more_jobs_than_allowed(lab: SlurmLab) -> None:
    (lab.home / "slurm.yaml").write_text("max_jobs: 1\n")
    started: list[str] = []
    arms = [experiment("arm-a", 8), experiment("arm-b", 8, baseline="arm-a")]
    requests = [RunRequest(arm, seed, "cpu", study="demo") for seed in (42, 43) for arm in arms]
    folders = launcher.start_all("slurm", requests, lambda folder: started.append(folder.id))
    assert started == [folder.id for folder in folders]
    assert [read_run(folder).preset for folder in folders] == ["arm-a", "arm-b", "arm-a", "arm-b"]
    for folder in folders:
        assert lab.end(folder) == ("finished", "completed")
    spans = [(made.started or 0.0, made.ended or 0.0) for folder in folders for made in lab.attempts(folder)]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_job_cancelled_in_the_middle_of_a_lane_does_not_let_others_past(lab: SlurmLab) -> None:
    (lab.home / "slurm.yaml").write_text("max_jobs: 1\n")
    first = lab.start(SLOW, device="cpu")
    middle, last = lab.start(5, device="cpu"), lab.start(5, device="cpu")
    lab.reaches(first, 1)
    waits = next(run for run in job_states.overlay(list_runs(lab.root), job_states.SlurmCache()) if run.id == last.id)
    assert (waits.message or "").count("afterany:") == 1
    cancel.stop(middle)
    assert lab.end(middle) == ("stopped", "user")
    assert "Dependency" in (lab.look(last).message or "")
    cancel.stop(first)
    assert lab.end(last) == ("finished", "completed")
    assert lab.end(first) == ("stopped", "user")


def test_two_ranks_on_one_node_finish_and_two_on_each_of_two_nodes_save_when_stopped(lab: SlurmLab) -> None:
    one_node = lab.start(10, "cpus=1", device="cpu", per_run=2)
    two_nodes = lab.start(SLOW, "cpus=1", "nodes=2", device="cpu", per_run=2)
    lab.reaches(two_nodes, 6)
    cancel.stop(two_nodes)
    assert lab.end(two_nodes) == ("stopped", "user")
    outcome = two_nodes.read(Outcome)
    assert outcome is not None
    assert (two_nodes.checkpoints / f"step-{outcome.step}").is_dir()
    assert lab.end(one_node) == ("finished", "completed")
    for run, ranks in ((one_node, 2), (two_nodes, 4)):
        assert lab.attempts(run)[0].world_size == ranks
        assert all(f"rank {rank} starts" in run.log.read_text() for rank in range(ranks))
        assert sorted(outcomes.read_all(run)) == list(range(ranks))


def test_a_submission_cut_short_is_found_by_its_name_and_never_repeated(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(submit.submission, "record", _die)
        with pytest.raises(KeyboardInterrupt):
            lab.start(SLOW, "partition=closed", device="cpu")
    [run] = [read.folder for read in list_runs(lab.root)]
    submitted = submission.last(run)
    assert submitted is not None
    assert submitted.job is None
    _forget_submitter(run)
    with pytest.raises(Refused, match="already in Slurm as job"):
        submit.resume(run)
    assert lab.look(run).state == "queued"
    named = lab.cluster.call("squeue", "-h", "-t", "all", f"--name={submitted.name}", "-o", "%i").split()
    assert named == [lab.job(run)]


def test_what_slurm_refuses_leaves_no_folder_and_says_what_to_change(lab: SlurmLab) -> None:
    for override, words in {
        "partition=nowhere": "Invalid partition name.*set partition.*here: gpu, short, closed",
        "gres=gpu:h100": "not available.*cards of a node here: gpu:1",
        "gres=tpu": "(gres|not available).*gres",
        "memory=900G": "Memory specification.*lower memory",
        "extra=--frobnicate": "unrecognized option.*extra in slurm.yaml",
    }.items():
        with pytest.raises(Refused, match=words) as refused:
            lab.start(5, override)
        assert "\n" not in str(refused.value)
    for override, words in {"time=soon": "not a time limit", "partiton=gpu": "Did you mean partition"}.items():
        with pytest.raises(BadInput, match=words):
            lab.start(5, override)
    with pytest.raises(BadInput, match="picks the cards"):
        lab.start(5, device="0")
    assert list_runs(lab.root) == []


def test_the_doctor_finds_partitions_and_proposes_a_file_that_works(lab: SlurmLab) -> None:
    found = discover()
    assert found.problem is None
    assert any("partition gpu: 2 nodes with gpu:1" in sentence for sentence in found.findings)
    (lab.home / "slurm.yaml").write_text(found.proposal)
    assert lab.end(lab.start(3)) == ("finished", "completed")


def test_one_question_answers_for_all_runs_and_none_is_asked_without_live_ones(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real = commands.call
    monkeypatch.setattr(commands, "call", lambda *argv, **options: calls.append(argv[0]) or real(*argv, **options))
    runs = [lab.start(10, "partition=closed", device="cpu") for _ in range(3)]
    cache = job_states.SlurmCache()
    for _ in range(5):
        assert {run.state for run in job_states.overlay(list_runs(lab.root), cache)} == {"queued"}
    assert calls == ["squeue"]
    for run in runs:
        cancel.stop(run)
    calls.clear()
    job_states.overlay(list_runs(lab.root), job_states.SlurmCache())
    assert calls == []


def test_the_run_goes_on_while_the_controller_is_away_and_readers_are_told(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_STEP", "0.05")
    run = lab.start(400, device="cpu")  # 20 s: killing a controller may take several
    waiting = lab.start(5, "partition=closed", device="cpu")
    lab.reaches(run, 5)
    lab.cluster.kill_controller()
    try:
        lab.until(lambda: read_run(run).state == "running", run)
        seen, queued = job_states.overlay([read_run(run), read_run(waiting)], job_states.SlurmCache())
        assert seen.state == "running"
        assert "Slurm does not answer" in (seen.message or "")
        assert queued.state == "queued"
        assert discover().problem
        with pytest.raises(Refused, match=r"^Slurm cannot be reached: .*when its controller \(slurmctld\) answers"):
            lab.start(5, device="cpu")
        assert len(list_runs(lab.root)) == 2
    finally:
        lab.cluster.start_controller()
    assert lab.end(run) == ("finished", "completed")
    cancel.stop(waiting)


def test_at_its_time_limit_a_run_saves_and_queues_again(at_the_limit: tuple[SlurmLab, RunFolder]) -> None:
    lab, run = at_the_limit
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", lab.cluster.environment["SLURM_CONF"])
        assert lab.end(run, 120) == ("finished", "completed")
    first, second = lab.attempts(run)[:2]
    assert (first.state, first.reason) == ("stopped", "timeout")
    assert (second.from_step or 0) > 0
    assert first.slurm is not None
    assert second.slurm is not None
    assert second.slurm == replace(first.slurm, restart=1, node=second.slurm.node)


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def _forget_submitter(run: RunFolder) -> None:
    """As if the submitting process were dead: this very one wrote the intent."""
    intent = submission.last(run)
    assert intent is not None
    submission.record(run, replace(intent, who=replace(intent.who, pid=2**22 + 1)))
