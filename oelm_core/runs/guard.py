"""What a worker and every rank does first, before importing torch: never outlive the runner unwatched."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time

from oelm_core.runs import process

GRACE = 120.0
"""Seconds a worker may take to save after it was told to end or its runner died."""


def grace() -> float:
    try:
        return float(os.environ.get("OELM_GRACE", GRACE))
    except ValueError:
        return GRACE


def guard() -> None:
    """Asks for SIGTERM at the parent's death, then makes sure parent and runner still live.

    The runner gives its identity in OELM_RUNNER ("pid:seconds since boot"); without it (a worker started by hand)
    there is nobody to watch. A watchdog thread ends the process when the runner has been gone for the grace.
    """
    runner = _runner()
    if runner is None:
        return
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() == 1 or not _lives(runner):
        os._exit(143)
    threading.Thread(target=_watch, args=(runner, grace()), name="watchdog", daemon=True).start()


def _watch(runner: tuple[int, float], patience: float) -> None:
    while _lives(runner):
        time.sleep(1.0)
    with contextlib.suppress(OSError):
        os.kill(os.getpid(), signal.SIGTERM)  # a rank's parent (torchrun) may still live
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def _lives(runner: tuple[int, float]) -> bool:
    born = process.birth(runner[0])
    return born is not None and abs(born - runner[1]) < 0.05


def _runner() -> tuple[int, float] | None:
    pid, _, born = os.environ.get("OELM_RUNNER", "").partition(":")
    try:
        return int(pid), float(born)
    except ValueError:
        return None
