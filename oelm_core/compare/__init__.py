"""Comparison: pairing, numbers, statistics, fairness audit, verdicts; computed from run folders, never typed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from oelm_core.compare.arms import build_arm
from oelm_core.compare.audit import Subject, audit_ablation, audit_pair, equal_settings, is_ablation, merged, ordered
from oelm_core.compare.audit_runs import load_finding, one_seed_finding
from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, Measure, Pair, SignificanceTest, StudyInfo
from oelm_core.compare.control_presets import Controls
from oelm_core.compare.evidence import Evidence, gather
from oelm_core.compare.pairing import (
    ArmRuns,
    arms_of,
    find_baseline,
    newest_per_seed,
    own_baseline,
    require_baseline,
    split_groups,
)
from oelm_core.compare.selection import study_runs
from oelm_core.compare.significance import weigh
from oelm_core.compare.verdict import judge
from oelm_core.errors import NotFound
from oelm_core.formatting import listed
from oelm_core.metric import metric_named
from oelm_core.published.audit import audit_published
from oelm_core.published.column import column_findings, with_doubts

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.runs.store import Run

__all__ = [
    "Arm",
    "Comparison",
    "Finding",
    "Group",
    "Measure",
    "Pair",
    "SignificanceTest",
    "audit_published",
    "compare",
    "compare_runs",
    "compare_study",
    "with_published",
]


def compare(
    what: Study | Sequence[Run], catalogue: Catalogue, *, runs: Iterable[Run] = (), baseline: str | None = None
) -> Comparison:
    """The door: a study (with `runs` to choose from) or a list of runs."""
    if isinstance(what, Sequence):
        return compare_runs(what, catalogue, baseline=baseline)
    return compare_study(what, list(runs), catalogue, baseline=baseline)


def compare_runs(runs: Sequence[Run], catalogue: Catalogue, *, baseline: str | None = None) -> Comparison:
    """Any set of runs, grouped by data, model and metric; unfinished ones are shown and marked as such.

    `baseline`: a run id, a prefix of one, or a preset. Raises NotFound when there is nothing at all to compare.
    """
    evidence, notes = newest_per_seed(gather(run) for run in runs)
    return _compare(evidence, catalogue, baseline, notes, order=list(catalogue.experiments))


def compare_study(
    study: Study, runs: Sequence[Run], catalogue: Catalogue, *, baseline: str | None = None
) -> Comparison:
    """The finished runs of a study's presets, the newest per configuration and seed; the rest are footnoted."""
    evidence, notes = study_runs(study, runs)
    info = StudyInfo(study.id, study.title, study.question, study.table, tuple(study.seeds))
    return _compare(evidence, catalogue, baseline, notes, order=study.arms, study=info)


def with_published(comparison: Comparison, catalogue: Catalogue) -> Comparison:
    """The comparison with the audit of what the author published about its presets."""
    presets = [arm.preset for group in comparison.groups for arm in group.arms]
    return dataclasses.replace(comparison, published=tuple(audit_published(catalogue, only=presets)))


def _compare(
    evidence: Sequence[Evidence],
    catalogue: Catalogue,
    asked: str | None,
    notes: list[str],
    order: Sequence[str],
    study: StudyInfo | None = None,
) -> Comparison:
    usable = [e for e in evidence if "metric" in e.values]
    if not usable:
        raise NotFound(_nothing(evidence, study))
    rank = {preset.lower(): place for place, preset in enumerate(order)}
    evidence = sorted(evidence, key=lambda e: (rank.get(e.preset.lower(), len(rank)), e.created))
    split = split_groups(evidence)
    groups = {
        key: arms_of(members, order)
        for key, members in split.items()
        if any("metric" in e.values for e in members)  # a group without any result is footnotes only
    }
    notes = notes + [line for key, members in split.items() if key not in groups for e in members for line in e.missing]
    require_baseline(asked, groups.values())
    if len(groups) > 1:
        names = [f"{dataset} ({metric}, {model})" for _, dataset, model, metric in groups]
        notes = [*notes, f"Not compared across: {listed(names)} are separate tables."]
    built = [_group(key, arms, catalogue, asked) for key, arms in groups.items()]
    for group in built:
        if group.baseline is None and len(group.arms) > 1:
            notes.append(
                f"{group.dataset}: no baseline arm among {listed([a.id for a in group.arms])}; no differences."
            )
        elif len(group.arms) == 1:
            notes.append(f"{group.dataset}: only {group.arms[0].id} is there; nothing to set it against.")
        notes += [line for arm in group.arms for line in arm.missing]
    return Comparison(tuple(built), tuple(dict.fromkeys(notes)), study)


