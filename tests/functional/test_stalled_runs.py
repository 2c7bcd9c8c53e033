"""`oelm runs` says of a run that it stands still, as the screen does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import MetricLine, RunState, WorkerProgress, encode_metric
from tests.functional.oelm import Oelm
from tests.functional.tui_lab import run_id


@pytest.fixture
def runner(lab: Path) -> Iterator[int]:
    """The pid of a process that carries the run's folder, as its runner does."""
    folder = lab / "runs" / run_id("GPT-02", 2)
    command = [sys.executable, "-c", "input()", f"--run-folder={folder}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        yield child.pid
        child.kill()


def test_a_run_that_makes_no_step_is_named(lab: Path, runner: int) -> None:
    folder, now, me = RunFolder(lab / "runs" / run_id("GPT-02", 2)), time.time(), process.me()
    state = folder.read(RunState)
    assert state is not None
    born = process.identity(runner)
    here = {"host": me.host, "boot_id": me.boot_id, "boot_time": me.boot_time, "pid": born.pid, "started": born.started}
    folder.write(replace(state, state="running", workers=[], heartbeat=now, **here))
    lines = [MetricLine(step, "train", now - 200 + step, {"loss": 1.0}) for step in range(0, 50, 10)]
    folder.metrics.write_bytes(b"".join(map(encode_metric, lines)))
    folder.write(WorkerProgress(40, 100, now - 160))
    run = next(run for run in Oelm(lab).json("runs") if run["id"] == folder.id)
    assert run["state"] == "running"
    assert run["message"].startswith("no step for 16")
    assert run["message"].endswith("usually 10.0 s")
