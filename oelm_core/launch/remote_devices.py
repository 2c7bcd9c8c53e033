"""Devices of runs on other nodes, as their own workers report them: nobody logs in to a node to look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oelm_core.runs import attempts, process
from oelm_core.runs.metrics_file import read_tail
from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run

TAIL = 1 << 16
"""Bytes looked at from the end of metrics.jsonl: a system sample is never far back."""


class DeviceSample(NamedTuple):
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


def samples(runs: Sequence[Run], here: str | None = None) -> list[DeviceSample]:
    """The latest sample of every live run on another machine than this one (`here`), by node and run."""
    here = here or process.host()
    found = [sample(run) for run in runs if run.state in LIVE and run.devices and run.host not in ("", here)]
    return sorted(found, key=lambda one: (one.node, one.devices, one.run))


def sample(run: Run) -> DeviceSample:
    attempt = attempts.last(run.folder)
    node = attempt.slurm.node if attempt and attempt.slurm else None
    lines = read_tail(run.folder.metrics, TAIL, "system")
    said = lines[-1].values if lines else {}
    return DeviceSample(
        run.id,
        node or run.host,
        tuple(run.devices),
        said.get("util"),
        said.get("memory_reserved", said.get("memory")),
        said.get("cpu"),
        said.get("host_memory"),
        lines[-1].t if lines else None,
    )
