"""Builds a comparison from evidence: groups, and in each its arms, their pairs and the fairness audit."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oelm_core.compare.arms import (
    ArmEvidence,
    GroupKey,
    build_arm,
    find_baseline,
    named_baseline,
    own_baseline,
    require_baseline,
    split_arms,
    split_groups,
)
from oelm_core.compare.audit import audit_ablation, audit_pair, equal_settings, is_ablation
from oelm_core.compare.audit_runs import audit_machine_load, audit_seed_count
from oelm_core.compare.comparison import (
    Arm,
    ComparedStudy,
    Comparison,
    Finding,
    Group,
    Pair,
    Verdict,
    sort_findings,
)
from oelm_core.compare.control_presets import ControlPresets
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.settings import TargetBound, target_of
from oelm_core.compare.significance import pair_significance
from oelm_core.errors import NotFound
from oelm_core.formatting import listed, metric_value
from oelm_core.metric import metric_named

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


def build_comparison(
    evidence: Sequence[Evidence],
    catalogue: Catalogue,
    order: Sequence[str],
    notes: Sequence[str],
    *,
    asked: str | None = None,
    study: ComparedStudy | None = None,
) -> Comparison:
    """`order`: preset ids, as the arms are to stand. `asked`: the baseline by name. NotFound without any result."""
    if not any(e.has_result for e in evidence):
        raise NotFound(_nothing(evidence, study))
    rank = {preset.lower(): place for place, preset in enumerate(order)}
    split = split_groups(sorted(evidence, key=lambda e: (rank.get(e.preset.lower(), len(rank)), e.run.created)))
    arms_of = {key: split_arms(runs, order) for key, runs in split.items() if any(e.has_result for e in runs)}
    footnotes = list(notes)
    for key, runs in split.items():  # a group without any result is footnotes only
        footnotes += [line for e in runs if key not in arms_of for line in e.missing]
    require_baseline(asked, arms_of.values())
    if len(arms_of) > 1:
        names = [f"{key.dataset} ({key.metric}, {key.model})" for key in arms_of]
        footnotes.append(f"Not compared across: {listed(names)} are separate tables.")
    groups = [_group(key, arms, catalogue, asked) for key, arms in arms_of.items()]
    for group in groups:
        if len(group.arms) == 1:
            footnotes.append(f"{group.dataset}: only {group.arms[0].id} is there; nothing to set it against.")
        elif group.baseline is None:
            names = [arm.id for arm in group.arms]
            footnotes.append(f"{group.dataset}: no baseline arm among {listed(names)}; no differences.")
        footnotes += [line for arm in group.arms for line in arm.missing]
    return Comparison(tuple(groups), tuple(dict.fromkeys(footnotes)), study)


def _nothing(evidence: Sequence[Evidence], study: ComparedStudy | None) -> str:
    """Why there is no table, in a sentence, and what to do about it."""
    where = f"study {study.id}" if study else "these runs"
    states = Counter(e.run.state_and_reason for e in evidence)
    found = listed([f"{count} {state}" for state, count in states.items()]) or "none of it has run"
    hint = f" Start it with: oelm study {study.id}." if study else ""
    return f"nothing to compare in {where}: no run has a result; {found}.{hint}"


def _group(key: GroupKey, arms: list[ArmEvidence], catalogue: Catalogue, asked: str | None) -> Group:
    leader = find_baseline(arms, asked)
    if leader is not None:  # the baseline leads, the rest keep their order
        arms = [leader, *(arm for arm in arms if arm is not leader)]
    pairs, baselines = _pairs(arms, leader, asked)
    built = {arm.name: build_arm(arm, key.metric, is_baseline=arm.name in baselines) for arm in arms}
    return Group(
        *key,
        metric_named(key.metric).direction,
        leader.name if leader else None,
        tuple(built.values()),
        tuple(_pair(arm, base, built, key.metric) for arm, base in pairs),
        tuple(sort_findings(_audit(arms, pairs, baselines, ControlPresets(catalogue)))),
        equal_settings(arms),
    )


def _pairs(
    arms: list[ArmEvidence], leader: ArmEvidence | None, asked: str | None
) -> tuple[list[tuple[ArmEvidence, ArmEvidence]], set[str]]:
    """(arms with the baseline each is set against, names of the arms that are baselines)."""
    against = {arm.name: leader if asked else own_baseline(arm, arms, leader) for arm in arms if arm is not leader}
    chosen = {base.name for arm in arms if named_baseline(arm) and (base := against.get(arm.name))}
    pairs = [(arm, base) for arm in arms if arm.name not in chosen and (base := against.get(arm.name))]
    return pairs, chosen | ({leader.name} if leader else set())


def _audit(
    arms: list[ArmEvidence],
    pairs: list[tuple[ArmEvidence, ArmEvidence]],
    baselines: set[str],
    controls: ControlPresets,
) -> list[Finding]:
    found = [finding for arm, base in pairs for finding in audit_pair(base, arm, controls)]
    others = [arm for arm in arms if arm.name not in baselines]
    for place, one in enumerate(others):
        for other in others[place + 1 :]:
            if is_ablation(one.config, other.config):
                found += audit_ablation(one, other, controls)
    return [*found, *audit_machine_load(arms), *audit_seed_count(arms)] if pairs else found


def _pair(arm: ArmEvidence, base: ArmEvidence, built: dict[str, Arm], metric: str) -> Pair:
    ours, theirs = built[arm.name], built[base.name]
    significance = pair_significance(base, arm, metric)
    target = target_of(arm.config)
    judged = target.metric if target else metric
    value, bound = (side.mean(judged) if judged != metric else _headline(side) for side in (ours, theirs))
    verdict, why = _verdict(target, value, bound)
    saving = _change(ours, theirs, "trainable")
    return Pair(
        arm=arm.name,
        baseline=base.name,
        metric=metric,
        direction=metric_named(metric).direction,
        kind="points" if metric_named(metric).is_share else "relative",
        delta=significance.delta,
        interval=significance.interval,
        p=significance.p,
        verdict=verdict,
        verdict_why=why,
        retention=significance.kept if metric_named(metric).higher_is_better else None,
        parameter_saving=-saving if saving is not None else None,
        step_time_delta=_change(ours, theirs, "step_time"),
        seconds_delta=_change(ours, theirs, "seconds"),
        memory_delta=_change(ours, theirs, "memory"),
        tests=significance.tests,
        words=significance.words,
    )


def _headline(arm: Arm) -> float | None:
    return arm.metric.mean if arm.metric else None


def _change(ours: Arm, theirs: Arm, name: str) -> float | None:
    a, b = ours.mean(name), theirs.mean(name)
    return a / b - 1 if a is not None and b else None


_HOLDS = {">": operator.gt, ">=": operator.ge, "<=": operator.le}


def _verdict(target: TargetBound | None, value: float | None, baseline: float | None) -> tuple[Verdict, str]:
    """Whether an arm meets its preset's target, and why; the values are of the target's metric."""
    if target is None:
        return "no target", "the preset states no target"
    aim = _describe_target(target, baseline)
    if value is None:
        return "unknown", f"{aim}, not measured"
    bound = target.bound
    if target.of_baseline:
        if baseline is None:
            return "unknown", f"{aim}, which is not known"
        bound *= baseline
    met = _HOLDS[target.sign](value, bound)
    return ("met" if met else "missed"), f"{aim}, measured {metric_value(target.metric, value, unit=True)}"


def _describe_target(target: TargetBound, baseline: float | None = None) -> str:
    """The target as a reader writes it: "accuracy > 80 %", "perplexity <= 1.05 x baseline (4.483)"."""
    metric, sign, bound, of_baseline = target
    if of_baseline:
        limit = f" ({metric_value(metric, bound * baseline, unit=True)})" if baseline is not None else ""
        return f"{metric} {sign} {bound:g} x baseline{limit}"
    shown = f"{bound * 100:g} %" if metric_named(metric).is_share else f"{bound:g}"
    return f"{metric} {sign} {shown}"
