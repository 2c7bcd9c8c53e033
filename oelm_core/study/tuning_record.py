"""`$OELM_HOME/tuning/<id>/tuning.json`: the little that a tuning keeps beside its runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from oelm_core.config.tuning import Value
from oelm_core.errors import BadInput, Refused, refusing
from oelm_core.home import home
from oelm_core.runs.folder import read_record, write_record
from oelm_core.runs.schema import Record
from oelm_core.study.tuning_plan import TuningPlan


class Pruned(Struct, frozen=True):
    """A draw that was stopped early, written down before it is stopped."""

    arm: str
    point: int


class TuningRecord(Record, kw_only=True):
    """tuning.json: what was drawn, what was stopped early, what was chosen. The runs themselves tell the rest."""

    FILE = "tuning.json"

    schema: int = 1
    id: str
    study: str
    arms: list[str]
    space: dict[str, str]
    points: list[dict[str, Value]]
    seeds: list[int]
    fresh_seeds: list[int]
    pruner: str
    pruned: list[Pruned] = []
    chosen: dict[str, int] = {}
    """Arm -> point, once every draw of every arm is over; an arm whose draws all failed is not in it."""
    created: float = 0.0
    command: list[str] = []

    def write(self) -> None:
        path = tuning_folder(self.id) / self.FILE
        with refusing(f"cannot write {path}"):
            write_record(path, self)


def tuning_folder(name: str) -> Path:
    return home() / "tuning" / name


def continued(plan: TuningPlan, command: Sequence[str]) -> TuningRecord:
    """The record on disk with what this request adds to it, or a new one."""
    path = tuning_folder(plan.id) / TuningRecord.FILE
    record = read_record(path, TuningRecord, follow=True)
    if record is None and path.exists():
        raise Refused(f"{path} cannot be read; move it away to begin anew.")
    if record is None:
        record = TuningRecord(
            id=plan.id,
            study=plan.study.id,
            arms=[arm.id for arm in plan.arms],
            space={key: one.text for key, one in plan.space.items()},
            points=[],
            seeds=list(plan.seeds),
            fresh_seeds=[],
            pruner=plan.pruner,
            created=time.time(),
            command=list(command),
        )
    drawn = len(record.points)
    if len(plan.points) < drawn:
        raise BadInput(f"{plan.id} has {drawn} draws an arm already; write --budget {drawn}, or more to add to them.")
    if plan.asked_pruner and plan.asked_pruner != record.pruner:
        raise BadInput(f"{plan.id} began with the pruner {record.pruner}; all of its draws must have the same.")
    record.points += plan.points[drawn:]
    record.fresh_seeds = list(plan.fresh_seeds)
    record.write()
    return record
