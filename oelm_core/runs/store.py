"""The list of runs: every run folder as one `Run`, read cheaply enough for thousands of them."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from oelm_core.errors import NotFound, Refused, did_you_mean
from oelm_core.runs import index
from oelm_core.runs.folder import RUN_ID, RunFolder, runs_dir
from oelm_core.runs.headline import Headline, headline
from oelm_core.runs.status import FINAL, Here, RunStatus, derive, here


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
        config = (self.folder.read_dict("run") or {}).get("config")
        return config if isinstance(config, dict) else {}

    @property
    def is_over(self) -> bool:
        return self.state in FINAL or self.state == "lost"


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
    reader = here()
    index.recall(root, _remember_final)
    runs = [read_run(RunFolder(root / name), reader) for name in names]
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


@dataclass
class _Remembered:
    """What was read of a folder, and the marks of the files it came from."""

    marks: tuple[index.Mark | None, index.Mark | None] = (None, None)
    run: dict[str, Any] = field(default_factory=dict)
    headline: Headline = field(default_factory=Headline)
    final: Run | None = None


_remembered: dict[str, _Remembered] = {}


def read_run(folder: RunFolder, reader: Here | None = None) -> Run:
    """One run, read again only where its files changed."""
    path = str(folder.path)
    memory = _remembered.get(path)
    if memory is None:
        memory = _remembered[path] = _Remembered()
    marks = index.mark(f"{path}/run.json"), index.mark(f"{path}/state.json")
    if memory.final is not None and marks == memory.marks:
        return memory.final
    if not memory.run or marks[0] != memory.marks[0]:
        content = folder.read_dict("run")
        if content is None or not isinstance(content.get("config"), dict):
            return _unreadable(folder)
        memory.run = content
    state = folder.read_dict("state")
    over = state is not None and state.get("state") in FINAL
    truth = derive(state, None if over else folder.read_dict("outcome"), reader or here())
    run = _assemble(folder, memory, state or {}, truth)
    memory.marks, memory.final = marks, run if over else None
    if over:
        memory.run = {}  # thousands of configurations are not worth their memory
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


def _assemble(folder: RunFolder, memory: _Remembered, state: dict[str, Any], truth: RunStatus) -> Run:
    content = memory.run
    config = content["config"]
    name, value = headline(folder, config, memory.headline)
    method, data = config.get("method"), config.get("data")
    return Run(
        folder=folder,
        id=folder.id,
        preset=str(content.get("preset", "")),
        method=str(method.get("name", "")) if isinstance(method, dict) else "",
        family=str(config.get("family", "")),
        dataset=str(data.get("name", "")) if isinstance(data, dict) else "",
        seed=_whole(content.get("seed")) or 0,
        study=content.get("study"),
        config_hash=str(content.get("config_hash", "")),
        created=_seconds(content.get("created")) or 0.0,
        state=truth.state,
        reason=truth.reason,
        message=truth.message,
        step=_whole(state.get("step")) or 0,
        total=_whole(state.get("total")),
        metric_name=name,
        metric_value=value,
        devices=[str(device) for device in state.get("devices") or []],
        host=str(state.get("host") or content.get("host") or ""),
        heartbeat=_seconds(state.get("heartbeat")),
        imported=bool(content.get("imported")),
        started=_seconds(state.get("worker_started")),
        ended=_seconds(state.get("ended")),
        launcher=str(content.get("launcher") or "local"),
        attempt=_whole(state.get("attempt")) or 0,
    )


def _unreadable(folder: RunFolder) -> Run:
    """A folder whose run.json tells nothing: it still has a line in the list, with the reason."""
    try:
        (folder.path / "run.json").read_bytes()
        why = "run.json is not what a run writes."
    except OSError as error:
        why = f"run.json cannot be read: {error.strerror}."
    named = RUN_ID.match(folder.id)
    return Run(
        folder=folder,
        id=folder.id,
        preset=named["preset"] if named else folder.id,
        method="",
        family="",
        dataset="",
        seed=int(named["seed"]) if named else 0,
        study=None,
        config_hash="",
        created=0.0,
        state="unknown",
        reason=None,
        message=why,
        step=0,
        total=None,
        metric_name="",
        metric_value=None,
        devices=[],
        host="",
        heartbeat=None,
        imported=False,
    )


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None
