"""What a run is truly doing: its state file, checked against its processes, its host and how its worker ended.

This is where a run is called `lost` or `unknown`; for runs in Slurm's hands also `launch/slurm/job_states.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from oelm_core.runs import outcomes, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunState, Worker

FINAL = frozenset({"finished", "failed", "stopped"})
LIVE = frozenset({"queued", "waiting", "starting", "running", "stopping"})
ENDED = FINAL | {"lost"}
STATES = (*sorted(LIVE), *sorted(FINAL), "lost", "unknown")

SECONDS_TO_COME_UP = 10.0
"""A local run queued for longer without a runner has lost it."""
SECONDS_OF_SILENCE = 60.0
"""On another host, a heartbeat older than this says nothing any more."""


class RunStatus(NamedTuple):
    """A run's state as far as this reader can tell."""

    state: str
    reason: str | None = None
    message: str | None = None


class Observer(NamedTuple):
    """The machine the reader sits on; tests pass their own."""

    host: str
    boot_id: str
    now: float
    alive: Callable[[int | None, float | None, float | None], bool] = process.is_alive
    """(pid, started, boot_time) -> whether that very process lives."""
    frozen: Callable[[int], bool] = process.is_frozen
    """Whether a process that lives is held by SIGSTOP or a debugger."""
    stranger: Callable[[int, Path], bool] = process.is_stranger
    """Whether a process that lives is surely none of the run in that folder."""


def observer() -> Observer:
    return Observer(process.host(), process.boot_id(), time.time())


def run_status(folder: RunFolder, by: Observer | None = None) -> RunStatus:
    """The status of a run folder, read fresh."""
    state = folder.read(RunState)
    if state is None:
        return RunStatus("unknown", None, folder.problem(RunState))
    return derive(state, None if state.state in FINAL else outcomes.last_word(folder), by or observer(), folder.path)


def derive(state: RunState, outcome: Outcome | None, by: Observer, run: Path | None = None) -> RunStatus:
    """The status from state.json and the worker's last word (None where there is none).

    `run`: its folder, which its processes carry; without it every process that is named counts as the run's.
    """
    as_written = RunStatus(state.state, state.reason, state.message)
    if state.state in FINAL:
        return as_written
    if state.state not in LIVE:
        return RunStatus("unknown", None, f"state.json says '{state.state}', which is not a known state.")
    if state.state == "queued" and state.launcher == "slurm":
        return as_written  # no runner is expected here before Slurm starts one
    if state.host != by.host:
        return _on_another_host(state, outcome, as_written, by)
    return _on_this_host(state, outcome, as_written, by, run)


def status_of(outcome: Outcome | None) -> RunStatus | None:
    """How the worker said it ended, for when the runner did not live to write it down."""
    if outcome is None or outcome.state not in FINAL:
        return None
    return RunStatus(outcome.state, outcome.reason, outcome.message)


def _on_this_host(
    state: RunState, outcome: Outcome | None, as_written: RunStatus, by: Observer, run: Path | None
) -> RunStatus:
    if state.boot_id != by.boot_id:
        return status_of(outcome) or RunStatus("lost", None, "The machine was restarted while it ran; resume it.")
    if state.pid is None:
        # abs: a clock set back must not keep a dead run queued for hours
        if abs(by.now - (state.heartbeat or 0.0)) <= SECONDS_TO_COME_UP:
            return as_written
        return RunStatus("lost", None, "Its runner never came up; resume it.")
    runner = Worker(state.pid, state.started)
    alive = [one for one in (runner, *state.workers) if by.alive(one.pid, one.started, state.boot_time)]
    ours = [one for one in alive if run is None or not by.stranger(one.pid, run)]
    if runner in ours:
        held = _held(state, by)
        if held:
            return as_written._replace(message=held)
        silence = by.now - (by.now if state.heartbeat is None else state.heartbeat)
        if silence > SECONDS_OF_SILENCE:  # frozen, or the disk does not take its writes
            return as_written._replace(message=f"Its runner lives but has said nothing for {_rough(silence)}.")
        return as_written
    if ours:
        return RunStatus("stopping", "signal", "Its runner was killed; the worker is saving and ending.")
    gone = "Its runner and worker are gone without a word; resume it."
    if alive:
        gone = f"pid {alive[0].pid} is not this run's runner: it does not carry the run's folder; resume the run."
    return status_of(outcome) or RunStatus("lost", None, gone)


def _held(state: RunState, by: Observer) -> str | None:
    """Who of a run stands still, if anybody does."""
    people = [("runner", state.pid), *(("worker", worker.pid) for worker in state.workers)]
    for who, pid in people:
        if pid is not None and by.frozen(pid):
            return f"Its {who} ({pid}) is held by SIGSTOP or a debugger; `kill -CONT {pid}` lets it go on."
    return None


def _on_another_host(state: RunState, outcome: Outcome | None, as_written: RunStatus, by: Observer) -> RunStatus:
    age = by.now - (state.heartbeat or 0.0)
    if age <= SECONDS_OF_SILENCE:
        return as_written
    silence = f"No heartbeat from {state.host} for {_rough(age)}."
    return status_of(outcome) or RunStatus("unknown", None, silence)


def _rough(seconds: float) -> str:
    from oelm_core.formatting import rough_duration  # late: a waiting runner does without

    return rough_duration(seconds)
