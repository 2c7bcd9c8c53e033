"""Job arrays without a Slurm: which runs share one, what Slurm says of tasks, and how one task is taken out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oelm_core.errors import Refused
from oelm_core.launch import launcher
from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import array, cancel, commands, submission
from oelm_core.launch.slurm.commands import Answer, JobInfo
from oelm_core.launch.slurm.job import current_job
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.store import list_runs
from tests.chaos.lab import experiment

SBATCH = """#!/bin/sh
echo "$@" >> {calls}
[ $(wc -l < {calls}) -gt {accepts} ] && {{ echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}
echo $((100 + $(wc -l < {calls})))
"""


class Cluster:
    """sbatch and scontrol as scripts on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"

    def has(self, config: str, accepts: int = 99) -> None:
        self.calls.write_text("")
        scripts = {
            "sbatch": SBATCH.format(calls=self.calls, accepts=accepts),
            "scontrol": f"#!/bin/sh\necho '{config}'",
        }
        for name, text in scripts.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    @property
    def submitted(self) -> list[str]:
        """The script of each submission."""
        return [Path(line.split()[-1]).name for line in self.calls.read_text().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    return Cluster(bin_folder)


def start(count: int, *settings: str) -> list[RunFolder]:
    return launcher.start_all("slurm", [RunRequest(experiment(), seed, slurm=settings) for seed in range(count)])


def jobs(folders: list[RunFolder]) -> list[str | None]:
    return [found.job if (found := submission.last(folder)) else None for folder in folders]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("MaxArraySize            = 1001", ["101_0", "101_1", "101_2", "101_3", "101_4"]),
        ("MaxArraySize            = 2", ["101_0", "101_1", "102_0", "102_1", "103"]),
        ("MaxArraySize            = 1", ["101", "102", "103", "104", "105"]),
        ("slurm_load_ctl_conf error", ["101", "102", "103", "104", "105"]),
    ],
)
def test_runs_share_arrays_as_large_as_slurm_allows(cluster: Cluster, config: str, expected: list[str]) -> None:
    cluster.has(config)
    assert jobs(start(5)) == expected
    arrays = {job.partition("_")[0]: "_" in job for job in expected}
    assert cluster.submitted == ["array.sh" if several else "job.sh" for several in arrays.values()]


def test_arrays_can_be_turned_off_and_what_differs_is_no_array(cluster: Cluster) -> None:
    cluster.has("MaxArraySize = 1001")
    assert jobs(start(2, "arrays=false")) == ["101", "102"]
    requests = [RunRequest(experiment(), 1, per_run=cards) for cards in (1, 2, 1, 2)]
    assert jobs(launcher.start_all("slurm", requests)) == ["103_0", "104_0", "103_1", "104_1"]


def test_what_slurm_refuses_leaves_no_folder_and_says_how_many_are_queued(cluster: Cluster) -> None:
    cluster.has("MaxArraySize = 2", accepts=1)
    with pytest.raises(Refused, match=r"your quota of jobs.* 2 of 5 runs were submitted and stay queued"):
        start(5)
    assert len(list_runs(cluster.folder.parent / "home" / "runs")) == 2


def test_a_task_becomes_the_script_of_its_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.has("MaxArraySize = 1001")
    folders = start(3, "max_jobs=2", "partition=short")
    text = (submission.slurm_dir(folders[0]) / "array.sh").read_text()
    assert "#SBATCH --array=0-2%2\n" in text
    assert "#SBATCH --partition=short\n" in text
    submission.script_path(folders[1]).write_text("echo this is $SLURM_ARRAY_TASK_ID\n")
    script = submission.slurm_dir(folders[0]) / "array.sh"
    subprocess.run(["bash", str(script)], env={"SLURM_ARRAY_TASK_ID": "1", "PATH": "/usr/bin:/bin"}, check=True)
    assert (submission.slurm_dir(folders[1]) / "job.log").read_text() == "this is 1\n"


def test_answers_name_tasks_as_people_do(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = commands.parse_scontrol("JobId=12 ArrayJobId=9 ArrayTaskId=3 JobName=a.1 JobState=FAILED ExitCode=1:0\n")
    assert found.id == "9_3"
    [whole] = commands.parse_scontrol("JobId=9 ArrayJobId=9 ArrayTaskId=4-8%2 JobName=a.1 JobState=PENDING\n")
    assert whole.id == "9"
    asked: list[str] = []
    lines = "9_0|RUNNING|None|N/A|1:00|n1|(null)|a.1\n9_2|PENDING|JobArrayTaskLimit|N/A|1:00||(null)|a.1\n"
    left = "20|CANCELLED|None|N/A|1:00||(null)|b.1\n"

    def squeue(*argv: str, **_: object) -> Answer:
        if argv[0] != "squeue":
            return Answer(True, "", "")
        asked.extend(part for part in argv if part.startswith(("--jobs", "--name")))
        return Answer(True, lines + left, "")

    monkeypatch.setattr(commands, "call", squeue)
    answer = commands.about_jobs(["9_0", "9_1", "9_2", "20_5"]).jobs
    assert {job: info.state for job, info in answer.items()} == {
        "9_0": "RUNNING",
        "9_2": "PENDING",
        "20_5": "CANCELLED",
    }
    assert commands.about_names(["a.1[2]", "a.1[1]", "c.1"]).jobs["a.1[2]"].id == "9_2"
    assert asked == ["--jobs=9,20", "--name=a.1,c.1"]


def test_a_job_in_an_array_knows_itself_by_array_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"JOB_ID": "12", "ARRAY_JOB_ID": "9", "ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("OELM_JOB_OF", "run-1")
    job = current_job("run-1")
    assert job is not None
    assert job.id == "9_3"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["PENDING", "PENDING", "CANCELLED"], [("scontrol", "hold", "9_3"), ("scancel", "9_3")]),
        (["PENDING", "RUNNING"], [("scontrol", "hold", "9_3"), ("scontrol", "release", "9_3")]),
        (["RUNNING"], []),
    ],
)
def test_taking_one_task_out_of_the_queue_spares_the_others_and_one_that_started(
    monkeypatch: pytest.MonkeyPatch, states: list[str], expected: list[tuple[str, ...]]
) -> None:
    calls: list[tuple[str, ...]] = []
    answers = iter([commands.JobsAnswer({"9_3": JobInfo("9_3", state)}) for state in states])
    monkeypatch.setattr(cancel, "call", lambda *argv: calls.append(argv) or Answer(True, "", ""))
    monkeypatch.setattr(cancel, "about_jobs", lambda ids: next(answers))
    assert cancel._take_from_queue("9_3").jobs["9_3"].state == states[-1]
    assert calls == expected


def test_the_smaller_limit_counts() -> None:
    assert array.parse_limit("MaxArraySize = 50\nSchedulerParameters = max_array_tasks=70") == 50
    assert array.parse_limit("SchedulerParameters = max_array_tasks=70") == 0
