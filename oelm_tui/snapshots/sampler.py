"""Snapshots of the lab: lists runs, looks at the tails of live ones, joins notes and devices."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from oelm_core.changes import changed_settings
from oelm_core.errors import LabError, Refused
from oelm_core.launch import launcher
from oelm_core.runs.folder import RUN_ID, RunFolder, read_record, write_record
from oelm_core.runs.schema import MetricLine, Notes
from oelm_core.runs.store import Run, list_runs, read_run
from oelm_tui.snapshots.cards import Machine
from oelm_tui.snapshots.columns import MetricsTail, shape_of_loss
from oelm_tui.snapshots.run_view import RunView, view_of

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.launch.remote_devices import RemoteCard

CONFIG_SECONDS = 0.05
"""Reading configurations gets so much of each round until all are known, and so do the shapes of losses."""
MANY = 200
LOSSES_EVERY = 10.0
"""Seconds between two looks at the loss of a live run as a whole."""


@dataclass(frozen=True)
class LabSnapshot:
    """Everything the home screen shows besides the selected run's own files."""

    now: float
    runs: tuple[RunView, ...] = ()
    """Newest first."""
    machine: Machine | None = None
    """None before the first look at the devices."""
    catalogue: Catalogue | None = None
    problem: str = ""
    """Why the runs could not be listed, "" when they could."""
    partial: bool = False
    """Only the newest of many runs; the rest follows at once."""
    by_id: dict[str, RunView] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.by_id.update((view.id, view) for view in self.runs)

    def counts(self) -> Counter[str]:
        counted = Counter(view.run.state for view in self.runs)
        counted["look"] = sum(view.needs_a_look for view in self.runs)
        return counted

    def baseline_of(self, view: RunView) -> RunView | None:
        """The run to hold this one against: newest of its baseline preset, the same seed if there is one."""
        wanted = str(view.run.setting("baseline", "")).lower()
        found = [other for other in self.runs if wanted and other.run.preset.lower() == wanted and other.run.config]
        same_seed = [other for other in found if other.run.seed == view.run.seed]
        return next(iter(same_seed or found), None)


@dataclass
class Sources:
    """Where the facts come from; tests give their own clock, runs and devices."""

    runs: Callable[[], Sequence[Run]] = list_runs
    newest: Callable[[], Sequence[Run] | None] = lambda: None
    """Before the first full list: some of the newest runs, or None when the list is short enough to be read at once."""
    machine: Callable[[], Machine | None] = lambda: None
    now: Callable[[], float] = time.time
    remote: Callable[[Sequence[Run]], tuple[RemoteCard, ...]] = lambda runs: ()
    """Devices of runs on other machines."""
    trouble: Callable[[Sequence[Run]], str] = lambda runs: ""
    """What hinders the list from being the whole truth, such as Slurm's silence."""


@dataclass
class _Known:
    """What was read of one run and need not be read again."""

    marks: tuple[Any, ...] = ()
    config: dict[str, Any] | None = None
    tail: MetricsTail | None = None
    lines: list[MetricLine] = field(default_factory=list)
    step: int = -1
    moved: float = 0.0
    notes: Notes = field(default_factory=Notes)
    view: RunView | None = None
    changed: tuple[str, ...] = ()
    changed_by: int = 0
    """The catalogue that said so."""
    losses: tuple[float, ...] = ()
    losses_at: float = 0.0


