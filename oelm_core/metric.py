"""The metrics a run can be judged by: which way is better, whether it is a share of one, its short name.

A new metric is a line here, and the function that computes it in `oelm_core/scores.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar


class Metric(NamedTuple):
    name: str
    higher_is_better: bool
    is_share: bool
    """A fraction of one: shown in percent, and differences in points."""
    short: str
    computed_from: Literal["predictions", "losses"] = "predictions"
    """What of a run's best evaluation is paired with another's to test a difference."""

    @property
    def direction(self) -> Literal["higher", "lower"]:
        return "higher" if self.higher_is_better else "lower"

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value that a model can have."""
        if self.is_share:
            return (-1.0 if self.name.endswith("matthews") else 0.0), 1.0
        return {"perplexity": 1.0, "loss": 0.0}.get(self.name, -math.inf), math.inf

    def better(self, value: float, than: float | None) -> bool:
        """Strictly better, so that of equal values the earlier stays the best. Any number is better than none."""
        if than is None or math.isnan(than):
            return True
        return value > than if self.higher_is_better else value < than

    def gap(self, value: float, base: float) -> float:
        """How far a value is from that of its baseline: a difference for a share, else relative (0.05: 5 % more)."""
        return value - base if self.is_share else value / base - 1


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", higher_is_better=True, is_share=True, short="acc"),
        Metric("f1", higher_is_better=True, is_share=True, short="F1"),
        Metric("matthews", higher_is_better=True, is_share=True, short="mcc"),
        Metric("perplexity", higher_is_better=False, is_share=False, short="ppl", computed_from="losses"),
        Metric("loss", higher_is_better=False, is_share=False, short="loss", computed_from="losses"),
    )
}


def headline_metrics() -> list[str]:
    """Those a preset can name as `data.metric`."""
    return [name for name in METRICS if name != "loss"]


def further_scores() -> list[str]:
    """Those of a classifier beside its accuracy."""
    return [name for name, one in METRICS.items() if one.computed_from == "predictions" and name != "accuracy"]


def metric_named(name: str | None) -> Metric:
    """The metric of a name; `mismatched_accuracy`, of another split, is an accuracy. An unknown one: higher is better.

    >>> metric_named("mismatched_f1").short, metric_named("speed").short
    ('F1', 'speed')
    """
    name = name or ""
    found = METRICS.get(name) or METRICS.get(name.rpartition("_")[2])
    return found or Metric(name, higher_is_better=True, is_share=False, short=name)


def default_metric(classes: int | None) -> str:
    """The headline of an experiment that names none: perplexity for language models, accuracy for classifiers."""
    return "perplexity" if classes is None else "accuracy"


Scored = TypeVar("Scored", bound=Mapping[str, Any])


def best_of(evaluations: Iterable[Scored], name: str) -> Scored | None:
    """The evaluation with the best finite value of a metric, the earliest of equal ones; None where there is none."""
    best: Scored | None = None
    for one in evaluations:
        value = one.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            continue
        if best is None or metric_named(name).better(value, best[name]):
            best = one
    return best
