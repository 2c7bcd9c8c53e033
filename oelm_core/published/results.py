"""Checks of published results: k of n, best against its own curve, differences, ratios, averages, one-seed claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from oelm_core.compare.comparison import Finding
from oelm_core.compare.statistics import mcnemar_range
from oelm_core.formatting import listed, metric_value, p_value, percent, points, relative
from oelm_core.metric import metric_named
from oelm_core.published.figures import Figure, cited, derived, figure, mean_figure, named

if TYPE_CHECKING:
    from oelm_core.config import Experiment


def granularity(experiment: Experiment, figures: Sequence[Figure]) -> Iterator[Finding]:
    """An accuracy on n examples is k of n; anything else was not measured on them."""
    n = experiment.data.eval_examples
    if not n or not experiment.published:
        return
    claimed = [("", one) for one in named(figures, "accuracy", "best_accuracy")]
    source = experiment.published.source
    claimed += [
        (f" at step {point.step:,}", figure("accuracy", point.accuracy, point.source or source))
        for point in experiment.published.curve
        if point.accuracy is not None
    ]
    impossible = [
        (where, one) for where, one in claimed if not any(one.low <= k / n <= one.high for k in _near(one, n))
    ]
    if impossible:
        each = [f"{percent(one.value)}{where} (nearest {_nearest(one, n)})" for where, one in impossible]
        why = f"{listed(each)} cannot be a share of {n:,} examples: no whole number of right answers gives it."
        values = tuple(one.value for where, one in impossible if not where)
        yield cited("breaks", "granularity", (experiment.id,), why, *(one for _, one in impossible), values=values)


def _near(one: Figure, n: int) -> range:
    return range(max(0, math.floor(one.low * n)), min(n, math.ceil(one.high * n)) + 1)


def _nearest(one: Figure, n: int) -> str:
    k = round(one.value * n)
    return f"{k}/{n} = {percent(k / n)}"


def best_against_curve(experiment: Experiment, figures: Sequence[Figure]) -> Iterator[Finding]:
    """The best of a run cannot be worse than a point of its own curve."""
    higher = metric_named(experiment.metric).higher_is_better
    drawn = experiment.published.curve if experiment.published else []
    points_of = [(p.step, getattr(p, experiment.metric, None)) for p in drawn]
    curve = [(step, value) for step, value in points_of if value is not None]
    claims = named(figures, experiment.metric, f"best_{experiment.metric}")
    if not curve or not claims:
        return
    pick = max if higher else min
    best = pick(claims, key=lambda one: one.value)
    step, peak = pick(curve, key=lambda point: point[1])
    top = figure(experiment.metric, peak)
    if best.high < top.low if higher else best.low > top.high:
        said, seen = (metric_value(experiment.metric, value, unit=True) for value in (best.value, peak))
        why = f"the best {experiment.metric} is given as {said}, but the run's own curve has {seen} at step {step:,}."
        yield cited("breaks", "best-below-curve", (experiment.id,), why, best)


def perplexity_and_loss(experiment: Experiment, figures: Sequence[Figure]) -> Iterator[Finding]:
    """Perplexity is exp of the loss, for the result and for every point of the curve."""
    if experiment.metric != "perplexity" or not experiment.published:
        return
    pairs = [("", ppl, loss) for ppl in named(figures, "perplexity") for loss in named(figures, "loss")]
    for point in experiment.published.curve:
        if point.perplexity is not None and point.loss is not None:
            loss = figure("loss", point.loss, point.source or "")
            pairs.append((f" at step {point.step:,}", figure("perplexity", point.perplexity), loss))
    for where, perplexity, loss in pairs:
        expected = derived("perplexity", math.exp, loss)
        if not expected.agrees(perplexity):
            why = f"perplexity {perplexity.value:g}{where} is not exp({loss.value:g}) = {expected.value:.3f}."
            yield cited("breaks", "perplexity-and-loss", (experiment.id,), why, perplexity, loss)


Show = Callable[[float], str]
GAPS: dict[str, tuple[Callable[[float, float], float], Show]] = {
    "delta": (lambda a, b: a - b, points),
    "relative_delta": (lambda a, b: a / b - 1, relative),
    "retention": (lambda a, b: a / b, percent),
}
"""Claims about an arm and what it is compared with: how they follow from the two results, and how they are written."""


def differences(
    claims: Sequence[Figure], arm: Experiment, reference: Experiment, values: dict[str, Figure]
) -> Iterator[Finding]:
    """Claimed gaps, retention and targets of `arm` against `reference`, recomputed from `values` (by preset id)."""
    ours, theirs = values.get(arm.id), values.get(reference.id)
    if ours is None or theirs is None:
        return
    other_gap = "delta" if arm.metric == "perplexity" else "relative_delta"
    for claim in claims:
        if claim.what in GAPS and claim.what != other_gap:
            compute, show = GAPS[claim.what]
            expected = derived(claim.what, compute, ours, theirs)
        elif claim.what == f"target_{arm.metric}" and arm.target and arm.target.of:
            factor, show = arm.target.at_most or arm.target.at_least or 1.0, "{:.3f}".format
            expected = derived(claim.what, lambda b, by=factor: b * by, theirs)
        else:
            continue
        if not expected.agrees(claim):
            pair = f"{_shown(arm, ours)} against {_shown(reference, theirs)}"
            name = claim.what.replace("_", " ")
            why = f"{name} given as {show(claim.value)}, but {pair} make {show(expected.value)}."
            yield cited("breaks", "ratio", (arm.id, reference.id), why, claim)


def _shown(experiment: Experiment, result: Figure) -> str:
    if experiment.metric == "perplexity":
        return f"{result.value:g}"  # as it was written
    return metric_value(experiment.metric, result.value, unit=True)


def averages(
    study_id: str, claims: Sequence[Figure], pairs: Sequence[tuple[Experiment, Experiment]], values: dict[str, Figure]
) -> Iterator[Finding]:
    """Averages over the data sets of a study, from its own pairs."""
    known = [(arm, base) for arm, base in pairs if arm.id in values and base.id in values]
    for claim in named(claims, "mean_delta", "mean_retention") if len(known) > 1 else []:
        compute, show = GAPS[claim.what.removeprefix("mean_")]
        each = [derived(claim.what, compute, values[arm.id], values[base.id]) for arm, base in known]
        mean = mean_figure(claim.what, each)
        if not mean.agrees(claim):
            parts, name = listed([show(one.value) for one in each]), claim.what.replace("_", " ")
            why = f"{name} given as {show(claim.value)}, but the table's own rows, {parts}, average {show(mean.value)}."
            source = f"{claim.source} (study {study_id})"
            yield Finding("breaks", "average", tuple(arm.id for arm, _ in known), why, source=source)


def one_seed(arm: Experiment, base: Experiment, values: dict[str, Figure]) -> Iterator[Finding]:
    """What a single pair of accuracies on n examples can prove, whatever the unpublished predictions were."""
    n = arm.data.eval_examples
    if not n or arm.metric != "accuracy" or arm.id not in values or base.id not in values:
        return
    wrong = [n - round(values[side.id].value * n) for side in (base, arm)]
    net = wrong[1] - wrong[0]
    if net == 0:
        return
    low, high, last = mcnemar_range(wrong[0], wrong[1], n)
    if high < 0.05:
        return
    bound = f"significant only if they disagree on at most {last:,}" if last else "never significant"
    why = (
        f"one seed; the gap is {abs(net):,} of {n:,} examples, and without the predictions exact McNemar allows "
        f"{p_value(low)} to {p_value(high)} ({bound})."
    )
    settle = f"oelm run {base.id} {arm.id} --seed 42 --seed 43 --seed 44"
    yield Finding("note", "published-one-seed", (base.id, arm.id), why, settle)
