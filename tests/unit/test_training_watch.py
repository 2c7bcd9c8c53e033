"""A worker never outlives the process that started it: it is told at once, and ended after the grace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import pathlib, signal, sys, time
from oelm_core.runs.folder import RunFolder
from oelm_core.training.supervision import guard
told = []
watchdog = guard(RunFolder(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: told.append("signal"))
watchdog.start(lambda number: told.append("watchdog"), grace=float(sys.argv[2]))
print("watching", flush=True)
while "watchdog" not in told or float(sys.argv[2]) < 5:
    time.sleep(0.01)
pathlib.Path(sys.argv[1], "told").write_text(" ".join(sorted(set(told))))
"""
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and ") Z" not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("grace", "told"), [("30", "signal watchdog"), ("0.1", None)])
def test_a_worker_whose_parent_dies_is_told_and_then_ended(tmp_path: Path, grace: str, told: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OELM_RUNNER_PID"}
    command = [sys.executable, "-c", PARENT, CHILD, str(tmp_path), grace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    try:
        wait_until_gone(child)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    if told is None:  # it did not heed the request, so the watchdog ended it
        assert not (tmp_path / "told").exists()
    else:
        assert (tmp_path / "told").read_text() == told


def test_a_worker_whose_runner_is_already_gone_does_not_begin(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    ended = subprocess.run(
        [sys.executable, "-m", "oelm_core.training.worker", f"--run-folder={tmp_path}"],
        env={**os.environ, "OELM_RUNNER_PID": str(gone.pid)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "is gone; nothing was started" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_watch_comes_before_torch() -> None:
    code = (
        "import sys; import oelm_core.training.worker;"
        "print({'torch', 'transformers', 'datasets', 'numpy', 'pydantic'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "set()"
