"""Processes on a card: whose each is, which run it belongs to, and ending one's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from oelm_core.devices.card import CardProcess
from oelm_core.errors import NotFound, Refused
from oelm_core.runs import process as processes

_RUN_FOLDER = b"--run-folder="


def run_of(pid: int) -> str | None:
    """Id of the run that a process, or one above it (data loaders, ranks), was started for."""
    for one in (pid, *processes.ancestors(pid)):
        for argument in processes.arguments(one):
            if argument.startswith(_RUN_FOLDER):
                return Path(os.fsdecode(argument.removeprefix(_RUN_FOLDER))).name
    return None


def is_mine(pid: int) -> bool:
    """Whether it runs under the user who asks; root's wide powers make nobody else's process its own."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def holds_card(pid: int) -> bool | None:
    """Whether it has a card's device file open; None where the kernel does not show it."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            return any(os.readlink(file.path).startswith("/dev/nvidia") for file in files)
    except OSError:
        return None


def end(one: CardProcess, *, now: bool = False) -> None:
    """SIGTERM, or with `now` SIGKILL, for a process of one's own that is no run's; anything else is refused."""
    if not processes.is_alive(one.pid, one.started):
        raise NotFound(f"Process {one.pid} has ended by itself.")
    if not is_mine(one.pid):
        raise Refused(f"Process {one.pid} is {one.user or 'somebody'}'s; only your own can be ended from here.")
    if (run := run_of(one.pid)) is not None:
        raise Refused(f"Process {one.pid} belongs to the run {run}; stop the run, which then writes a checkpoint.")
    if one.pid in (os.getpid(), *processes.ancestors()):
        raise Refused(f"Process {one.pid} is this lab or what started it.")
    try:
        os.kill(one.pid, signal.SIGKILL if now else signal.SIGTERM)
    except ProcessLookupError:
        raise NotFound(f"Process {one.pid} has ended by itself.") from None
    except OSError as error:
        raise Refused(f"Process {one.pid} could not be ended: {error.strerror}.") from None
