"""A study's plan, hashed and written down when it is launched: arms, seeds, metric, margins, comparisons and data.

`$OELM_HOME/studies/<study>-<hash8>.json` holds the plan, a line of the ledger says when it was registered and with
which hash. Launching the same plan again changes nothing; another plan of the same study is registered beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from oelm_core.errors import first_line
from oelm_core.recipe import config_hash
from oelm_core.runs import ledger, process, schema
from oelm_core.runs.folder import read_record, write_record
from oelm_core.runs.ledger import Ledger, LedgerEvent, ledger_path
from oelm_core.runs.schema import Record

if TYPE_CHECKING:
    from oelm_core.config import Experiment, Study


class PlannedArm(Struct, kw_only=True):
    """An arm as it is to be run."""

    preset: str
    baseline: str | None = None
    config_hash: str
    family: str
    dataset: str
    metric: str
    target: dict[str, str | float] | None = None
    """The margin: what counts as success."""


class PlannedData(Struct, kw_only=True):
    """Text that the arms read. Files are named by their content where they are here, else by their path."""

    name: str
    fingerprint: str | None = None
    path: str | None = None
    test: str | None = None
    """What is held back for the end: a split, or the content of a file."""


class Plan(Struct, kw_only=True):
    """What a study is going to compare; its hash names it."""

    study: str
    arms: list[PlannedArm]
    seeds: list[int]
    comparisons: list[tuple[str, str]]
    """The family that p-values are adjusted over: each arm against its baseline, and the declared contrasts."""
    data: list[PlannedData]

    @property
    def hash(self) -> str:
        import hashlib

        return hashlib.sha256(schema.encode(self)).hexdigest()[:32]


class Registration(Record, kw_only=True):
    """studies/<study>-<hash8>.json: a plan, when it was registered and by whom."""

    hash: str
    when: float
    who: str
    plan: Plan


def plan_of(study: Study, arms: Sequence[Experiment], seeds: Sequence[int]) -> Plan:
    """The plan of a study whose arms carry all that was `--set`."""
    from oelm_core.config import as_dict

    planned = [
        PlannedArm(
            preset=arm.id,
            baseline=arm.baseline,
            config_hash=config_hash(as_dict(arm)),
            family=arm.family,
            dataset=arm.data.name,
            metric=arm.metric,
            target=arm.target.model_dump(exclude_none=True) if arm.target else None,
        )
        for arm in arms
    ]
    names = {arm.id.lower(): arm.id for arm in arms}
    against = [(arm.id, names[arm.baseline.lower()]) for arm in arms if arm.baseline and arm.baseline.lower() in names]
    data = {(arm.data.name, arm.data.path, arm.data.test): arm for arm in arms}
    return Plan(
        study=study.id,
        arms=planned,
        seeds=sorted(set(seeds)),
        comparisons=list(dict.fromkeys([*against, *study.contrasts])),
        data=[_planned_data(arm) for arm in data.values()],
    )


def _planned_data(arm: Experiment) -> PlannedData:
    fingerprint, test = _fingerprint(arm.data.path), arm.data.test
    return PlannedData(
        name=arm.data.name,
        fingerprint=fingerprint,
        path=None if fingerprint else arm.data.path,
        test=_fingerprint(test) or test,
    )


def _fingerprint(path: str | None) -> str | None:
    """Names the content of a file or folder; None for what is not on this machine."""
    from oelm_core.data.files import fingerprint_files  # late: it knows parquet

    place = Path(path).expanduser() if path else None
    if place is None or not place.exists():
        return None
    try:
        inside = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
        return fingerprint_files([file for file in inside if not file.name.startswith(".")])
    except OSError:
        return None


# -- writing -----------------------------------------------------------------------------------------------------------


def studies_dir(root: Path | None = None) -> Path:
    """Beside the ledger; `root` is the folder of runs."""
    return ledger_path(root).parent / "studies"


def register(plan: Plan, root: Path | None = None) -> RegisteredPlan | None:
    """Registers a plan unless it is already; None, with a sentence on stderr, where that cannot be written."""
    told = ledger.read_ledger(root)
    before = next((one for one in reversed(registrations(plan.study, told)) if one.hash == plan.hash), None)
    if before is not None and before.plan is not None:
        return before
    who = f"{process.user_name()}@{process.host()}"
    made = Registration(hash=plan.hash, when=time.time(), who=who, plan=plan)
    try:
        folder = studies_dir(root)
        folder.mkdir(parents=True, exist_ok=True)
        write_record(_file(folder, plan.study, plan.hash), made)
    except OSError as error:
        ledger.warn(f"the plan of {plan.study} cannot be registered ({first_line(error)}): its table will say so.")
        return None
    ledger.append(LedgerEvent(event="registered", study=plan.study, plan=plan.hash, when=made.when, who=who), root)
    return RegisteredPlan(made.hash, made.when, plan)


def _file(folder: Path, study: str, plan_hash: str) -> Path:
    return folder / f"{study}-{plan_hash[:8]}.json"


# -- reading -----------------------------------------------------------------------------------------------------------


class RegisteredPlan(Struct, frozen=True):
    """A registration as the ledger tells it; `plan` is None where its file is gone or was changed since."""

    hash: str
    when: float
    plan: Plan | None


def registrations(study: str, told: Ledger) -> list[RegisteredPlan]:
    """Every plan of a study that was registered, the earliest first. The ledger's word on the time counts."""
    found = []
    for event in told.of("registered"):
        if event.plan is None or (event.study or "").lower() != study.lower():
            continue
        file = _file(told.path.parent / "studies", event.study or study, event.plan)
        kept = read_record(file, Registration, follow=True)
        plan = kept.plan if kept is not None and kept.plan.hash == event.plan else None
        found.append(RegisteredPlan(event.plan, event.when, plan))
    return found
