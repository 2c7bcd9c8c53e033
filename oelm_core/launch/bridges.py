"""Starts the bridges that bring a run's curves elsewhere: processes of their own that no run waits for."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence

from oelm_core.launch.spawn import importable
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder

SECONDS_AT_THE_END = 30.0
"""How long a Slurm job stays for its bridges once its run has ended."""


def command(folder: RunFolder, target: str) -> list[str]:
    """Not with --run-folder=: a run whose bridge is still at it can be resumed and deleted."""
    return [sys.executable, "-m", "oelm_core.mirror", f"--of={folder.path}", f"--to={target}"]


def start(folder: RunFolder, targets: Sequence[str]) -> None:
    """One bridge a target, detached, at the lowest priority. Nothing that goes wrong here is the run's trouble."""
    for target in targets:
        with contextlib.suppress(OSError):
            _detach(command(folder, target), folder)


def wait(folder: RunFolder, targets: Sequence[str]) -> None:
    """Gives bridges that are about to go with us time for their last points."""
    until = time.monotonic() + SECONDS_AT_THE_END
    while time.monotonic() < until and any(_are_at_it(folder, target) for target in targets):
        time.sleep(0.5)


def _are_at_it(folder: RunFolder, target: str) -> bool:
    _, _, module, of, to = command(folder, target)
    wanted = [os.fsencode(part) for part in (module, of, to)]
    return any(process.arguments(pid)[-3:] == wanted for pid in process.with_argument(of))


def _detach(words: list[str], folder: RunFolder) -> None:
    """Through a child that ends at once, so that it is no descendant of ours: the run does not wait for it."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become(words, folder)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _become(words: list[str], folder: RunFolder) -> None:
    import signal

    os.nice(19)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.chdir(folder.path.parent)
    os.execve(words[0], words, {**importable(dict(os.environ)), "CUDA_VISIBLE_DEVICES": ""})
