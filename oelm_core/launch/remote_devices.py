"""Devices of runs on other nodes, as their own workers report them: nobody logs in to a node to look."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from oelm_core.runs import attempts, process
from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run

TAIL = 1 << 16
"""Bytes looked at from the end of metrics.jsonl: a system sample is never far back."""


class Sample(NamedTuple):
    """What one run last said about the devices it uses. None where it did not say."""

    run: str
    node: str
    devices: tuple[str, ...]
    utilisation: float | None
    """Percent."""
    memory_used: float | None
    """Bytes of the card's memory that the run holds."""
    cpu: float | None
    """Percent of one core."""
    host_memory: float | None
    at: float | None
    """When it was measured, epoch seconds."""


def samples(runs: Sequence[Run], here: str | None = None) -> list[Sample]:
    """The latest sample of every live run on another machine than this one (`here`), by node and run."""
    here = here or process.host()
    found = [sample(run) for run in runs if run.state in LIVE and run.devices and run.host not in ("", here)]
    return sorted(found, key=lambda one: (one.node, one.devices, one.run))


def sample(run: Run) -> Sample:
    slurm = (attempts.last(run.folder) or {}).get("slurm") or {}
    said = _last_system(run.folder.metrics)
    memory = said.get("memory_reserved", said.get("memory"))
    return Sample(
        run.id,
        str(slurm.get("node") or run.host),
        tuple(run.devices),
        said.get("util"),
        memory,
        said.get("cpu"),
        said.get("host_memory"),
        said.get("t"),
    )


def _last_system(path: Path) -> dict[str, float]:
    """The newest complete `system` record near the end of a metrics file; {} where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().split(b"\n")[:-1]  # what follows the last line break is still being written
    except OSError:
        return {}
    for line in reversed(lines):
        if b'"system"' in line:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("kind") == "system":
                return {key: float(value) for key, value in record.items() if isinstance(value, int | float)}
    return {}
