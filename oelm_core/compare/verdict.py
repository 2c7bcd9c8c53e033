"""Does an arm meet its preset's target? Absolute bounds, or multiples of the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oelm_core.formatting import metric_value
from oelm_core.metric import metric_named

Verdict = Literal["met", "missed", "unknown", "no target"]


def judge(
    target: Mapping[str, Any] | None, value: float | None, baseline: float | None, headline: str
) -> tuple[Verdict, str]:
    """(verdict, why) of the arm's `value` of the target's metric. `baseline` is the baseline's value of the same."""
    if not target:
        return "no target", "the preset states no target"
    metric = str(target.get("metric") or headline)
    sign, bound = next((s, target[k]) for k, s in _SIGNS.items() if target.get(k) is not None)
    said = describe(target, baseline)
    if value is None:
        return "unknown", f"{said}, not measured"
    if target.get("of") == "baseline":
        if baseline is None:
            return "unknown", f"{said}, which is not known"
        bound = bound * baseline
    met = {">": value > bound, ">=": value >= bound, "<=": value <= bound}[sign]
    return ("met" if met else "missed"), f"{said}, measured {metric_value(metric, value, unit=True)}"


_SIGNS = {"above": ">", "at_least": ">=", "at_most": "<="}


def describe(target: Mapping[str, Any], baseline: float | None = None) -> str:
    """The target as a reader writes it: "accuracy > 80 %", "perplexity <= 1.05 x baseline (4.483)"."""
    metric = str(target["metric"])
    sign, bound = next((s, target[k]) for k, s in _SIGNS.items() if target.get(k) is not None)
    if target.get("of") == "baseline":
        limit = f" ({metric_value(metric, bound * baseline, unit=True)})" if baseline is not None else ""
        return f"{metric} {sign} {bound:g} x baseline{limit}"
    shown = f"{bound * 100:g} %" if metric_named(metric).is_share else f"{bound:g}"
    return f"{metric} {sign} {shown}"
