"""Who may end a worker: a stop signal, its runner's death, a watchdog when a graceful end takes too long. No torch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from oelm_core.patience import GRACE
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunState

PR_SET_PDEATHSIG = 1


class StopRequest:
    """Set by a signal, read by the loop between steps: TERM and INT stop the run, USR2 has it queued again.

    The first signal decides; USR2 gives way to TERM.
    """

    number = 0
    """The signal's number, 0 while nobody asked. What ranks agree upon."""

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, lambda received, _: self.request(received))

    def request(self, number: int) -> None:
        if self.number in (0, signal.SIGUSR2):
            self.number = number


class Interrupted(Exception):
    """Leaves an evaluation that a stop request came into."""


def guard(folder: RunFolder) -> Watchdog:
    """Asks the kernel for SIGTERM when the parent dies, then makes sure that parent and runner are still there."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the watchdog alone has to do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    watchdog = Watchdog(parent, _runner(folder))
    if not watchdog.others_live():
        print("the process that started this run is gone; nothing was started.", file=sys.stderr, flush=True)
        os._exit(1)
    return watchdog


class Watchdog:
    """A thread that notices when parent or runner end, asks for a stop, and after the grace ends the process."""

    def __init__(self, parent: int, runner: int | None) -> None:
        self.parent, self.runner = parent, runner

    def start(self, request_stop: Callable[[int], None], grace: float | None = None) -> None:
        seconds = GRACE.seconds() if grace is None else grace
        threading.Thread(target=self._watch, args=(request_stop, seconds), daemon=True, name="watchdog").start()

    def _watch(self, request_stop: Callable[[int], None], grace: float) -> None:
        while self.others_live():
            time.sleep(0.5)
        request_stop(signal.SIGTERM)
        time.sleep(grace)
        print(f"still here {grace:.0f} s after the runner ended; giving up.", file=sys.stderr, flush=True)
        os._exit(1)

    def others_live(self) -> bool:
        return os.getppid() == self.parent and (self.runner is None or process.birth(self.runner) is not None)


def _runner(folder: RunFolder) -> int | None:
    """The runner's pid: from its variable, else from state.json when it is one of our ancestors."""
    named = os.environ.get("OELM_RUNNER_PID")
    if named:
        return int(named)
    state = folder.read(RunState)
    return state.pid if state is not None and state.pid in process.ancestors() else None
