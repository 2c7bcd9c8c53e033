"""The list of runs: every run folder as one `Run`, read cheaply enough for thousands of them."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from oelm_core.errors import NotFound, Refused, did_you_mean
from oelm_core.metric import default_metric, metric_named
from oelm_core.runs import index
from oelm_core.runs.folder import RUN_ID, RunFolder, runs_dir
from oelm_core.runs.metrics_file import MetricsReader
from oelm_core.runs.schema import Headline, Outcome, Result, RunRecord, RunState, setting
from oelm_core.runs.status import ENDED, FINAL, Observer, RunStatus, derive, observer


@dataclass(frozen=True)
class Run:
    """What a list, a table or a comparison needs to know about one run."""

    folder: RunFolder = field(compare=False)
    id: str
    preset: str
    method: str
    family: str
    dataset: str
    seed: int
    study: str | None
    config_hash: str
    created: float
    state: str
    reason: str | None
    message: str | None
    step: int
    total: int | None
    metric_name: str
    metric_value: float | None
    """Best validation value so far, or the final result's."""
    devices: list[str] = field(hash=False)
    host: str
    heartbeat: float | None
    imported: bool
    started: float | None = None
    """When the present attempt's worker started, epoch seconds."""
    ended: float | None = None
    launcher: str = "local"
    attempt: int = 0

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The whole configuration, read when it is first asked for: a list of thousands does without."""
        record = self.folder.read(RunRecord)
        return record.config if record else {}

    def setting(self, key: str, default: Any = None) -> Any:
        """A setting by its dotted key: `setting("train.lr")`."""
        return setting(self.config, key, default)

    @property
    def is_over(self) -> bool:
        return self.state in ENDED


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
    index.recall(root, _remember_final)
    runs = [read_run(RunFolder(root / name), by) for name in names]
    over = [run for run in runs if run.state in FINAL and _remembered[str(run.folder.path)].final is run]
    index.keep(root, {run.id for run in over}, lambda: {run.id: _final_fields(run) for run in over})
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
        self._result_mark: index.Mark | None = None
        self._result: Headline | None = None

    def read(self, config: dict[str, Any]) -> tuple[str, float | None]:
        """(name, value or None)."""
        mark = index.mark(f"{self._folder.path}/{Result.FILE}")
        if mark != self._result_mark:  # a resumed run has no result yet
            result = self._folder.read(Result) if mark else None
            self._result, self._result_mark = result.metric if result else None, mark
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


@dataclass
class _Remembered:
    """What was read of a folder, and the marks of the files it came from."""

    marks: tuple[index.Mark | None, index.Mark | None] = (None, None)
    run: RunRecord | None = None
    headline: HeadlineReader | None = None
    final: Run | None = None


_remembered: dict[str, _Remembered] = {}


def read_run(folder: RunFolder, by: Observer | None = None) -> Run:
    """One run, read again only where its files changed."""
    path = str(folder.path)
    memory = _remembered.setdefault(path, _Remembered())
    marks = index.mark(f"{path}/{RunRecord.FILE}"), index.mark(f"{path}/{RunState.FILE}")
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
        status = derive(state, None if state.state in FINAL else folder.read(Outcome), by or observer())
    memory.headline = memory.headline or HeadlineReader(folder)
    run = _assemble(folder, memory.run, state, status, *memory.headline.read(memory.run.config))
    over = state.state in FINAL
    memory.marks, memory.final = marks, run if over else None
    if over:
        memory.run = memory.headline = None  # thousands of configurations are not worth their memory
    return run


def _final_fields(run: Run) -> dict[str, Any]:
    """What the index keeps of a run that is over."""
    marks = _remembered[str(run.folder.path)].marks
    kept = {one.name: getattr(run, one.name) for one in fields(run) if one.name != "folder"}
    return {**kept, "marks": marks}


def _remember_final(root: Path, name: str, kept: dict[str, Any]) -> None:
    """Takes a run out of the index; `read_run` looks whether its files are still the same."""
    path = f"{root}/{name}"
    if path in _remembered:
        return
    try:
        run_mark, state_mark = kept.pop("marks")
        run = Run(folder=RunFolder(root / name), **kept)
    except (TypeError, ValueError, KeyError):
        return  # written by another version
    _remembered[path] = _Remembered(marks=(tuple(run_mark), tuple(state_mark)), final=run)


def _assemble(
    folder: RunFolder, record: RunRecord, state: RunState, status: RunStatus, metric: str, value: float | None
) -> Run:
    return Run(
        folder=folder,
        id=folder.id,
        preset=record.preset,
        method=str(record.setting("method.name", "")),
        family=str(record.setting("family", "")),
        dataset=str(record.setting("data.name", "")),
        seed=record.seed or 0,
        study=record.study,
        config_hash=record.config_hash,
        created=record.created,
        state=status.state,
        reason=status.reason,
        message=status.message,
        step=state.step,
        total=state.total,
        metric_name=metric,
        metric_value=value,
        devices=state.devices,
        host=state.host or record.host or "",
        heartbeat=state.heartbeat,
        imported=record.imported is not None,
        started=state.worker_started,
        ended=state.ended,
        launcher=record.launcher,
        attempt=state.attempt,
    )


def _unreadable(folder: RunFolder, why: str | None) -> Run:
    """A folder whose run.json tells nothing: it still has a line in the list, with the reason."""
    named = RUN_ID.match(folder.id)
    record = RunRecord(
        preset=named["preset"] if named else folder.id, seed=int(named["seed"]) if named else 0, config={}
    )
    return _assemble(folder, record, RunState(state="unknown"), RunStatus("unknown", None, why), "", None)
