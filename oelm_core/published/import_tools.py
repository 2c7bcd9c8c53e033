"""Reads what transformers' Trainer, TensorBoard, W&B and MLflow leave in a folder. None of their libraries is needed.

Everything is read as data: a Trainer's pickled training_args.bin, for one, is never opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yaml import YAMLError

from oelm_core.config.plain_yaml import read_yaml
from oelm_core.errors import BadInput
from oelm_core.published import wire_format as wire
from oelm_core.published.import_checkpoint import count_checkpoint
from oelm_core.published.import_logged import End, LoggedRun
from oelm_core.published.import_settings import one_line
from oelm_core.runs.schema import Misfit, decode
from oelm_core.small_files import FileKind, open_plain_file, read_small_file

TRAINER, DATABASE = "trainer_state.json", "mlflow.db"
_STATES: dict[str, End] = {"3": "finished", "4": "failed", "FINISHED": "finished", "FAILED": "failed"}
"""MLflow's, of both its stores."""
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})")
_EVENTS = re.compile(r"events\.out\.tfevents\..+")
_PARTS = {"train": "train", "validation": "eval", "val": "eval", "valid": "eval", "eval": "eval"}
"""Folders of one TensorBoard run that hold its parts."""
_MOST_RECORDS = 5_000_000


def tool_of(folder: Path) -> str | None:
    """Which tool's run a folder holds: trainer, wandb, mlflow or tensorboard; None for none of them."""
    return next((kind for kind, (looks, _) in READERS.items() if looks(folder)), None)


def read_tool(folder: Path, kind: str) -> list[LoggedRun]:
    """The run in a folder of that tool, the runs of a database; BadInput where there is nothing of use in it."""
    read = READERS[kind][1](folder)
    runs = [run for run in (read if isinstance(read, list) else [read]) if run.points]
    if not runs:
        notes = [] if isinstance(read, list) else read.notes
        why = f" ({one_line(notes[0].rstrip('.'))})" if notes else ""
        raise BadInput(f"{folder}: nothing to import; its files hold no training loss and no validation{why}.")
    return runs


def _content(run: LoggedRun, file: Path, kind: FileKind) -> bytes | None:
    """A file's content, which then counts for the fingerprint; None, noted, for one that cannot be read."""
    run.file = file.name
    try:
        content = read_small_file(file, kind)
    except OSError as error:
        run.notes.append(f"unreadable: {one_line(file.name)}, {error.strerror}; it is left out.")
        return None
    run.digest.update(file.name.encode("utf-8", "replace") + content)
    return content


def _json(run: LoggedRun, file: Path) -> dict[str, Any]:
    content = _content(run, file, "import") if file.is_file() else None
    try:
        return decode(content, dict[str, Any]) if content is not None else {}
    except Misfit as misfit:
        run.notes.append(f"unreadable: {one_line(file.name)}, {misfit}; it is left out.")
        return {}


# -- transformers.Trainer ----------------------------------------------------------------------------------------------


