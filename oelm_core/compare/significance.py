"""What may be said about a pair of arms: whether the method differs, or two trained models, or the time of a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import SeedCount, SignificanceTest
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.item_scores import Basis, RunScore, level, score_run
from oelm_core.compare.settings import settings_of
from oelm_core.compare.statistics import (
    Estimate,
    Ranked,
    Sample,
    Spread,
    contrast,
    mcnemar,
    neighbours,
    noise_floor,
    own_spread,
    paired_difference,
    rank_test,
    step_time_ratio,
)
from oelm_core.formatting import chance, gap, interval, listed, p_value, relative
from oelm_core.metric import metric_named

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScoredArm:
    """An arm, and what each of its runs scored on the basis that the whole table has."""

    arm: ArmEvidence
    metric: str
    basis: Basis
    scores: Mapping[str, RunScore] = field(default_factory=dict)
    """By run id; runs without a score are not in it."""
    calibrated: Spread | None = None
    """How other seeds of this recipe spread."""

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def runs(self) -> tuple[Evidence, ...]:
        """Those with a score: mean, gap, interval and verdict are all of them."""
        return tuple(e for e in self.arm.runs if e.id in self.scores)

    @property
    def values(self) -> list[float]:
        return [self.scores[e.id].value for e in self.runs]

    @cached_property
    def sample(self) -> Sample | None:
        """On the scale that is tested."""
        import numpy as np

        scores = [self.scores[e.id] for e in self.runs]
        if not scores:
            return None
        levels = tuple(level(self.metric, one.value) for one in scores)
        kept = [one for one in scores if one.items is not None]
        which = Counter((one.examples, one.unit) for one in kept).most_common(1)
        items = [one.items for one in kept if one.items is not None and (one.examples, one.unit) == which[0][0]]
        if not items:
            return Sample(levels, calibrated=self.calibrated)
        return Sample(levels, np.stack(items), which[0][0][0], self.calibrated)

    @property
    def unit(self) -> str:
        """What the examples are: "examples", "documents"; "" where they were not kept."""
        return next((one.unit for one in self.scores.values()), "")


def score_arm(arm: ArmEvidence, metric: str, basis: Basis) -> ScoredArm:
    found = {e.id: score for e in arm.scored if (score := score_run(e, metric, basis)) is not None}
    return ScoredArm(arm, metric, basis, found)


def spread_of(scored: ScoredArm) -> Spread | None:
    """How an arm's seeds spread; None with one."""
    sample = scored.sample
    found = own_spread(sample) if sample else None
    return replace(found, source=scored.name) if found and found.df else None


@dataclass(frozen=True)
class Significance:
    """What a pair of arms shows; `delta`, `interval` and `p` are about the method."""

    seeds: SeedCount
    delta: float | None = None
    kept: float | None = None
    """Arm over baseline."""
    interval: tuple[float, float] | None = None
    p: float | None = None
    spread_from: tuple[str, ...] = ()
    estimate: Estimate | None = None
    words: str = ""
    models: tuple[SignificanceTest, ...] = ()


def pair_significance(baseline: ScoredArm, arm: ScoredArm, others: Sequence[Spread] = ()) -> Significance:
    """`others`: how seeds spread in the study's other arms.

    Seeds are not paired: the same seed deals both arms the same batches, but what it does to them is not alike (the
    correlation in the demo is about zero), and pairing would cost half the degrees of freedom.
    """
    metric = arm.metric
    theirs, ours = baseline.sample, arm.sample
    shared = {e.seed for e in baseline.runs} & {e.seed for e in arm.runs}
    failed = sum(len(side.arm.failed) + len(side.arm.diverged) for side in (baseline, arm))
    seeds = SeedCount(len(baseline.runs), len(arm.runs), len(shared), failed)
    if theirs is None or ours is None:
        return Significance(seeds, words="No test is possible: one side has no result.")
    found = contrast([(1.0, ours), (-1.0, theirs)], others)
    base = fmean(baseline.values)
    kept = fmean(arm.values) / base if base else None
    bounds, p = found.interval(), found.p()
    middle: float | None = found.value
    if baseline.arm.diverged or arm.arm.diverged:
        ranked = _by_ranks(baseline, arm)
        bounds, p, middle = ranked.interval, ranked.p, ranked.shift
        found = replace(found, borrowed=(), n=0)
    if min(seeds.baseline, seeds.arm) < 2:
        p = None  # one seed: no claim about a method
    shown = (as_gap(metric, bounds[0]), as_gap(metric, bounds[1])) if bounds else None
    delta = as_gap(metric, middle) if middle is not None else None
    words = _method_words(baseline, arm, found, delta, shown, p, seeds)
    return Significance(seeds, delta, kept, shown, p, found.borrowed, found, words, tuple(_models(baseline, arm)))


