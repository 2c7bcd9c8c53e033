"""What a study planned and what is there, compared: seeds, arms, configurations, and when the plan was registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.compare.comparison import Arm, Finding, Grade, Group, Registered
from oelm_core.config.seeds import seed_ranges, seeds_option
from oelm_core.formatting import day, listed
from oelm_core.runs.ledger import Ledger
from oelm_core.runs.status import LIVE
from oelm_core.runs.tried import Tried
from oelm_core.study.registration import Plan, PlannedArm, RegisteredPlan, registrations

if TYPE_CHECKING:
    from oelm_core.config import Study

ANY = ""
"""A study's file names presets and seeds; what their settings were when it was run, nobody wrote down."""
DELETED = "ran as planned, deleted once the result was known"
SLACK = 1.0
"""Seconds by which two clocks may differ."""
LOOKED = "Seeds added after a look at the results make p too small (optional stopping)"


@dataclass(frozen=True)
class PlanBehind:
    """The plan a study is held against: the newest that was registered, else what its file says."""

    plan: Plan | None
    """None where what was registered cannot be read any more."""
    registered: RegisteredPlan | None = None
    earlier: tuple[RegisteredPlan, ...] = ()


def plan_behind(study: Study, ledger: Ledger) -> PlanBehind:
    found = registrations(study.id, ledger)
    if found:
        return PlanBehind(found[-1].plan, found[-1], tuple(found[:-1]))
    arms = [PlannedArm(preset=name, config_hash=ANY, family=ANY, dataset=ANY, metric=ANY) for name in study.arms]
    return PlanBehind(Plan(study=study.id, arms=arms, seeds=study.seeds, comparisons=[], data=[]))


def hold_against_plan(group: Group, behind: PlanBehind, tried: Sequence[Tried]) -> tuple[Registered, list[Finding]]:
    """(what the table says about its plan, a finding for each deviation).

    Deleted seeds are deviations without a finding of their own: the audit of what was tried grades them.
    """
    found = [*_registration(group, behind, tried)]
    if behind.plan is not None:
        for planned in behind.plan.arms:
            if planned.config_hash == ANY:
                there = [arm for arm in group.arms if arm.id.lower() == planned.preset.lower() and arm.metric]
                found += [one for arm in _own(there, tried) for one in _seeds(arm, behind.plan.seeds, tried)]
            elif (planned.family, planned.dataset) == (group.family, group.dataset):
                found += _arm(group, planned, behind.plan, tried)
    sentences = tuple(finding.sentence.rstrip(".") for finding in found)
    registered = behind.registered
    said = Registered(registered.hash if registered else None, registered.when if registered else None, sentences)
    return said, [finding for finding in found if DELETED not in finding.why]


def _finding(grade: Grade, arms: Sequence[str], why: str, settle: str | None = None) -> Finding:
    return Finding(grade, "registration", tuple(arms), why, settle)


def _registration(group: Group, behind: PlanBehind, tried: Sequence[Tried]) -> Iterator[Finding]:
    everyone = [arm.id for arm in group.arms]
    if behind.registered is None:
        yield _finding("note", everyone, "the study was never registered: it is held against what its file plans.")
        return
    if behind.plan is None:
        why = f"the plan registered as {behind.registered.hash[:8]} is gone or was changed: nothing shows what it was."
        yield _finding("confounds", everyone, why)
        return
    planned = {(arm.preset.lower(), arm.config_hash) for arm in behind.plan.arms}
    shown = {arm.preset.lower() for arm in group.arms}
    early = [
        one
        for one in tried
        if (one.preset.lower(), one.config_hash) in planned
        and one.preset.lower() in shown
        and one.created < behind.registered.when - SLACK
        and not one.imported
        and not one.is_draw
    ]
    if not early:
        return
    extended = any(one.plan is not None and _extends(behind.plan, one.plan) for one in behind.earlier)
    why = f"the plan was registered on {day(behind.registered.when)} after {len(early)} of its runs had begun"
    if extended:
        added = f"it adds seeds to the one of {day(behind.earlier[-1].when)}"
        yield _finding("note", everyone, f"{why}: {added}. {LOOKED}.")
    else:
        yield _finding("confounds", everyone, f"{why}: it may have been made to fit them.")


