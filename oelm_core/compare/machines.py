"""On which cards the runs of a table were made, and whether those were proven by `oelm doctor --gpu`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oelm_core.compare.comparison import Machine
from oelm_core.compare.evidence import Evidence
from oelm_core.proof.record import proven


def machines(runs: Iterable[Evidence]) -> tuple[Machine, ...]:
    """Each once, with its latest proof; runs on a processor and imported ones have none."""
    found: dict[Machine, float | None] = {}
    for one in filter(None, map(_machine, runs)):
        same = replace(one, proven=None if one.proven is None else 0.0)  # proven or not are two machines
        found[same] = max(filter(None, (found.get(same), one.proven)), default=None)
    return tuple(replace(one, proven=when) for one, when in found.items())


def _machine(e: Evidence) -> Machine | None:
    """By what the run itself recorded; a proof made here after it counts as well, for it is of the same card."""
    device, torch = e.result.device, e.versions.get("torch")
    if device.kind != "cuda" or e.run.imported:
        return None
    when = device.proven or proven(e.run.host or "", device.uuids, device.driver, torch)
    return Machine(device.name or "a card", max(1, len(device.uuids)), device.driver, torch, when)
