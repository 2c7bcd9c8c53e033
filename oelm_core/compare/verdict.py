"""Whether a target is met, missed or not decided, and what would decide it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from oelm_core.compare.comparison import Verdict
from oelm_core.compare.item_scores import level
from oelm_core.compare.settings import TargetBound
from oelm_core.compare.significance import ScoredArm, score_arm
from oelm_core.compare.statistics import (
    LEVEL,
    MOST_SEEDS,
    Estimate,
    Sample,
    Spread,
    contrast,
    resolved_by_examples,
    seeds_to_decide,
)
from oelm_core.formatting import metric_value, points, relative
from oelm_core.metric import metric_named


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict | None
    why: str
    seeds_needed: int | None = None


def judge(
    target: TargetBound | None, baseline: ScoredArm | None, arm: ScoredArm, others: Sequence[Spread] = ()
) -> Judgement:
    """A target is a claim of non-inferiority: met when the one-sided 95 % bound is inside, missed when outside."""
    if target is None:
        return Judgement(None, "the preset states no target")
    others = others if target.metric == arm.metric else ()
    arm, baseline = _in_metric(arm, target.metric), _in_metric(baseline, target.metric) if baseline else None
    ours, theirs = arm.sample, baseline.sample if baseline else None
    aim = describe_target(target, _mean(baseline.values) if baseline else None)
    lost = len(arm.arm.diverged)
    if ours is None:
        every = f"{aim}; all {lost} runs diverged" if lost > 1 else f"{aim}, not measured"
        return Judgement("missed" if lost > 1 else "undecided", every)
    if target.of_baseline and theirs is None:
        return Judgement("undecided", f"{aim}, which is not known")
    found, inside = _distance(target, ours, theirs, others)
    value = metric_value(target.metric, _mean(arm.values), unit=True)
    aim = f"{aim}, measured {value}"
    if lost:
        runs = lost + len(ours.scores)
        return Judgement("missed" if 2 * lost >= runs else "undecided", f"{aim}, but {lost} of {runs} runs diverged")
    fewest = min(len(ours.scores), len(theirs.scores) if theirs and target.of_baseline else len(ours.scores))
    if fewest < 2:
        needed = _needed(found)
        return Judgement("undecided", f"{aim} with one seed, which cannot tell", needed)
    bounds = found.interval(2 * LEVEL - 1)  # both one-sided bounds at once
    if bounds is None:
        return Judgement("undecided", f"{aim}; the spread between seeds is not known")
    low, high = bounds
    if (low > 0 if inside > 0 else high < 0) or (low == high == 0):
        return Judgement("met", aim)
    if high < 0 if inside > 0 else low > 0:
        return Judgement("missed", aim)
    needed = _needed(found)
    return Judgement("undecided", f"{aim}; {_what_decides(found, needed, target.metric)}", needed)


def _distance(
    target: TargetBound, ours: Sample, theirs: Sample | None, others: Sequence[Spread]
) -> tuple[Estimate, int]:
    """(arm less bound on the scale that is tested, which side of zero is inside: +1 above, -1 below)."""
    inside = -1 if target.sign == "<=" else 1
    is_share = metric_named(target.metric).is_share
    if target.of_baseline and theirs is not None:
        weight = target.bound if is_share else 1.0
        found = contrast([(1.0, ours), (-weight, theirs)], others)
        return (found if is_share else _shifted(found, -math.log(target.bound))), inside
    return _shifted(contrast([(1.0, ours)], others), -level(target.metric, target.bound)), inside


def _shifted(found: Estimate, by: float) -> Estimate:
    return replace(found, value=found.value + by)


def _needed(found: Estimate) -> int | None:
    return seeds_to_decide(found.per_seed, found.examples, found.value) if found.per_seed is not None else None


def _what_decides(found: Estimate, needed: int | None, metric: str) -> str:
    if needed is not None:
        return f"{needed} seeds a side would decide it"
    show = points if metric_named(metric).is_share else relative
    limit = resolved_by_examples(found.examples)
    if limit > abs(found.value):
        return f"no number of seeds will: {found.n:,} examples resolve ±{show(limit).lstrip('+')}"
    return f"it would take more than {MOST_SEEDS} seeds a side"


def _in_metric(scored: ScoredArm, metric: str) -> ScoredArm:
    """The arm scored in the target's metric, which need not be the headline, on the same basis."""
    return scored if metric == scored.metric else score_arm(scored.arm, metric, scored.basis)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def describe_target(target: TargetBound, baseline: float | None = None) -> str:
    """The target as a reader writes it: "accuracy > 80 %", "perplexity <= 1.05 x baseline (4.483)"."""
    metric, sign, bound, of_baseline = target
    if of_baseline:
        limit = f" ({metric_value(metric, bound * baseline, unit=True)})" if baseline is not None else ""
        return f"{metric} {sign} {bound:g} x baseline{limit}"
    shown = f"{bound * 100:g} %" if metric_named(metric).is_share else f"{bound:g}"
    return f"{metric} {sign} {shown}"
