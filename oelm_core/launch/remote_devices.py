"""Devices of runs on other nodes, as their own workers report them: nobody logs in to a node to look."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oelm_core.devices.card import Card, device_kind, short_devices
from oelm_core.runs import attempts, process
from oelm_core.runs.metrics_file import read_tail
from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run

TAIL = 1 << 16
"""Bytes looked at from the end of metrics.jsonl: a system sample is never far back."""


class RemoteCard(Card, frozen=True, kw_only=True):
    """What the run that holds it (`lease`) uses of a card on another machine, or of its processor."""

    node: str
    device: str
    """cpu, or its cards in short."""
    measured: float | None = None
    """When, epoch seconds; None while the run has not reported."""

    @property
    def label(self) -> str:
        return f"{self.node}:{self.device}"


def remote_cards(runs: Sequence[Run], here: str | None = None) -> list[RemoteCard]:
    """One for every live run on another machine than this one (`here`), by node."""
    here = here or process.host()
    found = [remote_card(run) for run in runs if run.state in LIVE and run.devices and run.host not in ("", here)]
    return sorted(found, key=lambda card: (card.node, card.device, card.lease))


def remote_card(run: Run) -> RemoteCard:
    attempt = attempts.last(run.folder)
    node = (attempt.slurm.node if attempt and attempt.slurm else None) or run.host
    lines = read_tail(run.folder.metrics, TAIL, "system")
    values = {name: value for name, value in lines[-1].values.items() if math.isfinite(value)} if lines else {}
    if device_kind(run.devices) == "cpu":
        used, memory = values.get("cpu"), values.get("host_memory")  # percent of one core
    else:
        used, memory = values.get("util"), values.get("memory_reserved", values.get("memory"))
    return RemoteCard(
        index=0,
        uuid=f"{node}/{run.id}",
        utilisation=None if used is None else round(used),
        memory_used=None if memory is None else round(memory),
        lease=run.id,
        node=node,
        device=short_devices(run.devices),
        measured=lines[-1].t if lines else None,
    )
