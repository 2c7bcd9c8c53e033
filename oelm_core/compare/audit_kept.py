"""The fairness audit of what runs kept: headlines recomputed from predictions and losses, copied runs, peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import Finding
from oelm_core.compare.evidence import Evidence, is_finite
from oelm_core.compare.item_scores import Basis
from oelm_core.formatting import gap, listed, metric_value
from oelm_core.metric import metric_named
from oelm_core.runs.evaluations import best_losses, best_predictions, test_losses, test_predictions
from oelm_core.runs.schema import Losses, Predictions

Kept = Predictions | Losses

ROUNDING = 5e-4
"""A recomputed value may differ by this much: of a share, or relative. It is less than tables show."""
SLACK = 1e-6
"""How far rounding in single precision may push a score over its bound."""
ERRORS = 10
"""Wrong answers that two seeds must share, all of them, before they are called copies by their predictions alone."""
LOGGED = 3
"""Validation losses of an imported run, which its log may have rounded, before they can show that it is a copy."""
NOISES = 2.0
"""A run's best must lie this many standard errors above its end to be called a peak."""
COLLAPSE = 0.05
"""As much of a perplexity where nothing is known of its noise."""


def audit_kept(arm: ArmEvidence) -> Iterator[Finding]:
    """Findings about one arm's own files."""
    kept = {e.id: found for e in arm.scored if (found := _kept(e)) is not None}
    for e in arm.scored:
        yield from _impossible(e, arm)
        yield from _contradicted(e, arm, kept.get(e.id))
    yield from _copied(arm, kept)


def _kept(e: Evidence) -> Kept | None:
    of_losses = metric_named(e.metric).computed_from == "losses"
    return best_losses(e.run.folder) if of_losses else best_predictions(e.run.folder)


# -- a headline against its own predictions ----------------------------------------------------------------------------


