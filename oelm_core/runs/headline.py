"""A run's headline metric: the final result's, or the best evaluation so far."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

from oelm_core.runs.folder import RunFolder


@dataclass
class Headline:
    """What is known so far, so that a growing metrics file is read once."""

    value: float | None = None
    offset: int = 0
    inode: int | None = None
    result_mark: int | None = None
    result: tuple[str, float | None] | None = None


def metric_of(config: dict[str, Any]) -> str:
    """The name of the headline metric a configuration asks for."""
    data = config.get("data")
    if not isinstance(data, dict):
        return "accuracy"
    return str(data.get("metric") or ("perplexity" if data.get("classes") is None else "accuracy"))


def is_better(name: str, value: float, than: float | None) -> bool:
    if than is None:
        return True
    return value < than if name in ("perplexity", "loss") else value > than


def headline(folder: RunFolder, config: dict[str, Any], memory: Headline) -> tuple[str, float | None]:
    """(name, best value so far or None); `memory` is kept by the caller and updated."""
    name = metric_of(config)
    final = _from_result(folder, memory)
    if final is not None:
        return final
    _read_evaluations(folder, name, memory)
    return name, memory.value


def _from_result(folder: RunFolder, memory: Headline) -> tuple[str, float | None] | None:
    try:
        mark = os.stat(folder.path / "result.json").st_mtime_ns
    except OSError:
        memory.result = memory.result_mark = None  # a resumed run has no result yet
        return None
    if mark != memory.result_mark:
        metric = (folder.read_dict("result") or {}).get("metric")
        memory.result_mark = mark
        memory.result = None
        if isinstance(metric, dict) and metric.get("name"):
            value = metric.get("value")
            memory.result = str(metric["name"]), float(value) if isinstance(value, int | float) else None
    return memory.result


def _read_evaluations(folder: RunFolder, name: str, memory: Headline) -> None:
    """Takes in the evaluations appended since last time; a file that was cut is read anew."""
    try:
        with open(folder.metrics, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != memory.inode or status.st_size < memory.offset:
                memory.value, memory.offset, memory.inode = None, 0, status.st_ino
            if status.st_size == memory.offset:
                return
            file.seek(memory.offset)
            chunk = file.read()
    except OSError:
        return
    whole = chunk.rfind(b"\n") + 1
    memory.offset += whole
    for line in chunk[:whole].splitlines():
        if b'"eval"' not in line:  # most lines are training steps: not worth parsing
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        value = record.get(name) if isinstance(record, dict) and record.get("kind") == "eval" else None
        if isinstance(value, int | float) and math.isfinite(value) and is_better(name, value, memory.value):
            memory.value = float(value)