class LabSampler:
    """`sample` is called by the sampling thread only."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.catalogue: Catalogue | None = None
        self._known: dict[str, _Known] = {}
        self._asked_newest = False
        self.seen: dict[str, float] = {}
        """Troubles seen on this screen only: in --readonly nothing is written."""
        self.wants_losses = False
        """Whether anybody sees the shapes of losses."""
        self._presets: tuple[int, dict[str, dict[str, Any]]] = (0, {})
        self._painted = False
        self.when_known: Callable[[], object] = lambda: None
        """Called when the configurations of all runs have been read, and again after many more."""
        self._known_of = -MANY

    def sample(self) -> LabSnapshot:
        now = self.sources.now()
        some, self._asked_newest = (None, True) if self._asked_newest else (self.sources.newest(), True)
        if some is not None:
            views = tuple(self._view(run, now) for run in some)
            return LabSnapshot(now, views, catalogue=self.catalogue, problem="reading the older runs", partial=True)
        try:
            runs = self.sources.runs()
            problem = self.sources.trouble(runs)
        except (LabError, OSError) as error:
            runs, problem = (), str(error)
        if self._painted:  # the first picture does not wait for it
            self._read_configs(runs)
            self._read_losses(runs, now)
        self._painted = True
        views = tuple(self._view(run, now) for run in runs)
        for gone in set(self._known) - {run.id for run in runs}:
            del self._known[gone]
        return LabSnapshot(now, views, self._machine(runs), self.catalogue, problem)

    def _machine(self, runs: Sequence[Run]) -> Machine | None:
        machine = self.sources.machine()
        remote = self.sources.remote(runs) if machine is not None else ()
        return replace(machine, remote=remote) if machine is not None and remote else machine

    def _read_configs(self, runs: Sequence[Run]) -> None:
        """Reads run.json here, a little each round, so that filter and launch form need not do it on the screen."""
        until = time.monotonic() + CONFIG_SECONDS
        missing = False
        for run in runs:
            known = self._known.setdefault(run.id, _Known())
            if known.config is None and time.monotonic() < until:
                known.config = run.config
            if known.config is None:
                missing = True
                continue
            run.__dict__.setdefault("config", known.config)  # it is written once: a newer Run has the same
            if known.changed_by != id(self.catalogue) and self.catalogue is not None and time.monotonic() < until:
                known.changed_by = id(self.catalogue)
                preset = self._preset_config(run.preset)
                known.changed = changed_settings(known.config, preset) if preset and not run.imported else ()

        if not missing and self.catalogue is not None and not 0 <= len(runs) - self._known_of <= MANY:
            self._known_of = len(runs)
            self.when_known()

    def _preset_config(self, name: str) -> dict[str, Any] | None:
        """A preset as a run's configuration would have it; None for one that is no longer there."""
        if self.catalogue is None:
            return None
        if self._presets[0] != id(self.catalogue):
            self._presets = id(self.catalogue), {}
        by_id = self._presets[1]
        if name not in by_id:
            from oelm_core.config import as_dict  # late: pydantic only when the catalogue is there anyway

            found = self.catalogue.experiments.get(name)
            by_id[name] = as_dict(found) if found is not None else {}
        return by_id[name]

    def _read_losses(self, runs: Sequence[Run], now: float) -> None:
        """The shape of each run's loss, a few each round: once for a run that is over, now and then for a live one."""
        if not self.wants_losses:
            return
        until = time.monotonic() + CONFIG_SECONDS
        for run in runs:
            known = self._known.setdefault(run.id, _Known())
            if known.losses_at and (run.is_over or now - known.losses_at < LOSSES_EVERY):
                continue
            if time.monotonic() > until:
                return
            known.losses, known.losses_at = shape_of_loss(run.folder.metrics), now

    def _view(self, run: Run, now: float) -> RunView:
        known = self._known.setdefault(run.id, _Known())
        notes_mark = _mark(run.folder.path / Notes.FILE)
        live = run.state in ("running", "stopping", "starting")
        metrics_mark = _mark(run.folder.metrics) if live else None
        seen = self.seen.get(run.id, 0.0)
        marks = (run, notes_mark, metrics_mark, seen, known.changed, known.losses)
        if known.view is not None and not live and _same(known.marks, marks):
            return known.view
        if run.step != known.step:
            # A run first seen standing still counts from its last sign of life, not from when we came.
            known.moved = now if known.step >= 0 else (run.started or run.created)
            known.step = run.step
        if not known.marks or notes_mark != known.marks[1]:
            known.notes = read_notes(run)
        if metrics_mark is not None and (not known.marks or metrics_mark != known.marks[2]):
            known.tail = known.tail or MetricsTail(run.folder.metrics)
            known.lines = list(known.tail.read())
            newest = max((line.t for line in known.lines), default=0.0)
            known.moved = max(known.moved, min(newest, now))
        elif not live:
            known.lines = []
        known.marks = marks
        notes = msgspec.structs.replace(known.notes, seen=max(known.notes.seen, seen)) if seen else known.notes
        before = known.view.alarm if known.view is not None else None
        known.view = view_of(
            run, known.lines, notes, known.moved, now, launcher.log_path(run), before, known.changed, known.losses
        )
        return known.view


def newest_runs(root: Path, most: int = 60, when_more_than: int = 300) -> list[Run] | None:
    """The newest runs by the time in their ids, when there are many: enough for a first picture."""
    try:
        names = [name for name in os.listdir(root) if not name.startswith(".")]
    except OSError:
        return None
    if len(names) <= when_more_than:
        return None
    dated = sorted((match["stamp"], match.string) for name in names if (match := RUN_ID.match(name)))
    runs = [read_run(RunFolder(root / name)) for _, name in dated[-most:]]
    return sorted(runs, key=lambda run: (run.created, run.id), reverse=True)


def slurm_silence(runs: Sequence[Run]) -> str:
    """For the header: that Slurm does not answer, when it was asked about a run of its own."""
    if not any(run.launcher == "slurm" for run in runs):
        return ""
    return "Slurm does not answer: its runs as last heard of" if launcher.slurm_problem() else ""


def read_notes(run: Run) -> Notes:
    """The run's notes; of a file that cannot be read, why not."""
    return run.folder.read(Notes) or Notes(note=run.folder.unreadable(Notes) or "")


def write_notes(run: Run, **changes: Any) -> None:
    """Joins changes into notes.json; what other readers wrote there stays, and so does what cannot be read."""
    path = run.folder.path / Notes.FILE
    if problem := run.folder.unreadable(Notes):
        raise Refused(f"{run.id}: {problem} Nothing is written over it; move it away.")
    changed = msgspec.structs.replace(read_notes(run), **changes)
    write_record(path, {**(read_record(path, dict) or {}), **msgspec.to_builtins(changed)})


def _same(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    # A finished run is the very same object as long as its files did not change.
    return bool(before) and before[0] is after[0] and before[1:] == after[1:]


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