def _impossible(e: Evidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Numbers that no model can have: an accuracy outside 0 to 1, a perplexity below 1."""
    low, high = metric_named(e.metric).bounds
    tested = e.result.test.values.get(e.metric) if e.result.test else None
    for what, value in (("headline", e.score), ("test score", tested)):
        if value is not None and not low - SLACK <= value <= high + SLACK:
            again = None if e.run.imported else f"oelm run {e.preset} --seed {e.seed}"
            why = f"the {what} of {e.id} is {e.metric} {value:g}, which no model can have."
            yield Finding("breaks", "contradicted", (arm.name,), why, again)


def _contradicted(e: Evidence, arm: ArmEvidence, kept: Kept | None) -> Iterator[Finding]:
    """Whether the headline is what the predictions, or losses, of its evaluation make."""
    again = None if e.run.imported else f"oelm run {e.preset} --seed {e.seed}"
    step = (e.result.best or {}).get("step")
    if kept is not None and step is not None and kept.step != step:
        why = (
            f"the headline of {e.id} is of step {step:,.0f}, the {_what(kept)} kept are of step {kept.step:,}: "
            "a test on them is not of the numbers shown."
        )
        yield Finding("confounds", "other-step", (arm.name,), why, again)
    elif kept is not None:
        yield from _recomputed(e, arm, kept, e.score, e.eval_examples, "headline", again)
    tested = e.result.test
    details = test_losses(e.run.folder) if isinstance(kept, Losses) else test_predictions(e.run.folder)
    if tested is not None and details is not None:
        claimed = tested.values.get(e.metric)
        yield from _recomputed(e, arm, details, claimed, tested.examples, "test score", again)


def _recomputed(
    e: Evidence, arm: ArmEvidence, kept: Kept, claimed: float | None, examples: int | None, what: str, again: str | None
) -> Iterator[Finding]:
    size = len(kept.losses if isinstance(kept, Losses) else kept.labels)
    value = score_of(e.metric, kept)
    if claimed is not None and value is not None and _differ(e.metric, claimed, value):
        said, found = (metric_value(e.metric, number, unit=True) for number in (claimed, value))
        why = f"the {what} of {e.id} is given as {e.metric} {said}, but its own {_what(kept)} make {found}."
        yield Finding("breaks", "contradicted", (arm.name,), why, again)
    elif examples is not None and examples != size:
        why = f"{e.id} says that it was judged on {examples:,} examples, but kept {_what(kept)} of {size:,}."
        yield Finding("breaks", "contradicted", (arm.name,), why, again)


def score_of(metric: str, kept: Kept) -> float | None:
    """The metric computed again; None where it cannot be."""
    if isinstance(kept, Losses):
        loss = math.fsum(kept.losses) / max(sum(kept.tokens), 1)
        return {"perplexity": math.exp(min(loss, 700.0)), "loss": loss}.get(metric)
    import numpy as np  # late: only for those who kept predictions

    from oelm_core.scores import SCORES, confusion

    if metric.startswith("mismatched_"):
        metric, kept = metric.removeprefix("mismatched_"), kept.mismatched or Predictions([], [])
    if metric not in SCORES or not kept.labels:
        return None
    classes = max(*kept.labels, *kept.predictions) + 1
    table = confusion(np.array(kept.labels), np.array(kept.predictions), max(classes, 2))
    return float(SCORES[metric](table))


def _differ(metric: str, one: float, other: float) -> bool:
    allowed = ROUNDING if metric_named(metric).is_share else ROUNDING * abs(other)
    return abs(one - other) > allowed


def _what(kept: Kept) -> str:
    return "losses" if isinstance(kept, Losses) else "predictions"


# -- seeds that are copies ---------------------------------------------------------------------------------------------


def _copied(arm: ArmEvidence, kept: dict[str, Kept]) -> Iterator[Finding]:
    """Runs of different seeds with the very same losses at every validation, or kept losses, or the same errors."""
    by_curve: dict[tuple[object, ...], list[Evidence]] = {}
    by_kept: dict[tuple[object, ...], list[Evidence]] = {}
    for e in arm.scored:
        if curve := _losses_over_time(e):
            by_curve.setdefault(curve, []).append(e)
        found = kept.get(e.id)
        if found is not None and _is_telling(found):
            mark = found.losses if isinstance(found, Losses) else found.predictions
            by_kept.setdefault(tuple(mark), []).append(e)
    told: list[set[str]] = []
    for what, alike in ((None, by_kept), ("validation losses", by_curve)):
        for runs in alike.values():
            ids = {e.id for e in runs}
            if len({e.seed for e in runs}) < 2 or any(ids <= before for before in told):
                continue
            told.append(ids)
            same = what or _what(kept[runs[0].id])
            why = f"{listed([e.id for e in runs])} have other seeds but the very same {same}: "
            last = max(e.seed for e in arm.runs)
            again = " ".join(f"--seed {last + place}" for place in range(1, len(runs)))
            yield Finding(
                *("breaks", "copied", (arm.name,), f"{why}they are one run, counted several times."),
                f"oelm run {arm.preset} {again}",
            )


def _losses_over_time(e: Evidence) -> tuple[tuple[int, float], ...]:
    """Step and loss of every validation, to the last bit; empty where that cannot tell two runs apart."""
    losses = tuple((at.step, at.values["loss"]) for at in e.evaluations if is_finite(at.values.get("loss")))
    return () if e.run.imported and len(losses) < LOGGED else losses


def _is_telling(kept: Kept) -> bool:
    """Not a model that answers all alike, or nearly all right: two such can agree honestly."""
    if isinstance(kept, Losses):
        return len(set(kept.losses)) > 1
    wrong = sum(label != predicted for label, predicted in zip(kept.labels, kept.predictions, strict=True))
    return wrong >= ERRORS and len(set(kept.predictions)) > 1


# -- peaks -------------------------------------------------------------------------------------------------------------


def audit_collapse(baseline: ArmEvidence, arm: ArmEvidence, basis: Basis = "best") -> Iterator[Finding]:
    """A best validation that training did not keep, more so in one arm than in the other.

    Where the table's numbers are not those that chose the checkpoint, a peak is no luck, but worth knowing.
    """
    metric = next(e.metric for e in (*arm.scored, *baseline.scored)) if arm.scored and baseline.scored else None
    drops = [[_drop(e) for e in side.scored if "final" in e.values] for side in (baseline, arm)]
    if metric is None or not all(drops):
        return
    noise = _noise([[e for e in side.scored if "final" in e.values] for side in (baseline, arm)])
    theirs, ours = map(fmean, drops)
    if abs(ours - theirs) <= noise:
        return
    fallen = arm if ours > theirs else baseline
    best, end = (fmean(e.values[name] for e in fallen.scored if "final" in e.values) for name in ("metric", "final"))
    ends = [fmean(e.values["final"] for e in side.scored if "final" in e.values) for side in (baseline, arm)]
    words = [metric_value(metric, value, unit=True) for value in (best, end)]
    at_end = gap(metric, metric_named(metric).gap(ends[1], ends[0]))
    why = (
        f"{fallen.name} was at {metric} {words[0]} at its best and ended at {words[1]}: its headline is a peak that "
        f"training did not keep; at the last validation the gap is {at_end}."
    )
    yield Finding("confounds" if basis == "best" else "note", "collapse", (baseline.name, arm.name), why)


def _drop(e: Evidence) -> float:
    """How much worse a run ended than it was at its best: a difference of shares, else of logarithms."""
    best, end = e.score, e.values["final"]
    if metric_named(e.metric).is_share:
        return abs(best - end)
    return abs(math.log(end / best)) if min(best, end) > 0 else 0.0


def _noise(sides: Sequence[Sequence[Evidence]]) -> float:
    """What a drop must exceed: twice the standard error of a mean over seeds; with one seed, of examples."""
    share = metric_named(sides[0][0].metric).is_share
    spread = [[e.score if share else math.log(max(e.score, 1e-9)) for e in side] for side in sides]
    if all(len(values) > 1 for values in spread):
        return NOISES * math.sqrt(sum(stdev(values) ** 2 / len(values) for values in spread))
    if not share:
        return COLLAPSE
    scores = [(e.score, e.eval_examples or 0) for side in sides for e in side]
    return NOISES * max(math.sqrt(max(p * (1 - p), 0.01) * 2 / n) if n else COLLAPSE for p, n in scores)
