"""Ending a process on a card: one's own alone, never a run's, never another with the same pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from oelm_core.devices import own_processes
from oelm_core.devices.card import CardProcess
from oelm_core.errors import LabError, NotFound, Refused
from oelm_core.runs.process import identity


@pytest.fixture
def sleeper(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    arguments = getattr(request, "param", [])
    code = "import subprocess, sys; print(flush=True); subprocess.run(['sleep', '60'])"
    child = subprocess.Popen([sys.executable, "-S", "-c", code, *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def seen(pid: int) -> CardProcess:
    return CardProcess(pid, user="ann", started=identity(pid).started)


@pytest.mark.parametrize(("now", "sent"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_ones_own_process_is_asked_to_end_and_then_made_to(sleeper, now, sent):
    own_processes.end(seen(sleeper.pid), now=now)
    assert sleeper.wait(10) == -sent


def test_a_process_that_took_over_the_pid_is_left_alone(sleeper):
    with pytest.raises(NotFound, match="ended by itself"):
        own_processes.end(CardProcess(sleeper.pid, started=(identity(sleeper.pid).started or 0) - 60))
    with pytest.raises(NotFound, match="ended by itself"):
        own_processes.end(CardProcess(sleeper.pid))
    assert sleeper.poll() is None


def test_another_users_process_is_left_alone(sleeper, monkeypatch):
    one = seen(sleeper.pid)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not own_processes.is_mine(sleeper.pid)
    with pytest.raises(Refused, match="ann's"):
        own_processes.end(one)
    assert sleeper.poll() is None


@pytest.mark.parametrize("sleeper", [["--run-folder=/lab/runs/GPT-01-s42"]], indirect=True)
def test_a_runs_process_and_its_children_are_the_runs(sleeper):
    from oelm_core.runs.process import descendants

    children = descendants(sleeper.pid)
    while not children:
        children = descendants(sleeper.pid)
    for pid in (sleeper.pid, *children):
        assert own_processes.run_of(pid) == "GPT-01-s42"
        with pytest.raises(Refused, match="stop the run"):
            own_processes.end(seen(pid))
    assert sleeper.poll() is None


def test_the_lab_does_not_end_itself_nor_its_terminal():
    for pid in (os.getpid(), os.getppid()):
        with pytest.raises(LabError, match=r"is this lab|only your own"):
            own_processes.end(seen(pid))
