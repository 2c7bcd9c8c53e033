"""The list of runs: every run folder as one `Run`, read cheaply enough for thousands of them.

Runs that are over are kept in `runs/.index.json`, so that listing thousands of them costs two stats each. It is only
ever a shortcut: every entry carries the marks of the files it came from, and the file may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from oelm_core.errors import NotFound, Refused, did_you_mean
from oelm_core.home import runs_dir
from oelm_core.metric import default_metric, metric_named
from oelm_core.recipe import recorded_hash
from oelm_core.runs import outcomes
from oelm_core.runs.folder import RUN_ID, RunFolder, read_record, replace_file
from oelm_core.runs.metrics_file import MetricsReader
from oelm_core.runs.schema import Headline, Outcome, Result, RunRecord, RunState, Tuning, encode, is_draw, setting
from oelm_core.runs.status import ENDED, FINAL, Observer, RunStatus, derive, observer

INDEX, INDEX_SCHEMA = ".index.json", 4
WORTH_WRITING = 50
"""Runs that ended or went since the index was written, from which it is written again."""

Mark = tuple[int, int]
"""Modification time in nanoseconds and inode: changes whenever a file is replaced."""


class Run(Struct, frozen=True, dict=True):
    """What a list, a table or a comparison needs to know about one run."""

    path: str
    id: str
    preset: str
    method: str
    family: str
    dataset: str
    seed: int
    study: str | None
    config_hash: str
    """In the present form, whatever form run.json has."""
    created: float
    state: str
    reason: str | None
    message: str | None
    step: int
    total: int | None
    metric_name: str
    metric_value: float | None
    """Best validation value so far, or the final result's."""
    devices: tuple[str, ...]
    host: str
    heartbeat: float | None
    imported: bool
    started: float | None = None
    """When the present attempt's worker started, epoch seconds."""
    ended: float | None = None
    launcher: str = "local"
    attempt: int = 0
    tuning: Tuning | None = None
    unreadable: str | None = None
    """Which of the files that a list looks at cannot be read, and why; None for a sound folder."""

    @functools.cached_property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The whole configuration, read when it is first asked for: a list of thousands does without."""
        record = self.folder.read(RunRecord)
        return record.config if record else {}

    def setting(self, key: str, default: Any = None) -> Any:
        """A setting by its dotted key: `setting("train.lr")`."""
        return setting(self.config, key, default)

    @property
    def state_and_reason(self) -> str:
        """As in a sentence: stopped (user)."""
        return f"{self.state} ({self.reason})" if self.reason else self.state

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def is_draw(self) -> bool:
        """Whether it only tried a point of a tuning: no arm of a table."""
        return is_draw(self.tuning)


def list_runs(root: Path | None = None) -> list[Run]:
    """Every run in the runs folder, newest first. A folder that cannot be read is listed as `unknown`, with why."""
    root = root or runs_dir()
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Refused(f"cannot list the runs in {root}: {error.strerror}.") from None
    by = observer()
    _recall(root)
    runs = [_known(f"{root}/{name}") or read_run(RunFolder(root / name), by) for name in names]
    _keep(root, [run for run in runs if run.state in FINAL and _remembered[run.path].final is run])
    return sorted(runs, key=lambda run: (run.created, run.id), reverse=True)


def find_run(text: str, root: Path | None = None) -> Run:
    """The run whose id starts with `text`, or the newest for `@last`."""
    root = root or runs_dir()
    exact = root / text
    if text and os.sep not in text and not text.startswith((".", "@")) and exact.is_dir():
        return read_run(RunFolder(exact))
    runs = list_runs(root)
    if not runs:
        raise NotFound(f"no run '{text}': there are no runs in {root} yet.")
    if text == "@last":
        return runs[0]
    near = [run for run in runs if text and run.id.lower().startswith(text.lower())]
    if len(near) == 1:
        return near[0]
    if near:
        some = ", ".join(run.id for run in near[:3])
        raise NotFound(
            f"'{text}' could be {len(near)} runs ({some}{', ...' if len(near) > 3 else ''}); write more of it."
        )
    raise NotFound(f"no run '{text}'.{did_you_mean(text, [run.id for run in runs])} `oelm runs` lists them.")


# -- what was read before ----------------------------------------------------------------------------------------------


class HeadlineReader:
    """A run's headline metric: the final result's, else the best evaluation so far. A growing file is read once."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._evaluations = MetricsReader(folder.metrics, "eval")
        self._best: float | None = None
        self._result_mark: Mark | None = None
        self._result: Headline | None = None
        self._unreadable_result: str | None = None

    @property
    def unreadable(self) -> str | None:
        """Why result.json or metrics.jsonl did not tell."""
        return self._unreadable_result or self._evaluations.problem

    def read(self, config: dict[str, Any]) -> tuple[str, float | None]:
        """(name, value or None)."""
        now = mark(f"{self._folder.path}/{Result.FILE}")
        if now != self._result_mark:  # a resumed run has no result yet
            result = self._folder.read(Result) if now else None
            self._result, self._result_mark = result.metric if result else None, now
            self._unreadable_result = self._folder.unreadable(Result) if result is None else None
        if self._result is not None:
            return self._result.name, self._result.value
        name = headline_metric(config)
        restarted, evaluations = self._evaluations.read_new()
        if restarted:
            self._best = None
        for evaluation in evaluations:
            value = evaluation.values.get(name)
            if value is not None and abs(value) < float("inf") and metric_named(name).better(value, self._best):
                self._best = value
        return name, self._best


