"""Which tests a pair of arms allows, run on their paired predictions, losses, seeds and clocks, and put into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oelm_core.compare.comparison import SignificanceTest
from oelm_core.compare.evidence import Evidence, newest_losses, newest_predictions
from oelm_core.compare.statistics import (
    Estimate,
    bootstrap_metric,
    disagreement,
    interleaved,
    over_seeds,
    perplexity_ratio,
)
from oelm_core.formatting import chance, listed, points, relative
from oelm_core.metric import metric_named

RATIO_METRICS = ("perplexity", "loss")


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


def weigh(baseline: Sequence[Evidence], arm: Sequence[Evidence], arm_name: str, metric: str) -> Significance:
    """Seeds are the true replication, so with two or more they decide; with one, examples or sequences do."""
    ratio = not metric_named(metric).is_share
    base_by_seed = {e.seed: e for e in baseline if "metric" in e.values}
    arm_by_seed = {e.seed: e for e in arm if "metric" in e.values}
    shared = sorted(set(base_by_seed) & set(arm_by_seed))
    delta = _delta(base_by_seed, arm_by_seed, shared, ratio)
    within = [
        test for seed in shared for test in _within(base_by_seed[seed], arm_by_seed[seed], arm_name, metric, seed)
    ]
    seeds = over_seeds(
        {seed: e.values["metric"] for seed, e in base_by_seed.items()},
        {seed: e.values["metric"] for seed, e in arm_by_seed.items()},
        ratio=ratio,
    )
    tests: list[SignificanceTest] = []
    if seeds:
        name, estimate = seeds
        tests.append(_seed_test(name, estimate, ratio, len(base_by_seed), len(arm_by_seed)))
    tests += within
    timing = _timing_test(baseline, arm)
    deciding = tests[0] if tests else None
    words = deciding.words if deciding else f"No test is possible: {_why_not(base_by_seed, arm_by_seed, ratio)}."
    if delta is not None and len(base_by_seed) < 2 and len(arm_by_seed) < 2:
        words += " One seed only."
    elif delta is not None and not seeds:
        words += " Too few seeds in common for a test over seeds."
    return Significance(
        delta,
        _kept(base_by_seed, arm_by_seed, shared),
        deciding.interval if deciding else None,
        deciding.p if deciding else None,
        words,
        tuple(tests + timing),
    )


def _why_not(baseline: dict[int, Evidence], arm: dict[int, Evidence], ratio: bool) -> str:
    """What keeps a pair from being tested, in words."""
    if not baseline or not arm:
        return "one side has no result"
    shared = sorted(set(baseline) & set(arm))
    if not shared:
        return "no seed in common"
    kind, read = ("losses", newest_losses) if ratio else ("predictions", newest_predictions)
    without = [e.id for seed in shared for e in (baseline[seed], arm[seed]) if read(e) is None]
    if without:
        return f"{listed(without)} kept no {kind} that can be read"
    return f"the {kind} are of different {'sequences' if ratio else 'examples'}"


def _delta(baseline: dict[int, Evidence], arm: dict[int, Evidence], shared: list[int], ratio: bool) -> float | None:
    """Arm against baseline on the seeds they share, else on all they have."""
    import math

    if not baseline or not arm:
        return None
    ours = [arm[seed].values["metric"] for seed in (shared or arm)]
    theirs = [baseline[seed].values["metric"] for seed in (shared or baseline)]
    if not ratio:
        return sum(ours) / len(ours) - sum(theirs) / len(theirs)
    if min(ours + theirs) <= 0:
        return None
    return math.exp(sum(map(math.log, ours)) / len(ours) - sum(map(math.log, theirs)) / len(theirs)) - 1


def _kept(baseline: dict[int, Evidence], arm: dict[int, Evidence], shared: list[int]) -> float | None:
    if not baseline or not arm:
        return None
    ours = fmean(arm[seed].values["metric"] for seed in (shared or arm))
    theirs = fmean(baseline[seed].values["metric"] for seed in (shared or baseline))
    return ours / theirs if theirs else None


def _seed_test(name: str, estimate: Estimate, ratio: bool, n_baseline: int, n_arm: int) -> SignificanceTest:
    value, interval = _as_delta(estimate, ratio)
    show = relative if ratio else points
    spread = f" [{show(interval[0])}, {show(interval[1])}]" if interval else ""
    over = f"{estimate.n} paired seeds" if name == "paired t" else f"{n_arm} against {n_baseline} unpaired seeds"
    said = chance(estimate.p) if estimate.p is not None else "no spread between seeds, so no test"
    words = f"Over {over}: {show(value)}{spread}; {said}."
    return SignificanceTest(name, "seeds", words, estimate.p, value, interval, estimate.n)


def _within(baseline: Evidence, arm: Evidence, arm_name: str, metric: str, seed: int) -> list[SignificanceTest]:
    if metric_named(metric).is_share:
        return _by_examples(baseline, arm, arm_name, metric, seed)
    return _by_sequences(baseline, arm, seed)


def _by_examples(baseline: Evidence, arm: Evidence, arm_name: str, metric: str, seed: int) -> list[SignificanceTest]:
    ours, theirs = newest_predictions(arm), newest_predictions(baseline)
    if not ours or not theirs or ours["labels"] != theirs["labels"]:
        return []
    labels = theirs["labels"]
    counts = disagreement(labels, theirs["predictions"], ours["predictions"])
    estimate = bootstrap_metric(labels, theirs["predictions"], ours["predictions"], metric)
    words = f"Both get the same of the {counts.n:,} examples right; {chance(counts.p)}."
    if counts.differing:
        only = f"{counts.only_baseline:,} only the baseline gets right, {counts.only_arm:,} only {arm_name}"
        words = f"{counts.differing:,} of {counts.n:,} examples differ ({only}); {chance(counts.p)}."
    return [
        SignificanceTest(
            "exact McNemar", "examples", words, counts.p, estimate.value, estimate.interval, counts.n, seed
        ),
    ]


def _by_sequences(baseline: Evidence, arm: Evidence, seed: int) -> list[SignificanceTest]:
    ours, theirs = newest_losses(arm), newest_losses(baseline)
    if not ours or not theirs or ours["tokens"] != theirs["tokens"]:
        return []
    estimate = perplexity_ratio(theirs["losses"], ours["losses"], theirs["tokens"])
    spread = f" [{estimate.interval[0]:.3f}, {estimate.interval[1]:.3f}]" if estimate.interval else ""
    words = f"Perplexity ratio {estimate.value:.3f}{spread} over {estimate.n:,} sequences; {chance(estimate.p)}."
    value, interval = _as_delta(estimate, ratio=True)
    return [
        SignificanceTest("paired bootstrap and t", "sequences", words, estimate.p, value, interval, estimate.n, seed)
    ]


def _timing_test(baseline: Sequence[Evidence], arm: Sequence[Evidence]) -> list[SignificanceTest]:
    clocks = [[(e.started, e.values["step_time"]) for e in side if "step_time" in e.values] for side in (baseline, arm)]
    estimate = interleaved(*clocks)
    if estimate is None:
        return []
    value, interval = _as_delta(estimate, ratio=True)
    spread = f" [{relative(interval[0])}, {relative(interval[1])}]" if interval else ""
    said = chance(estimate.p) if estimate.p is not None else "no spread, so no test"
    words = f"Time per step over {estimate.n} pairs of runs: {relative(value)}{spread}; {said}."
    return [SignificanceTest("interleaved pairs, paired t", "timing", words, estimate.p, value, interval, estimate.n)]


def _as_delta(estimate: Estimate, ratio: bool) -> tuple[float, tuple[float, float] | None]:
    if not ratio:
        return estimate.value, estimate.interval
    interval = (estimate.interval[0] - 1, estimate.interval[1] - 1) if estimate.interval else None
    return estimate.value - 1, interval
