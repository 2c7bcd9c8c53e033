"""How a worker ended, in one state, reason and sentence: what it said itself, else its exit code, signal and log."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from oelm_core.runs import process
from oelm_core.runs.schema import Outcome
from oelm_core.runs.status import RunStatus, status_of

REQUEUE_EXIT_CODE = 75
UNSAVED = "Ended without saving the steps since its newest checkpoint."
_RANK_DIED = re.compile(r"exitcode\s*:\s*(-?\d+)")


def judge(
    status: int | None,
    outcome: Outcome | None,
    *,
    stop_asked: bool,
    signalled: bool,
    kernel_killed: bool,
    log_tail: str = "",
) -> RunStatus:
    """The end of an attempt.

    status: exit code, negative for a signal, None when the worker never started. `stop_asked`: a stop.json is there.
    `signalled`: the runner itself was told to end. `kernel_killed`: the out-of-memory killer struck meanwhile.
    """
    rank_code = _rank_code(log_tail) if status == 1 else None
    code = status if rank_code is None else rank_code
    killed_by = _signal_of(code)
    own = status_of(outcome)
    if own and own.reason == "signal" and _signal_of(rank_code) and not (stop_asked or signalled):
        own = None  # one rank was killed; torchrun ended the others, who say in good faith that they were told to stop
    if own and own.state == "stopped" and own.reason in ("user", "signal"):
        return own._replace(reason="user" if stop_asked else "signal")  # only a stop.json makes it the user's wish
    if own:
        return own
    if killed_by == "SIGKILL" and kernel_killed and not stop_asked:
        return RunStatus("failed", "oom", "The kernel killed the worker because the machine's memory was full.")
    if stop_asked:
        return RunStatus("stopped", "user", UNSAVED if killed_by else None)
    if signalled and (killed_by or code):
        return RunStatus("stopped", "signal", "The runner was told to end.")
    if killed_by:
        return RunStatus("failed", "signal", f"The worker was killed by {killed_by}.")
    if code == REQUEUE_EXIT_CODE:
        return RunStatus("stopped", "preempted", "Saved and ended on SIGUSR2; resume it.")
    words = last_words(log_tail)
    if code == 0:
        return RunStatus("failed", "error", "The worker ended without saying how it went.")
    return RunStatus("failed", "error", f"The worker ended with exit code {code}{': ' + words if words else '.'}")


def _signal_of(code: int | None) -> str | None:
    """The name of the signal in an exit code: -9 from a child, 137 from a shell in between."""
    if code is None or -1 < code <= 128:
        return None
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return None


def _rank_code(log_tail: str) -> int | None:
    """torchrun turns every death of a rank into 1; its log tells the first rank's own code."""
    found = _RANK_DIED.findall(log_tail)
    return int(found[-1]) if found else None


def tail(path: Path, start: int = 0, size: int = 8192) -> str:
    """The end of a log, but nothing from before `start`: an earlier attempt's words are not this one's."""
    try:
        with open(path, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(log_tail: str) -> str:
    """The last line of a log that says something, shortened to a sentence's length."""
    for line in reversed(log_tail.splitlines()):
        line = line.strip()
        if any(letter.isalpha() for letter in line):
            return line if len(line) <= 200 else line[:197] + "..."
    return ""


def kernel_kills() -> int:
    """How often the out-of-memory killer has struck on this machine since boot."""
    return process.kernel_number("/proc/vmstat", "oom_kill ") or 0
