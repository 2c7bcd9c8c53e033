"""No unwatched worker: it dies with its parent, and a watchdog ends it when a graceful end takes too long. No torch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from oelm_core.runs.folder import read_json

PR_SET_PDEATHSIG = 1
GRACE = 120.0  # seconds for the last checkpoint after the runner is gone


def guard(folder: Path) -> Watch:
    """Asks the kernel for SIGTERM when the parent dies, then makes sure that parent and runner are still there."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the watchdog alone has to do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    runner = _runner(folder)
    if os.getppid() != parent or (runner is not None and not _alive(*runner)):
        print("the process that started this run is gone; nothing was begun.", file=sys.stderr, flush=True)
        os._exit(1)
    return Watch(parent, runner)


class Watch:
    """A thread that notices when parent or runner end, asks for a stop, and after the grace ends the process."""

    def __init__(self, parent: int, runner: tuple[int, float | None] | None) -> None:
        self.parent, self.runner = parent, runner

    def start(self, request_stop: Callable[[int], None], grace: float | None = None) -> None:
        seconds = grace if grace is not None else float(os.environ.get("OELM_GRACE") or GRACE)
        threading.Thread(target=self._watch, args=(request_stop, seconds), daemon=True, name="watch").start()

    def _watch(self, request_stop: Callable[[int], None], grace: float) -> None:
        while self.others_live():
            time.sleep(0.5)
        request_stop(signal.SIGTERM)
        time.sleep(grace)
        print(f"still here {grace:.0f} s after the runner ended; giving up.", file=sys.stderr, flush=True)
        os._exit(1)

    def others_live(self) -> bool:
        return os.getppid() == self.parent and (self.runner is None or _alive(*self.runner))


def _runner(folder: Path) -> tuple[int, float | None] | None:
    """The runner's pid and start time: from its variable, else from state.json when it is one of our ancestors."""
    named = os.environ.get("OELM_RUNNER_PID")
    if named:
        return int(named), None
    pid = (read_json(folder / "state.json") or {}).get("pid")
    return (pid, None) if isinstance(pid, int) and pid in _ancestors() else None


def _ancestors() -> list[int]:
    found, pid = [], os.getpid()
    while pid > 1 and (stat := _stat(pid)) is not None:
        pid = int(stat[1])
        found.append(pid)
    return found


def _alive(pid: int, started: float | None = None) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in ("Z", "X")


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the command: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
