"""What evaluations leave in a run folder: generated samples, per-example predictions, per-sequence losses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from oelm_core.runs.folder import RunFolder, numbered, read_record
from oelm_core.runs.schema import Losses, Misfit, Predictions, Sample, decode

TAIL = 4_000_000
"""Bytes looked at from the end of samples.jsonl."""
_STEP_FILE = re.compile(r"^step-(\d+)\.json$")


def read_samples(path: Path, most: int) -> list[Sample]:
    """The newest generated texts of a run, oldest first; torn lines are passed over."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines[-most - 1 :]:
        try:
            found.append(decode(line, Sample))
        except Misfit:
            continue
    return found


def best_predictions(folder: RunFolder) -> Predictions | None:
    """Those of the newest evaluation that was the best so far; of a torn file the one before it still counts."""
    for path in _newest_first(folder.predictions):
        found = read_record(path, Predictions)
        if found is not None and found.labels and len(found.labels) == len(found.predictions):
            return found
    return None


def best_losses(folder: RunFolder) -> Losses | None:
    for path in _newest_first(folder.losses):
        found = read_record(path, Losses)
        if found is not None and found.losses and len(found.losses) == len(found.tokens):
            return found
    return None


def step_of(path: Path) -> int | None:
    """The step in `step-500.json`; None for other files."""
    match = _STEP_FILE.match(path.name)
    return int(match[1]) if match else None


def _newest_first(folder: Path) -> Iterator[Path]:
    return (folder / f"step-{step}.json" for step in reversed(numbered(folder, "step-", ".json")))
