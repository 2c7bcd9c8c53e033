"""Which tests a pair of arms allows, run on their paired predictions, losses, seeds and clocks, and put into words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import SignificanceTest
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.statistics import (
    Effect,
    bootstrap_metric,
    disagreement,
    interleaved,
    over_seeds,
    perplexity_ratio,
)
from oelm_core.formatting import chance, listed, points, relative
from oelm_core.metric import metric_named
from oelm_core.runs.evaluations import best_losses, best_predictions

BySeed = Mapping[int, Evidence]


@dataclass(frozen=True)
class Significance:
    """All tests of a pair; `delta`, `interval` and `p` are those of the one that counts."""

    delta: float | None
    kept: float | None
    """Arm over baseline, on the seeds that `delta` is of."""
    interval: tuple[float, float] | None
    p: float | None
    words: str
    tests: tuple[SignificanceTest, ...]


def pair_significance(baseline: ArmEvidence, arm: ArmEvidence, metric: str) -> Significance:
    """Seeds are the true replication, so with two or more they decide; with one, examples or sequences do."""
    ratio = not metric_named(metric).is_share
    theirs = {e.seed: e for e in baseline.scored}
    ours = {e.seed: e for e in arm.scored}
    shared = sorted(set(theirs) & set(ours))
    seeds = [*_over_seeds(theirs, ours, ratio)]
    tests = [*seeds]
    of_losses = metric_named(metric).computed_from == "losses"
    for seed in shared if _has_paired_test(metric) else ():
        models = theirs[seed], ours[seed]
        tests += _over_sequences(*models) if of_losses else _over_examples(*models, arm.name, metric)
    deciding = tests[0] if tests else None
    words = deciding.words if deciding else f"No test is possible: {_why_not(theirs, ours, metric)}."
    delta, kept = _gap(theirs, ours, shared, ratio)
    if delta is not None and len(theirs) < 2 and len(ours) < 2:
        words += " One seed only."
    elif delta is not None and not seeds:
        words += " Too few seeds in common for a test over seeds."
    return Significance(
        delta,
        kept,
        deciding.interval if deciding else None,
        deciding.p if deciding else None,
        words,
        (*tests, *_of_timing(baseline.runs, arm.runs)),
    )


def _has_paired_test(metric: str) -> bool:
    """Whether the metric can be computed again from what two runs kept, so that an interval is of it and no other."""
    from oelm_core.scores import SCORES

    return metric == "perplexity" or metric in SCORES


def _why_not(baseline: BySeed, arm: BySeed, metric: str) -> str:
    """What keeps a pair from being tested, in words."""
    if not baseline or not arm:
        return "one side has no result"
    both = [e for seed in sorted(set(baseline) & set(arm)) for e in (baseline[seed], arm[seed])]
    if not both:
        return "no seed in common"
    if not _has_paired_test(metric):
        return f"nothing is known of how {metric} is computed"
    kind = metric_named(metric).computed_from
    read, each = (best_losses, "sequences") if kind == "losses" else (best_predictions, "examples")
    without = [e.id for e in both if read(e.run.folder) is None]
    if without:
        return f"{listed(without)} kept no {kind} that can be read"
    return f"the {kind} are of different {each}"


def _gap(baseline: BySeed, arm: BySeed, shared: list[int], ratio: bool) -> tuple[float | None, float | None]:
    """(difference, share kept) of the arm against the baseline, on the seeds they share, else on all they have."""
    if not baseline or not arm:
        return None, None
    ours = [arm[seed].score for seed in (shared or arm)]
    theirs = [baseline[seed].score for seed in (shared or baseline)]
    kept = fmean(ours) / fmean(theirs) if fmean(theirs) else None
    if not ratio:
        return sum(ours) / len(ours) - sum(theirs) / len(theirs), kept
    if min(ours + theirs) <= 0:
        return None, kept
    return math.exp(sum(map(math.log, ours)) / len(ours) - sum(map(math.log, theirs)) / len(theirs)) - 1, kept


def _over_seeds(baseline: BySeed, arm: BySeed, ratio: bool) -> Iterator[SignificanceTest]:
    found = over_seeds(
        {seed: e.score for seed, e in baseline.items()}, {seed: e.score for seed, e in arm.items()}, ratio=ratio
    )
    if found is None:
        return
    name, effect = found
    value, interval = _as_delta(effect, ratio)
    show = relative if ratio else points
    spread = f" [{show(interval[0])}, {show(interval[1])}]" if interval else ""
    over = f"{effect.n} paired seeds" if name == "paired t" else f"{len(arm)} against {len(baseline)} unpaired seeds"
    result = chance(effect.p) if effect.p is not None else "no spread between seeds, so no test"
    words = f"Over {over}: {show(value)}{spread}; {result}."
    yield SignificanceTest(name, "seeds", words, effect.p, value, interval, effect.n)


def _over_examples(baseline: Evidence, arm: Evidence, arm_name: str, metric: str) -> Iterator[SignificanceTest]:
    """Whether two trained models differ in what they predict: McNemar's test, with a bootstrap interval."""
    theirs, ours = best_predictions(baseline.run.folder), best_predictions(arm.run.folder)
    if not ours or not theirs or ours.labels != theirs.labels:
        return
    counts = disagreement(theirs.labels, theirs.predictions, ours.predictions)
    ratio = not metric_named(metric).is_share
    effect = bootstrap_metric(theirs.labels, theirs.predictions, ours.predictions, metric, ratio=ratio)
    value, interval = _as_delta(effect, ratio) if effect else (None, None)
    words = f"Both get the same of the {counts.n:,} examples right; {chance(counts.p)}."
    if counts.differing:
        only = f"{counts.only_baseline:,} only the baseline gets right, {counts.only_arm:,} only {arm_name}"
        words = f"{counts.differing:,} of {counts.n:,} examples differ ({only}); {chance(counts.p)}."
    yield SignificanceTest("exact McNemar", "examples", words, counts.p, value, interval, counts.n, arm.seed)


