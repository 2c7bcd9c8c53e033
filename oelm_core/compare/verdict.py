"""Does an arm meet its preset's target? Absolute bounds, or multiples of the baseline."""

from __future__ import annotations

import operator
from typing import Literal

from oelm_core.compare.settings import TargetBound
from oelm_core.formatting import metric_value
from oelm_core.metric import metric_named

Verdict = Literal["met", "missed", "unknown", "no target"]
_HOLDS = {">": operator.gt, ">=": operator.ge, "<=": operator.le}


def target_verdict(target: TargetBound | None, value: float | None, baseline: float | None) -> tuple[Verdict, str]:
    """(verdict, why) of the arm's `value` of the target's metric. `baseline` is the baseline's value of the same."""
    if target is None:
        return "no target", "the preset states no target"
    aim = describe_target(target, baseline)
    if value is None:
        return "unknown", f"{aim}, not measured"
    bound = target.bound
    if target.of_baseline:
        if baseline is None:
            return "unknown", f"{aim}, which is not known"
        bound *= baseline
    met = _HOLDS[target.sign](value, bound)
    return ("met" if met else "missed"), f"{aim}, measured {metric_value(target.metric, value, unit=True)}"


def describe_target(target: TargetBound, baseline: float | None = None) -> str:
    """The target as a reader writes it: "accuracy > 80 %", "perplexity <= 1.05 x baseline (4.483)"."""
    metric, sign, bound, of_baseline = target
    if of_baseline:
        limit = f" ({metric_value(metric, bound * baseline, unit=True)})" if baseline is not None else ""
        return f"{metric} {sign} {bound:g} x baseline{limit}"
    shown = f"{bound * 100:g} %" if metric_named(metric).is_share else f"{bound:g}"
    return f"{metric} {sign} {shown}"