def _checkpoints(folder: Path) -> list[Path]:
    """By step, those that hold a state."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
    return [path for _, path in sorted(found) if (path / TRAINER).is_file()]


def _is_trainer(folder: Path) -> bool:
    if (folder / TRAINER).is_file():
        return True
    return bool(_checkpoints(folder))


def _read_trainer(folder: Path) -> LoggedRun:
    """The state of the folder itself, else of its newest checkpoint; both have the whole history."""
    checkpoints = _checkpoints(folder)
    place = folder if (folder / TRAINER).is_file() else checkpoints[-1]
    run = LoggedRun(folder, "trainer", folder.name)
    if _CHECKPOINT.fullmatch(folder.name):
        run.name = folder.parent.name
    state = _json(run, place / TRAINER)
    history = state.get("log_history", [])
    if not isinstance(history, list):
        run.leave_out("log_history", "it is not a list")
        history = []
    for entry in history:
        if not isinstance(entry, dict):
            run.leave_out("log_history", "one of its entries is not a map")
            continue
        step = entry.get("step")
        if "train_runtime" in entry:  # the summary at the end, whose loss is a mean over all of it
            runtime = entry["train_runtime"]
            if isinstance(runtime, int | float):
                run.seconds = float(runtime)
            else:
                run.leave_out("train_runtime", "it is not a number")
            continue
        for name, value in entry.items():
            run.add(name, value, step)
    last, total = state.get("global_step"), state.get("max_steps")
    if isinstance(total, int) and 0 < total <= 10**15:
        run.total = total
        run.ended = "finished" if isinstance(last, int) and last >= total else "stopped"
    beside = next((one for one in (place, folder, *reversed(checkpoints)) if (one / "config.json").is_file()), place)
    model = _json(run, beside / "config.json")
    architectures = str(model.get("architectures") or "")
    run.is_language_model = "CausalLM" in architectures or "LMHead" in architectures
    run.is_encoder = model.get("model_type") in ("bert", "roberta")
    if isinstance(labels := model.get("id2label"), dict):
        run.tell({"num_labels": len(labels)})
    run.tell(model)
    run.tell(
        {key: state[key] for key in ("train_batch_size", "num_train_epochs", "max_steps") if key in state}, TRAINER
    )
    weights = beside / "model.safetensors"
    if weights.is_file() and not weights.is_symlink():
        run.counts = count_checkpoint(weights)
    return run


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def _event_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if _EVENTS.fullmatch(file.name) and file.is_file())


def _parts(folder: Path) -> dict[str, Path]:
    """Folders of event files that are parts of one run, as Keras writes them: eval -> validation/."""
    there = {part: folder / name for name, part in _PARTS.items() if (folder / name).is_dir()}
    return {part: inner for part, inner in there.items() if _event_files(inner)}


def _is_tensorboard(folder: Path) -> bool:
    return bool(_event_files(folder)) or len(_parts(folder)) > 1


def _read_tensorboard(folder: Path) -> LoggedRun:
    run = LoggedRun(folder, "tensorboard", folder.name)
    files = [("", file) for file in _event_files(folder)]
    files += [(part, file) for part, inner in _parts(folder).items() for file in _event_files(inner)]
    for prefix, file in files:
        content = _content(run, file, "log")
        try:
            for number, record in enumerate(wire.tensorboard_records(content or b"")):
                if number > _MOST_RECORDS:
                    break
                _event(run, record, prefix)
        except wire.BrokenRecord as broken:
            run.notes.append(f"{one_line(file.name)} is read up to {broken}.")
    return run


def _event(run: LoggedRun, record: bytes, prefix: str) -> None:
    """Event: wall_time 1, step 2, summary 5; its values 1 have tag 1 and simple_value 2 or tensor 8."""
    summaries = wire.parts(record, 5)
    when = wire.number(record, 1) or 0.0
    step = wire.integer(record, 2) or 0
    for summary in summaries:
        for value in wire.parts(summary, 1):
            number = wire.number(value, 2)
            if number is None and (tensors := wire.parts(value, 8)):
                number = _scalar(tensors[0])
            if number is not None:
                run.created = when if run.created is None else min(run.created, when)
                run.add(wire.text(value, 1), number, step, when, prefix)


def _scalar(tensor: bytes) -> float | None:
    """TensorProto of one float: dtype 1 is 1 (float) or 2 (double); its value packed in 4, or in 5 or 6."""
    size = {1: 4, 2: 8}.get(wire.integer(tensor, 1) or 0)
    for number in (4, 5, 6):
        for value in wire.parts(tensor, number):
            if len(value) == size:
                return wire.number(tensor, number)
    return None


# -- W&B ---------------------------------------------------------------------------------------------------------------


def _wandb_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("run-*.wandb") if file.is_file())


def _read_wandb(folder: Path) -> LoggedRun:
    run = LoggedRun(folder, "wandb", folder.name)
    file = _wandb_files(folder)[0]
    content = _content(run, file, "log")
    try:
        for number, record in enumerate(wire.wandb_records(content or b"")):
            if number > _MOST_RECORDS:
                break
            for kind, value in wire.fields(record):
                if isinstance(value, bytes):
                    _wandb_record(run, kind, value)
    except wire.BrokenRecord as broken:
        run.notes.append(f"{one_line(file.name)} is read up to {broken}.")
    return run


def _wandb_record(run: LoggedRun, kind: int, record: bytes) -> None:
    """Record: history 2, config 5, run 17, exit 18."""
    if kind == 2:
        values = dict(_items(record, 1))
        step = next((wire.integer(one, 1) or 0 for one in wire.parts(record, 2)), values.get("_step", 0))
        step = values.get("train/global_step", values.get("trainer/global_step", step))
        when = values.get("_timestamp")
        for name, value in values.items():
            if not name.startswith("_"):
                run.add(name, value, step, float(when) if isinstance(when, int | float) else 0.0)
    elif kind == 5:
        run.tell(dict(_items(record, 1)))
    elif kind == 17:
        run.name = wire.text(record, 8) or wire.text(record, 1) or run.name
        for config in wire.parts(record, 4):
            run.tell(dict(_items(config, 1)))
        for start in wire.parts(record, 17):
            run.created = float(wire.integer(start, 1) or 0)
    elif kind == 18:
        run.ended = "failed" if wire.integer(record, 1) else "finished"


def _items(record: bytes, number: int) -> list[tuple[str, Any]]:
    """Key 1, or its parts 2; value as JSON 16, or of HistoryItem's own kinds: integer 5, number 6."""
    found: list[tuple[str, Any]] = []
    for item in wire.parts(record, number):
        key = wire.text(item, 1) or ".".join(part.decode("utf-8", "replace") for part in wire.parts(item, 2))
        try:
            value = json.loads(wire.text(item, 16)) if wire.parts(item, 16) else None
        except (ValueError, RecursionError):
            continue
        if value is None:
            value = wire.integer(item, 5)
        found.append((key, wire.number(item, 6) if value is None else value))
    return found


