"""One Slurm for the whole session, and a lab of its own for every test that uses it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oelm_core.launch.request import RunRequest
from oelm_core.launch.slurm import job_states, submission, submit
from oelm_core.runs import attempts
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, Headline, Result, RunState, WorkerProgress
from oelm_core.runs.status import ENDED, FINAL
from oelm_core.runs.store import Run, read_run
from tests.chaos.lab import STAND_IN, experiment
from tests.integration.mini_slurm import MiniSlurm, missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[MiniSlurm]:
    why_not = missing()
    if why_not:
        pytest.skip(f"no Slurm here: {why_not}")
    cluster = MiniSlurm()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class SlurmLab:
    """Runs of one test, submitted to the test cluster with the stand-in worker."""

    def __init__(self, home: Path, cluster: MiniSlurm) -> None:
        self.home, self.cluster, self.root = home, cluster, home / "runs"

    def start(self, steps: int = 10, *settings: str, **options: Any) -> RunFolder:
        """`settings` are texts of --slurm."""
        return submit.start(RunRequest(experiment(steps=steps), 1, slurm=settings, command=("test",), **options))

    def look(self, run: RunFolder) -> Run:
        """The run as `oelm runs` shows it, with Slurm asked just now."""
        return job_states.overlay([read_run(run)], job_states.SlurmCache())[0]

    def end(self, run: RunFolder, timeout: float = 60.0) -> tuple[str, str | None]:
        """(state, reason) once it is over and Slurm has nothing more to do with it."""
        ended = self.until(lambda: (seen := self.look(run)).state in ENDED and seen, run, timeout, "an end")
        return ended.state, ended.reason

    def reaches(self, run: RunFolder, step: int) -> None:
        self.until(lambda: (run.read(WorkerProgress) or WorkerProgress(0)).step >= step, run, what=f"step {step}")

    def until(
        self, true: Callable[[], Any], run: RunFolder | None = None, timeout: float = 60.0, what: str = "it"
    ) -> Any:
        deadline = time.monotonic() + timeout
        while not (value := true()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {timeout:g} s: {self.story(run)}")
            time.sleep(0.1)
        return value

    def story(self, run: RunFolder | None) -> str:
        if run is None:
            return self.cluster.story()
        log = submission.slurm_dir(run) / "job.log"
        job_log = log.read_text() if log.exists() else "(no job.log)"
        trained = run.log.read_text() if run.log.exists() else "(no training.log)"
        return f"{self.look(run)}\n{job_log}\n{trained}\n{self.cluster.call('squeue', '-t', 'all')}"

    def job(self, run: RunFolder) -> str:
        submitted = submission.last(run)
        assert submitted is not None
        assert submitted.job is not None
        return submitted.job

    def attempts(self, run: RunFolder) -> list[Attempt]:
        return attempts.read_all(run)

    def value(self, run: RunFolder) -> Headline:
        """What the stand-in computed: the same for a run that was never interrupted."""
        result = run.read(Result)
        assert result is not None
        assert result.metric is not None
        return result.metric

    def close(self) -> None:
        """Nothing of the test is left in the queue: cards are few."""
        for folder in self.root.glob("[!.]*"):
            submitted, state = submission.last(RunFolder(folder)), RunFolder(folder).read(RunState)
            if submitted and submitted.job and (state is None or state.state not in FINAL):
                self.cluster.call("scancel", "--signal=KILL", "--full", submitted.job)
                self.cluster.call("scancel", submitted.job)


def open_lab(home: Path, cluster: MiniSlurm, monkeypatch: pytest.MonkeyPatch) -> SlurmLab:
    home.mkdir(parents=True)
    variables = {
        "SLURM_CONF": cluster.environment["SLURM_CONF"],
        "OELM_HOME": str(home),
        "OELM_LEASES": str(home / "leases"),
        "OELM_WORKER": str(STAND_IN),
        "OELM_GRACE": "20",
        "PATH": os.environ["PATH"],
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return SlurmLab(home, cluster)


@pytest.fixture
def lab(tmp_path: Path, cluster: MiniSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    opened = open_lab(tmp_path / "home", cluster, monkeypatch)
    yield opened
    opened.close()