def headline_metric(config: dict[str, Any]) -> str:
    """The name of the headline metric a configuration asks for."""
    return str(setting(config, "data.metric") or default_metric(setting(config, "data.classes")))


class _Remembered(Struct):
    """What was read of a folder, and the marks of the files it came from."""

    marks: tuple[Mark | None, Mark | None] = (None, None)
    run: RunRecord | None = None
    headline: HeadlineReader | None = None
    final: Run | None = None


_remembered: dict[str, _Remembered] = {}


def read_run(folder: RunFolder, by: Observer | None = None) -> Run:
    """One run, read again only where its files changed."""
    path = str(folder.path)
    memory = _remembered.setdefault(path, _Remembered())
    marks = _marks(path)
    if memory.final is not None and marks == memory.marks:
        return memory.final
    if memory.run is None or marks[0] != memory.marks[0]:
        memory.run = folder.read(RunRecord)
        if memory.run is None:
            return _unreadable(folder, folder.problem(RunRecord))
    state = folder.read(RunState)
    if state is None:
        status = RunStatus("unknown", None, folder.problem(RunState))
        state = RunState(state="unknown")
    else:
        said = None if state.state in FINAL else outcomes.last_word(folder)
        status = derive(state, said, by or observer(), folder.path)
        state.step = max(state.step, said.step if said else 0)  # the worker's last word is newer than the runner's
    memory.headline = memory.headline or HeadlineReader(folder)
    metric, value = memory.headline.read(memory.run.config)
    unreadable = memory.headline.unreadable
    if state.state not in FINAL:
        unreadable = unreadable or folder.unreadable(Outcome)
    run = _assemble(folder, memory.run, state, status, metric, value, unreadable)
    over = state.state in FINAL and unreadable is None  # what cannot be read may be mended
    memory.marks, memory.final = marks, run if over else None
    if over:
        memory.run = memory.headline = None  # thousands of configurations are not worth their memory
    return run


def _known(path: str) -> Run | None:
    """A run that is over, as it was read before: by far the most of a long list, and nothing is built for them."""
    memory = _remembered.get(path)
    return memory.final if memory is not None and memory.final is not None and memory.marks == _marks(path) else None


def _marks(path: str) -> tuple[Mark | None, Mark | None]:
    return mark(f"{path}/{RunRecord.FILE}"), mark(f"{path}/{RunState.FILE}")


def _assemble(
    folder: RunFolder,
    record: RunRecord,
    state: RunState,
    status: RunStatus,
    metric: str,
    value: float | None,
    unreadable: str | None = None,
) -> Run:
    return Run(
        path=str(folder.path),
        id=folder.id,
        preset=record.preset,
        method=str(record.setting("method.name", "")),
        family=str(record.setting("family", "")),
        dataset=str(record.setting("data.name", "")),
        seed=record.seed or 0,
        study=record.study,
        config_hash=recorded_hash(record),
        created=record.created,
        state=status.state,
        reason=status.reason,
        message=status.message,
        step=state.step,
        total=state.total,
        metric_name=metric,
        metric_value=value,
        devices=tuple(state.devices),
        host=state.host or record.host or "",
        heartbeat=state.heartbeat,
        imported=record.imported is not None,
        started=state.worker_started,
        ended=state.ended,
        launcher=record.launcher,
        attempt=state.attempt,
        tuning=record.tuning,
        unreadable=unreadable,
    )


def _unreadable(folder: RunFolder, why: str | None) -> Run:
    """A folder whose run.json tells nothing: it still has a line in the list, with the reason."""
    named = RUN_ID.match(folder.id)
    seed = int(named["seed"]) if named and len(named["seed"]) < 19 else 0
    record = RunRecord(preset=named["preset"] if named else folder.id, seed=seed, config={})
    return _assemble(folder, record, RunState(state="unknown"), RunStatus("unknown", None, why), "", None, why)


# -- the index ---------------------------------------------------------------------------------------------------------


class _Entry(Struct):
    """A run that is over, and the marks of its run.json and state.json."""

    run: Run
    marks: tuple[Mark, Mark]


class _Index(Struct):
    schema: int
    runs: list[_Entry]


_indexed: dict[str, tuple[Mark | None, set[str]]] = {}
"""By runs folder: the mark of the index as last read or written, and the runs in it."""


def mark(path: str) -> Mark | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _recall(root: Path) -> None:
    """Takes runs out of the index, unless it was read before; `read_run` looks whether their files are the same."""
    path = root / INDEX
    now = mark(str(path))
    if str(root) in _indexed and _indexed[str(root)][0] == now:
        return
    kept = read_record(path, _Index, size="index", follow=True)
    entries = kept.runs if kept is not None and kept.schema == INDEX_SCHEMA else []
    for entry in entries:
        if entry.run.path == f"{root}/{entry.run.id}":  # else the folder was moved
            _remembered.setdefault(entry.run.path, _Remembered(entry.marks, final=entry.run))
    _indexed[str(root)] = now, {entry.run.id for entry in entries}


def _keep(root: Path, over: list[Run]) -> None:
    """Writes the index when enough runs ended or went since it was written."""
    names = {run.id for run in over}
    _, known = _indexed.get(str(root), (None, set()))
    if len(names ^ known) < WORTH_WRITING:
        return
    marked = [(run, _remembered[run.path].marks) for run in over]
    entries = [_Entry(run, (first, second)) for run, (first, second) in marked if first and second]
    path = root / INDEX
    with contextlib.suppress(OSError):  # a read-only home is listed all the same, only slower
        replace_file(path, encode(_Index(INDEX_SCHEMA, entries)), durable=False)
        _indexed[str(root)] = mark(str(path)), names