def as_gap(metric: str, value: float) -> float:
    """From the scale that is tested to a gap as it is shown: points, or a relative change."""
    if metric_named(metric).is_share:
        return value
    return math.expm1(value) if value < 700 else math.inf


def _by_ranks(baseline: ScoredArm, arm: ScoredArm) -> Ranked:
    """With runs that diverged there is no mean; they are worse than all others."""
    worst = -math.inf if metric_named(arm.metric).higher_is_better else math.inf
    sides = [
        [*(level(side.metric, value) for value in side.values), *(worst for _ in side.arm.diverged)]
        for side in (baseline, arm)
    ]
    return rank_test(*sides)


def _method_words(
    baseline: ScoredArm,
    arm: ScoredArm,
    found: Estimate,
    delta: float | None,
    bounds: tuple[float, float] | None,
    p: float | None,
    seeds: SeedCount,
) -> str:
    size = gap(arm.metric, delta) if delta is not None else "no gap can be named"
    shown = f" {interval(arm.metric, bounds)}" if bounds else ""
    lost = [
        f"{len(side.arm.diverged)} of {len(side.arm.diverged) + len(side.runs)} runs of {side.name} diverged"
        for side in (baseline, arm)
        if side.arm.diverged
    ]
    rest = f" {listed(lost)}, and count as worse than all others (test by ranks)." if lost else ""
    without = [e.id for side in (baseline, arm) for e in side.runs if side.scores[e.id].items is None]
    if without and p is not None and not found.n and not lost:
        rest += f" The noise of the examples is not in it: {_first(without)} kept none that can be scored again."
    if p is None:
        one = "one seed" if seeds.baseline == seeds.arm else f"{seeds.arm} against {seeds.baseline} seeds"
        if not bounds:
            return f"{size} with {one}: what another would give is not known, so nothing is said of the method.{rest}"
        source = found.borrowed or (baseline.name if seeds.baseline > 1 else arm.name,)
        return (
            f"{size} with {one}; if seeds spread as those of {listed(source)} do, the method's gap lies in{shown}. "
            f"One seed makes no claim.{rest}"
        )
    over = f"{seeds.arm} seeds" if seeds.arm == seeds.baseline else f"{seeds.arm} against {seeds.baseline} seeds"
    examples = f" and {found.n:,} {arm.unit}" if found.n else ""
    pooled = f", their spread pooled with that of {_first(found.borrowed)}" if found.borrowed else ""
    return f"Over {over}{examples}{pooled}: {size}{shown}; {p_value(p)}.{rest}"


def _first(names: Sequence[str]) -> str:
    return listed(list(names)) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


# -- two trained models ------------------------------------------------------------------------------------------------


