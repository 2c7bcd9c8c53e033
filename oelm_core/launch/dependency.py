"""`--after RUN`: waiting for another run, and ending when that one did not finish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.status import FINAL, RunStatus, run_status

LOOKS_BEFORE_LOST = 8
"""A run must look lost so many times in a row: on a busy machine its runner may just be slow to come up."""


class Unmet(Exception):
    """The run waited for will not finish; the sentence says why."""


def wait(run: dict[str, Any], root: Path, rest: Callable[[float], None], say: Callable[[str], None]) -> None:
    """Returns when the run named in `after` is over; raises Unmet when it ended badly and that matters."""
    name = run.get("after")
    if not name:
        return
    folder, lost = RunFolder(root / str(name)), 0
    while True:
        state, reason, _ = _state(folder)
        lost = lost + 1 if state == "lost" or not folder.path.is_dir() else 0
        if state in FINAL or lost >= LOOKS_BEFORE_LOST:
            break
        say(f"for {name}, which is {state}")
        rest(1.0)
    if state != "finished" and not run.get("after_any"):
        how = "is not there any more" if not folder.path.is_dir() else f"ended as {state}"
        raise Unmet(f"It waited for {name}, which {how}{f' ({reason})' if reason else ''}.")


def _state(folder: RunFolder) -> RunStatus:
    """The run's state, with Slurm asked where Slurm has it: a job it ended leaves files that still say running."""
    truth = run_status(folder)
    if truth.state in FINAL or not (folder.path / "slurm").is_dir():
        return truth
    from oelm_core.launch.slurm import job_states

    return job_states.run_status(folder)
