"""What a run is truly doing: its state file, checked against its processes, its host and how its worker ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder

FINAL = frozenset({"finished", "failed", "stopped"})
LIVE = frozenset({"queued", "waiting", "starting", "running", "stopping"})
ENDED = FINAL | {"lost"}
STATES = (*sorted(LIVE), *sorted(FINAL), "lost", "unknown")
REASONS = frozenset(
    {
        *("completed", "user", "signal", "oom", "nonfinite", "data", "config", "dependency"),
        *("timeout", "preempted", "node_fail", "disk", "error"),
    }
)

SECONDS_TO_COME_UP = 10.0
"""A local run queued for longer without a runner has lost it."""
SECONDS_OF_SILENCE = 60.0
"""On another host, a heartbeat older than this says nothing any more."""


class RunStatus(NamedTuple):
    """A run's state as far as this reader can tell."""

    state: str
    reason: str | None = None
    message: str | None = None


class Here(NamedTuple):
    """The machine the reader sits on; tests pass their own."""

    host: str
    boot_id: str
    now: float
    alive: Callable[[Any, Any, Any], bool] = process.is_alive
    """(pid, started, boot_time) -> whether that very process lives."""


def here() -> Here:
    return Here(process.host(), process.boot_id(), time.time())


def run_status(folder: RunFolder, reader: Here | None = None) -> RunStatus:
    """The state of a run folder, read fresh."""
    state = folder.read_dict("state")
    outcome = None if state and state.get("state") in FINAL else folder.read_dict("outcome")
    return derive(state, outcome, reader or here())


def derive(state: dict[str, Any] | None, outcome: dict[str, Any] | None, reader: Here) -> RunStatus:
    """The truth from state.json and outcome.json (None where missing)."""
    if state is None:
        return RunStatus("unknown", None, "state.json is missing or cannot be read.")
    said = str(state.get("state"))
    as_written = RunStatus(said, state.get("reason"), state.get("message"))
    if said in FINAL:
        return as_written
    if said not in LIVE:
        return RunStatus("unknown", None, f"state.json says '{said}', which is no state.")
    if said == "queued" and state.get("launcher") == "slurm":
        return as_written  # no runner is expected here before Slurm starts one
    if state.get("host") != reader.host:
        return _from_afar(state, outcome, as_written, reader)
    return _from_here(state, outcome, as_written, reader)


def _from_here(state: dict[str, Any], outcome: dict[str, Any] | None, as_written: RunStatus, reader: Here) -> RunStatus:
    if state.get("boot_id") != reader.boot_id:
        return _as_told(outcome) or RunStatus("lost", None, "The machine was restarted while it ran; resume it.")
    if state.get("pid") is None:
        # abs: a clock set back must not keep a dead run queued for hours
        if abs(reader.now - _number(state.get("heartbeat"), 0.0)) <= SECONDS_TO_COME_UP:
            return as_written
        return RunStatus("lost", None, "Its runner never came up; resume it.")
    booted = state.get("boot_time")
    if reader.alive(state["pid"], state.get("started"), booted):
        silence = reader.now - _number(state.get("heartbeat"), reader.now)
        if silence > SECONDS_OF_SILENCE:  # frozen, or the disk does not take its writes
            return as_written._replace(message=f"Its runner lives but has said nothing for {_duration(silence)}.")
        return as_written
    if any(reader.alive(worker.get("pid"), worker.get("started"), booted) for worker in state.get("workers") or []):
        return RunStatus("stopping", "signal", "Its runner was killed; the worker is saving and ending.")
    return _as_told(outcome) or RunStatus("lost", None, "Its runner and worker are gone without a word; resume it.")


def _from_afar(state: dict[str, Any], outcome: dict[str, Any] | None, as_written: RunStatus, reader: Here) -> RunStatus:
    age = reader.now - _number(state.get("heartbeat"), 0.0)
    if age <= SECONDS_OF_SILENCE:
        return as_written
    silence = f"No heartbeat from {state.get('host')} for {_duration(age)}."
    return _as_told(outcome) or RunStatus("unknown", None, silence)


def _as_told(outcome: dict[str, Any] | None) -> RunStatus | None:
    """How the worker said it ended, where the runner did not live to write it down."""
    if outcome is None or outcome.get("state") not in FINAL:
        return None
    return RunStatus(str(outcome["state"]), outcome.get("reason"), outcome.get("message"))


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
