"""Parameter counts of presets, kept in the cache: counting loads torch, and the answer only changes with the code."""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from oelm_core.runs.folder import home, read_json, write_json

if TYPE_CHECKING:
    from oelm_core.config import Experiment

_COUNTS = ("total", "trainable", "frozen")


def kept_census(experiment: Experiment) -> Mapping[str, Any]:
    """{total, trainable, frozen} of an experiment; arms that differ only in data or rates are counted once."""
    alike = (experiment.model, experiment.data.classes, experiment.method.model_copy(update={"name": ""}))
    name = hashlib.sha256(f"{_code()} {alike!r}".encode()).hexdigest()[:16]
    path = home() / "cache" / "census" / f"{name}.json"
    kept = read_json(path)
    if kept and all(isinstance(kept.get(part), int) for part in _COUNTS):
        return kept
    # by name: counting needs torch, which this room must not import with itself
    found = msgspec.to_builtins(importlib.import_module("oelm_core.method.census").census_of(experiment))
    counted = {part: int(found[part]) for part in _COUNTS}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, counted)
    except OSError:
        pass  # a home that cannot be written only costs the time to count again
    return counted


@functools.cache
def _code() -> str:
    """Names the code that decides a count."""
    core = Path(__file__).parent.parent
    files = [core / "method" / "census.py", core / "method" / "freezing.py", *sorted((core / "models").glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