def _over_sequences(baseline: Evidence, arm: Evidence) -> Iterator[SignificanceTest]:
    """As `_over_examples`, by the losses of a language model: a paired bootstrap and a t test."""
    theirs, ours = best_losses(baseline.run.folder), best_losses(arm.run.folder)
    if not ours or not theirs or ours.tokens != theirs.tokens:
        return
    effect = perplexity_ratio(theirs.losses, ours.losses, theirs.tokens)
    spread = f" [{effect.interval[0]:.3f}, {effect.interval[1]:.3f}]" if effect.interval else ""
    words = f"Perplexity ratio {effect.value:.3f}{spread} over {effect.n:,} sequences; {chance(effect.p)}."
    value, interval = _as_delta(effect, ratio=True)
    yield SignificanceTest("paired bootstrap and t", "sequences", words, effect.p, value, interval, effect.n, arm.seed)


def _of_timing(baseline: Sequence[Evidence], arm: Sequence[Evidence]) -> Iterator[SignificanceTest]:
    clocks = [[(e.started, e.values["step_time"]) for e in side if "step_time" in e.values] for side in (baseline, arm)]
    effect = interleaved(*clocks)
    if effect is None:
        return
    value, interval = _as_delta(effect, ratio=True)
    spread = f" [{relative(interval[0])}, {relative(interval[1])}]" if interval else ""
    result = chance(effect.p) if effect.p is not None else "no spread, so no test"
    words = f"Time per step over {effect.n} pairs of runs: {relative(value)}{spread}; {result}."
    yield SignificanceTest("interleaved pairs, paired t", "timing", words, effect.p, value, interval, effect.n)


def _as_delta(effect: Effect, ratio: bool) -> tuple[float, tuple[float, float] | None]:
    if not ratio:
        return effect.value, effect.interval
    interval = (effect.interval[0] - 1, effect.interval[1] - 1) if effect.interval else None
    return effect.value - 1, interval
