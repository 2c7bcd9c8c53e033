"""One run as the screen shows it: the run, its pace and time left, whether it needs a look, and what people noted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oelm_core.runs.schema import MetricLine, Notes
from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run

STALL_FACTOR = 5.0
STALL_AT_LEAST = 30.0
"""Seconds: an evaluation between two steps of a fast run is not a stall."""


@dataclass(frozen=True)
class Alarm:
    """Why a run needs a look, and since when."""

    kind: str
    """failed, lost, stalled or nonfinite."""
    words: str
    since: float
    passed: bool = False
    """Over by itself, and not seen yet."""


@dataclass(frozen=True)
class RunView:
    run: Run
    pace: float | None = None
    """Steps a second, evaluations included."""
    left: float | None = None
    """Seconds to the end at this pace."""
    took: float | None = None
    last: MetricLine | None = None
    """The newest training record."""
    alarm: Alarm | None = None
    notes: Notes = field(default_factory=Notes)
    log: Path = Path()
    """Where its log is: Slurm's own for a job that ended before its worker could write one."""
    changed: tuple[str, ...] = ()
    """What it sets otherwise than its preset, in words: `lr 3e-3`."""
    losses: tuple[float, ...] = ()
    """The shape of its training loss, in a few values from its beginning to its end."""

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def is_live(self) -> bool:
        return self.run.state in LIVE

    @property
    def needs_a_look(self) -> bool:
        return self.alarm is not None and self.alarm.since > self.notes.seen

    @property
    def name(self) -> str:
        """What people call it: the name they gave it, else its preset."""
        return self.notes.name or self.run.preset

    def get(self, key: str) -> Any:
        """What the filter language asks about, by name; settings as `train.lr` or `lr`, once run.json has been read."""
        if (read := _FIELDS.get(key)) is not None:
            return read(self)
        if key in ("metric", self.run.metric_name):
            return self.run.metric_value
        config = self._config
        section, _, name = key.partition(".")
        if name:
            values = config.get(section)
            return values.get(name) if isinstance(values, dict) else None
        if key not in ("name", "path"):
            for values in config.values():
                if isinstance(values, dict) and key in values:
                    return values[key]
        return None

    @property
    def _config(self) -> dict[str, Any]:
        """As far as the sampling thread has read it: the screen waits for no disk."""
        known: dict[str, Any] = self.run.__dict__.get("config", {})
        return known

    @property
    def text(self) -> str:
        """What free words are searched in, lower-case."""
        known: str | None = self.__dict__.get("_text")
        if known is None:
            run, notes, config = self.run, self.notes, self._config
            title = str(config.get("title", ""))
            words = (run.id, run.method, run.dataset, title, notes.name, *notes.tags, notes.note, *self.changed)
            known = " ".join(words).lower()
            if config:
                self.__dict__["_text"] = known
        return known


_FIELDS: dict[str, Callable[[RunView], Any]] = {
    "text": lambda view: view.text,
    "id": lambda view: view.run.id,
    "name": lambda view: view.name,
    "preset": lambda view: view.run.preset,
    "state": lambda view: view.run.state,
    "reason": lambda view: view.run.reason,
    "family": lambda view: view.run.family,
    "method": lambda view: view.run.method,
    "dataset": lambda view: view.run.dataset,
    "seed": lambda view: view.run.seed,
    "study": lambda view: view.run.study,
    "host": lambda view: view.run.host,
    "device": lambda view: view.run.devices,
    "step": lambda view: view.run.step,
    "total": lambda view: view.run.total,
    "tag": lambda view: view.notes.tags,
    "note": lambda view: view.notes.note,
    "changed": lambda view: view.changed,
    "launcher": lambda view: view.run.launcher,
    "needs": lambda view: "look" if view.needs_a_look else "",
}
"""What a filter can ask of a run besides its settings and its metric."""


def pace_of(lines: Sequence[MetricLine], since: float | None = None) -> float | None:
    """Steps a second from the newest records by the wall clock, or from the step time when there is only one.

    Only records after `since`, the start of the present attempt, count: nobody worked while the run was stopped.
    """
    train = [line for line in lines if line.kind == "train" and line.t >= (since or 0.0)]
    if len(train) >= 2:
        steps, seconds = train[-1].step - train[0].step, train[-1].t - train[0].t
        if steps > 0 and seconds > 0:
            return steps / seconds
    step_time = train[-1].values.get("step_time", 0.0) if train else 0.0
    return 1 / step_time if step_time > 0 else None


def usual_gap(lines: Sequence[MetricLine]) -> float | None:
    """The usual time between two training records of the run; None before there are enough."""
    times = [line.t for line in lines if line.kind == "train"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return statistics.median(gaps) if len(gaps) >= 2 else None


def alarm_of(run: Run, lines: Sequence[MetricLine], moved: float, now: float) -> Alarm | None:
    """Whether the run needs a look. `moved`: when its step last changed, as far as seen."""
    if run.state == "failed":
        words = run.message or f"failed: {run.reason or 'unknown reason'}"
        return Alarm("failed", words, run.ended or run.heartbeat or run.created)
    if run.state == "lost":
        return Alarm("lost", run.message or "its processes are gone", run.heartbeat or run.created)
    if run.state != "running":
        return None
    for line in lines:
        loss = line.values.get("loss", 0.0)
        if not math.isfinite(loss):
            return Alarm("nonfinite", f"loss is {loss} at step {line.step}", line.t or now)
    gap = usual_gap(lines)
    if gap is not None and now - moved > max(STALL_AT_LEAST, STALL_FACTOR * gap):
        return Alarm("stalled", f"no step for {now - moved:.0f} s, usually {gap:.1f} s", moved + STALL_FACTOR * gap)
    return None


PASSING = ("stalled", "nonfinite")
"""Troubles a run may get over by itself; somebody should have seen them all the same."""


def lasting(before: Alarm | None, alarm: Alarm | None, seen: float) -> Alarm | None:
    """The alarm to show after the one shown before: one that passed stays until seen, one that lasts stays one."""
    if before is None or before.kind not in PASSING:
        return alarm
    if alarm is None:
        past = before if before.passed else replace(before, words=f"earlier: {before.words}", passed=True)
        return past if before.since > seen else None
    return replace(alarm, since=before.since) if alarm.kind == before.kind else alarm


def view_of(
    run: Run,
    lines: Sequence[MetricLine],
    notes: Notes,
    moved: float,
    now: float,
    log: Path | None = None,
    before: Alarm | None = None,
    changed: tuple[str, ...] = (),
    losses: tuple[float, ...] = (),
) -> RunView:
    live = run.state in ("running", "stopping")
    pace = pace_of(lines, run.started) if live else None
    left = (run.total - run.step) / pace if pace and run.total and run.state == "running" else None
    took = (run.ended - run.started) if run.ended and run.started else None
    last = next((line for line in reversed(lines) if line.kind == "train"), None)
    alarm = lasting(before, alarm_of(run, lines, moved, now), notes.seen)
    return RunView(run, pace, left, took, last, alarm, notes, log or run.folder.log, changed, losses)