# -- MLflow ------------------------------------------------------------------------------------------------------------


def _is_mlflow(folder: Path) -> bool:
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def _read_mlflow(folder: Path) -> LoggedRun:
    """meta.yaml, params/NAME with its value, metrics/NAME with lines of time (ms), value, step."""
    run = LoggedRun(folder, "mlflow", folder.name)
    content = _content(run, folder / "meta.yaml", "yaml")
    try:
        meta = read_yaml((content or b"").decode("utf-8", "replace"))
    except YAMLError:
        run.notes.append("unreadable: meta.yaml, it is not YAML; it is left out.")
        meta = None
    if isinstance(meta, dict):
        run.name = one_line(str(meta.get("run_name") or "")) or run.name
        started = meta.get("start_time")
        run.created = started / 1000 if isinstance(started, int) and 0 <= started < 10**14 else None
        run.ended = _STATES.get(str(meta.get("status")), "stopped")
    for name, file in _files_below(folder / "params"):
        written = _content(run, file, "yaml")
        if written is not None:
            run.tell({name: written.decode("utf-8", "replace").strip()}, "params")
    for name, file in _files_below(folder / "metrics"):
        for line in (_content(run, file, "log") or b"").splitlines():
            words = line.split()
            try:
                when, value, step = int(words[0]) / 1000, float(words[1]), int(words[2]) if len(words) > 2 else 0
            except (ValueError, IndexError, OverflowError):
                run.leave_out(name, "a line is not a time, a number and a step")
                continue
            run.add(name, value, step, when)
    return run


def _files_below(folder: Path) -> list[tuple[str, Path]]:
    """A metric called eval/loss is a file in a folder."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [(file.relative_to(folder).as_posix(), file) for file in files]


def _is_mlflow_database(folder: Path) -> bool:
    return (folder / DATABASE).is_file()


def _read_mlflow_database(folder: Path) -> list[LoggedRun]:
    """MLflow's newer store: one SQLite file with all runs, opened as it lies there and only to read."""
    import sqlite3

    try:
        os.close(open_plain_file(folder / DATABASE))  # no link, no pipe
        place = (folder / DATABASE).resolve().as_uri()
        with contextlib.closing(sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"runs", "metrics", "params"} <= tables:
                raise BadInput(f"{folder / DATABASE}: it is no store of MLflow; it has no tables of runs and metrics.")
            return [_database_run(folder, database, *row) for row in database.execute(_RUNS)]
    except (sqlite3.Error, OSError) as error:
        raise BadInput(f"{folder / DATABASE}: it cannot be read as a store of MLflow ({error}).") from None


_RUNS = "SELECT run_uuid, name, status, start_time FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time"
_POINTS = "SELECT key, value, step, timestamp FROM metrics WHERE run_uuid = ? AND is_nan = 0 ORDER BY step LIMIT ?"


def _database_run(
    folder: Path, database: Any, number: object, name: object, status: object, start: object
) -> LoggedRun:
    run = LoggedRun(folder, "mlflow", one_line(str(name or number)))
    run.created = start / 1000 if isinstance(start, int) and 0 <= start < 10**14 else None
    run.ended = _STATES.get(str(status), "stopped")
    rows = database.execute("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", (number,)).fetchall()
    run.file = DATABASE
    run.tell({key: value for key, value in rows if isinstance(key, str)})
    run.digest.update(repr((number, name, status, rows)).encode("utf-8", "replace"))
    for key, value, step, when in database.execute(_POINTS, (number, _MOST_RECORDS)):
        run.digest.update(repr((key, value, step)).encode("utf-8", "replace"))
        if isinstance(key, str) and isinstance(when, int) and 0 <= when < 10**14:
            run.add(key, value, step, when / 1000)
    return run


READERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], LoggedRun | list[LoggedRun]]]] = {
    "trainer": (_is_trainer, _read_trainer),
    "wandb": (lambda folder: bool(_wandb_files(folder)), _read_wandb),
    "mlflow": (_is_mlflow, _read_mlflow),
    "mlflow database": (_is_mlflow_database, _read_mlflow_database),
    "tensorboard": (_is_tensorboard, _read_tensorboard),
}
"""Which folder is a run of whom, and how it is read; a Trainer's own state says more than what it sent elsewhere."""