def _nothing(evidence: Sequence[Evidence], study: StudyInfo | None) -> str:
    """Why there is no table, in a sentence, and what to do about it."""
    where = f"study {study.id}" if study else "these runs"
    states = Counter(f"{e.state} ({e.reason})" if e.reason else e.state for e in evidence)
    found = listed([f"{count} {state}" for state, count in states.items()]) or "none of it has run"
    hint = f" Start it with: oelm study {study.id}." if study else ""
    return f"nothing to compare in {where}: no run has a result; {found}.{hint}"


def _group(key: tuple[str, str, str, str], arms: list[ArmRuns], catalogue: Catalogue, asked: str | None) -> Group:
    family, dataset, model, metric = key
    base = find_baseline(arms, asked)
    if base is not None:  # the baseline leads, the rest keep their order
        arms = [base, *(arm for arm in arms if arm is not base)]
    against = {arm.name: own_baseline(arm, arms, base, asked is not None) for arm in arms if arm is not base}
    chosen = {id(against[arm.name]) for arm in arms if arm.config.get("baseline") and arm.name in against}
    against = {name: partner for name, partner in against.items() if id(_named(arms, name)) not in chosen}
    leaders = chosen | {id(base)}
    plain = [build_arm(a.name, a.runs, catalogue, metric, is_baseline=id(a) in leaders) for a in arms]
    built = {arm.id: arm for arm in with_doubts(plain, catalogue, metric)}
    pairs, audit, controls = [], [], Controls(catalogue)
    for arm in arms:
        partner = against.get(arm.name)
        if partner is None or partner is arm:
            continue
        pairs.append(_pair(arm, partner, built, metric))
        audit += audit_pair(_subject(partner), _subject(arm), controls)
    others = [arm for arm in arms if id(arm) not in leaders]
    for place, one in enumerate(others):
        for other in others[place + 1 :]:
            if is_ablation(one.config, other.config):
                audit += audit_ablation(_subject(one), _subject(other), controls)
    if pairs:
        sides = [(arm.name, arm.config, arm.runs) for arm in arms]
        audit += load_finding(sides) + one_seed_finding(sides)
    audit += column_findings(list(built.values()))
    direction: Literal["higher", "lower"] = arms[0].newest.direction
    return Group(
        family,
        dataset,
        model,
        metric,
        direction,
        base.name if base else None,
        tuple(built.values()),
        tuple(pairs),
        tuple(merged(ordered(audit))),
        equal_settings([_subject(arm) for arm in arms]),
    )


def _named(arms: Sequence[ArmRuns], name: str) -> ArmRuns:
    return next(arm for arm in arms if arm.name == name)


def _subject(arm: ArmRuns) -> Subject:
    return Subject(arm.name, arm.config, arm.runs, arm.newest.preset)


def _pair(arm: ArmRuns, base: ArmRuns, built: dict[str, Arm], metric: str) -> Pair:
    ours, theirs = built[arm.name], built[base.name]
    weighed = weigh(base.runs, arm.runs, arm.name, metric)
    value, bound = (side.metric.mean if side.metric else None for side in (ours, theirs))
    if ours.target and ours.target.get("metric") not in (None, metric):
        value, bound = (side.mean(str(ours.target["metric"])) for side in (ours, theirs))
    verdict, why = judge(ours.target, value, bound, metric)
    higher = arm.newest.direction == "higher"
    return Pair(
        arm=arm.name,
        baseline=base.name,
        metric=metric,
        direction=arm.newest.direction,
        kind="points" if metric_named(metric).is_share else "relative",
        delta=weighed.delta,
        interval=weighed.interval,
        p=weighed.p,
        verdict=verdict,
        verdict_why=why,
        retention=weighed.kept if higher else None,
        parameter_saving=_saving(ours, theirs),
        step_time_delta=_change(ours, theirs, "step_time"),
        seconds_delta=_change(ours, theirs, "seconds"),
        memory_delta=_change(ours, theirs, "memory"),
        tests=weighed.tests,
        words=weighed.words,
    )


def _change(ours: Arm, theirs: Arm, name: str) -> float | None:
    a, b = ours.mean(name), theirs.mean(name)
    return a / b - 1 if a is not None and b else None


def _saving(ours: Arm, theirs: Arm) -> float | None:
    change = _change(ours, theirs, "trainable")
    return -change if change is not None else None
