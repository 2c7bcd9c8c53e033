"""Several runs as one job array of a real Slurm: submitted at once, seen, stopped and queued again one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oelm_core.launch import launcher
from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import cancel, submission, submit
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.store import list_runs
from tests.chaos.lab import experiment
from tests.integration.conftest import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
SLOW = 100_000


def start(*steps: int, settings: tuple[str, ...] = ()) -> list[RunFolder]:
    requests = [RunRequest(experiment(steps=count), 1, "cpu", slurm=settings, command=("test",)) for count in steps]
    return launcher.start_all("slurm", requests)


def test_a_study_is_one_submission_and_every_run_ends_by_itself(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = submit.call
    monkeypatch.setattr(submit, "call", lambda *argv, **options: calls.append(argv[0]) or real(*argv, **options))
    arms = [experiment("arm-a", 5), experiment("arm-b", 6, baseline="arm-a")]
    requests = [RunRequest(arm, seed, "cpu", study="demo") for seed in (42, 43) for arm in arms]
    more = [replace(request, slurm=("time=5",)) for request in requests[:2]]
    started: list[str] = []
    folders = launcher.start_all("slurm", [*requests, *more], lambda folder: started.append(folder.id))
    assert calls == ["sbatch", "sbatch"]  # those that ask for another time are an array of their own
    assert started == [folder.id for folder in folders]
    arrays = [lab.job(folder).split("_") for folder in folders]
    assert len({array for array, _ in arrays}) == 2
    assert [task for _, task in arrays] == ["0", "1", "2", "3", "0", "1"]
    for folder in folders:
        assert lab.end(folder) == ("finished", "completed")
        [made] = lab.attempts(folder)
        assert made.slurm is not None
        assert made.slurm.job == lab.job(folder)
        assert (submission.slurm_dir(folder) / "job.log").exists()


def test_tasks_are_stopped_and_queued_again_one_by_one(lab: SlurmLab) -> None:
    first, second, third, fourth = start(SLOW, 5, 400, 5, settings=("max_jobs=1",))
    lab.reaches(first, 6)
    lab.until(lambda: "waits for other runs of its array" in (lab.look(third).message or ""), third)
    assert cancel.stop(second).reason == "user"
    assert lab.end(second) == ("stopped", "user")
    assert {lab.look(run).state for run in (third, fourth)} == {"queued"}
    later = lab.start(5, "max_jobs=1", device="cpu")
    lab.until(lambda: "Dependency" in (lab.look(later).message or ""), later)
    cancel.stop(first)
    assert lab.end(first) == ("stopped", "user")
    lab.reaches(third, 6)
    lab.cluster.call("scancel", "--signal=USR2", "--batch", lab.job(third), check=True)
    lab.until(lambda: len(lab.attempts(third)) == 2, third)
    before, after = [made.slurm for made in lab.attempts(third)]
    assert before is not None
    assert after is not None
    assert (after.job, before.restart, after.restart) == (lab.job(third), 0, 1)
    assert lab.end(third) == ("finished", "completed")
    assert lab.end(fourth) == lab.end(later) == ("finished", "completed")


def test_what_is_left_of_an_array_that_was_cancelled_outside_says_so(lab: SlurmLab) -> None:
    runs = start(5, 5, 5, settings=("partition=closed",))
    lab.until(lambda: "PartitionDown" in (lab.look(runs[2]).message or ""), runs[2])
    lab.cluster.call("scancel", lab.job(runs[0]).partition("_")[0], check=True)
    for run in runs:
        assert lab.end(run) == ("stopped", "signal")
        assert "cancelled outside" in (lab.look(run).message or "")
    submit.resume(runs[1], settings=["partition=gpu"])
    assert lab.end(runs[1]) == ("finished", "completed")


def test_an_array_whose_submission_was_cut_short_is_found_by_its_name(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(submit.submission, "record", _die)
        with pytest.raises(KeyboardInterrupt):
            start(5, 5, settings=("partition=closed",))
    runs = [read.folder for read in list_runs(lab.root)]
    for run in runs:
        intent = submission.last(run)
        assert intent is not None
        submission.record(run, replace(intent, who=replace(intent.who, pid=2**22 + 1)))
        assert lab.look(run).state == "queued"
    assert sorted(lab.job(run).partition("_")[2] for run in runs) == ["0", "1"]


def _die(*_: object) -> None:
    raise KeyboardInterrupt