def _extends(plan: Plan, earlier: Plan) -> bool:
    """The same arms with more seeds."""
    same = {(arm.preset, arm.config_hash) for arm in plan.arms} == {(a.preset, a.config_hash) for a in earlier.arms}
    return same and set(plan.seeds) > set(earlier.seeds)


def _arm(group: Group, planned: PlannedArm, plan: Plan, tried: Sequence[Tried]) -> Iterator[Finding]:
    everyone = [arm for arm in group.arms if arm.preset.lower() == planned.preset.lower()]
    there = [arm for arm in everyone if arm in _own(everyone, tried) or arm.config_hash == planned.config_hash]
    if everyone and not there:
        return
    if not any(arm.metric for arm in there):
        names = [arm.id for arm in there] or [planned.preset]
        yield _finding("note", names, f"{planned.preset} was planned and has no result.")
        return
    exact = [arm for arm in there if arm.config_hash == planned.config_hash]
    for arm in there:
        if arm.config_hash != planned.config_hash:
            instead = "beside the one that was planned" if exact else "and the one that was planned is not here"
            why = f"{arm.id} ran with a configuration that was not planned, {instead}."
            yield _finding("confounds" if exact else "breaks", [arm.id], why)
    for arm in exact or there:
        yield from _seeds(arm, plan.seeds, tried)


def _own(arms: Sequence[Arm], tried: Sequence[Tried]) -> list[Arm]:
    """Without tuned arms, whose plan is registered when their setting is chosen, and imported ones, which have none."""
    imported = {one.id for one in tried if one.imported}
    return [arm for arm in arms if not arm.tuning and not imported.intersection(arm.runs)]


def _seeds(arm: Arm, seeds: Sequence[int], tried: Sequence[Tried]) -> Iterator[Finding]:
    """Planned seeds that are not there, each with what became of it, and seeds that nobody planned."""
    have = set(arm.seeds) if arm.metric else set()
    missing, extra = sorted(set(seeds) - have), sorted(have - set(seeds))
    if missing and extra:
        why = f"{arm.id} has {_named(extra)} and not {_named(missing)}, as planned: the seeds were chosen."
        yield _finding("breaks", [arm.id], why, _run(arm, missing))
        return
    for grade, words, which in _fates(arm, missing, tried):
        yield _finding(grade, [arm.id], f"{arm.id}, {_named(which)}: {words}.", _run(arm, which))
    if extra:
        yield _finding("note", [arm.id], f"{arm.id}, {_named(extra)}: added to what was planned. {LOOKED}.")


def _fates(arm: Arm, missing: Sequence[int], tried: Sequence[Tried]) -> Iterator[tuple[Grade, str, list[int]]]:
    """What became of the missing seeds: (grade, what happened, which)."""
    fates: dict[tuple[Grade, str], list[int]] = {}
    for seed in missing:
        runs = [
            one
            for one in tried
            if one.preset.lower() == arm.preset.lower()
            and one.config_hash == arm.config_hash
            and one.seed == seed
            and not one.is_draw
        ]
        fates.setdefault(_fate(runs), []).append(seed)
    for (grade, words), which in fates.items():
        yield grade, words, which


def _fate(runs: Sequence[Tried]) -> tuple[Grade, str]:
    if any(one.deleted and one.told_something for one in runs):
        return "breaks", DELETED
    if any(one.state in LIVE for one in runs):
        return "note", "planned, not finished yet"
    if any(one.diverged for one in runs):
        return "note", "planned, diverged, which counts as the worst"
    if any(one.state == "failed" for one in runs):
        reason = next(one.reason for one in runs if one.state == "failed")
        return "confounds", f"planned, failed ({reason or 'error'})"
    if runs:
        return "confounds", "planned, begun, not finished"
    return "note", "planned, never run"


def _named(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {listed(seed_ranges(seeds))}"


def _run(arm: Arm, seeds: Sequence[int]) -> str | None:
    if arm.id != arm.preset:
        return None
    return f"oelm run {arm.preset} {seeds_option(seeds)}"