def _models(baseline: ScoredArm, arm: ScoredArm) -> Iterator[SignificanceTest]:
    """For each seed in common: whether the two trained models differ. McNemar for accuracy, else a paired t."""
    theirs = {e.seed: e for e in baseline.runs}
    for e in sorted(arm.runs, key=lambda e: e.seed):
        base = theirs.get(e.seed)
        if base is None:
            continue
        one, other = baseline.scores[base.id], arm.scores[e.id]
        if one.items is None or other.items is None or (one.examples, one.unit) != (other.examples, other.unit):
            continue
        if metric_named(arm.metric).name == "accuracy":
            yield _mcnemar(one.items > 0.5, other.items > 0.5, baseline.name, arm.name, e.seed)
            continue
        found = paired_difference(one.items, other.items)
        bounds = found.interval()
        shown = (as_gap(arm.metric, bounds[0]), as_gap(arm.metric, bounds[1])) if bounds else None
        delta = as_gap(arm.metric, found.value)
        words = f"The models of seed {e.seed}: {gap(arm.metric, delta)}"
        words += f" {interval(arm.metric, shown)}" if shown else ""
        words += f" over {found.n:,} {other.unit}; {chance(found.p())}."
        yield SignificanceTest(
            f"paired t over {other.unit}", "examples", words, found.p(), delta, shown, found.n, e.seed
        )


def _mcnemar(theirs: Flags, ours: Flags, baseline: str, arm: str, seed: int) -> SignificanceTest:
    """`theirs`, `ours`: which examples each gets right [examples]."""
    found = mcnemar(int((theirs & ~ours).sum()), int((ours & ~theirs).sum()), len(ours))
    words = f"The models of seed {seed} get the same of the {found.n:,} examples right; {chance(found.p)}."
    if found.differing:
        only = f"{found.only_baseline:,} only {baseline} gets right, {found.only_arm:,} only {arm}"
        differ = f"differ on {found.differing:,} of {found.n:,} examples"
        words = f"The models of seed {seed} {differ} ({only}); {chance(found.p)}."
    delta = (found.only_arm - found.only_baseline) / found.n
    return SignificanceTest("exact McNemar", "examples", words, found.p, delta, found.interval, found.n, seed)


# -- time per step -----------------------------------------------------------------------------------------------------

_WORK = (
    *("data", "max_length", "model", "shape", "dropout", "effective_batch", "accumulate", "precision", "batching"),
    *("compile", "freeze", "layers", "unfreeze", "extras", "peer"),
)
"""Settings that decide how much work a step is."""


def timing_noise(arms: Sequence[ArmEvidence]) -> float | None:
    """How far apart runs that follow one another lie in time per step where their work is identical."""
    alike: dict[str, list[tuple[float, float]]] = {}
    for arm in arms:
        settings = settings_of(arm.config)
        work = repr([settings.get(name) for name in _WORK])
        alike.setdefault(work, []).extend(_clock(arm.runs))
    ratios = []
    for clocks in alike.values():
        times = [time for _, time in sorted(clocks)]
        ratios += [b / a for a, b in zip(times[0::2], times[1::2], strict=False)]
    return noise_floor(ratios)


def time_per_step(
    baseline: ArmEvidence, arm: ArmEvidence, noise: float | None
) -> tuple[float | None, SignificanceTest | None]:
    """(gap in time per step between runs that are neighbours in time, its test with two such pairs or more)."""
    pairs = neighbours(_clock(baseline.runs), _clock(arm.runs))
    if not pairs:
        return None, None
    found = step_time_ratio(pairs)
    if found is None:
        base, ours = pairs[0]
        return ours / base - 1, None
    value = math.expm1(found.value)
    low, high = found.interval() or (found.value, found.value)
    bounds = math.expm1(low), math.expm1(high)
    floor = f" Identical work differs by up to {relative(noise).lstrip('+')} here." if noise is not None else ""
    words = (
        f"Time per step over {len(pairs)} pairs of neighbouring runs: {relative(value)} "
        f"[{relative(bounds[0])}, {relative(bounds[1])}]; {chance(found.p())}.{floor}"
    )
    return value, SignificanceTest("neighbours, paired t", "timing", words, found.p(), value, bounds, len(pairs))


def _clock(runs: Sequence[Evidence]) -> list[tuple[float, float]]:
    return [(e.started, e.values["step_time"]) for e in runs if e.values.get("step_time")]
