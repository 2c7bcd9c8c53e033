"""What a few seeds and a few examples allow to say: estimates, intervals, tests. Pure.

Two claims are kept apart. "These two trained models differ" is a matter of examples (McNemar, a paired t). "The method
differs" needs seeds, and is what `contrast` answers: seeds x examples, both drawn from populations.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.compare.distributions import (
    beta_quantile,
    f_upper,
    fair_coins,
    normal_quantile,
    t_quantile,
    t_two_sided,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

LEVEL = 0.95
POWER = 0.8
MOST_SEEDS = 100
"""More than anyone will run: beyond it the number of seeds that would decide is not told."""
WIDER, NARROWER, APART = 0.25, 0.05, 0.05
"""Chances of a variance ratio (F) beyond which spreads of seeds are not pooled: a pair that spreads more than other
arms (readily: pooling would hide it), one that spreads less, and one arm of a pair that spreads more than the other.
Found by simulation: equal and unequal spreads, with and without other arms, stay near 5 % false alarms."""
FEWEST_TO_POOL = 3
"""Degrees of freedom a pair needs of its own before other arms lend it any."""


# -- seeds x examples ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample:
    """What the runs of one arm scored, one a seed, on the scale that is tested."""

    scores: tuple[float, ...]
    items: Floats | None = None
    """[seeds, items]: each example's (or document's) part, of the seeds that kept them; None where none did."""
    examples: str = ""
    """Which examples these are: only those of the same are set against one another."""
    calibrated: Spread | None = None
    """How other seeds of the same recipe spread."""

    @property
    def df(self) -> int:
        return max(0, len(self.scores) - 1)

    @property
    def variance(self) -> float:
        """Between seeds; 0 with fewer than two, and where all are equal (rounding would leave a little)."""
        if not self.df or max(self.scores) == min(self.scores):
            return 0.0
        mean = math.fsum(self.scores) / len(self.scores)
        return math.fsum((score - mean) ** 2 for score in self.scores) / self.df


@dataclass(frozen=True)
class Spread:
    """A variance between seeds that was seen elsewhere: in other arms of a study, or in a calibration."""

    variance: float
    df: float
    source: str = ""


@dataclass(frozen=True)
class Estimate:
    """A contrast of arms: its value, and its variance in two parts."""

    value: float
    seeds: float | None
    """Variance due to the seeds; more seeds make it smaller. None where one seed leaves it unknown."""
    examples: float
    """Variance due to the examples; seeds do not change it. 0 where it is not known."""
    df: float
    per_seed: float | None = None
    """Variance that one seed on each side would have."""
    n: int = 0
    """Examples."""
    borrowed: tuple[str, ...] = ()
    """Where the spread of seeds was seen, apart from the arms themselves."""

    @property
    def error(self) -> float | None:
        """Standard error; None where the variance is not known."""
        return math.sqrt(self.seeds + self.examples) if self.seeds is not None else None

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Two-sided; the values that `p` does not reject."""
        if self.error is None:
            return None
        reach = t_quantile((1 + level) / 2, self.df) * self.error
        return self.value - reach, self.value + reach

    def p(self, null: float = 0.0) -> float | None:
        """Two-sided."""
        if self.error is None:
            return None
        if self.error == 0:
            return 1.0 if self.value == null else 0.0
        return t_two_sided(abs(self.value - null) / self.error, self.df)


@dataclass(frozen=True, eq=False)
class Crossed:
    """How examples vary together over the rows of several arms, where many contrasts are taken of the same runs."""

    covariance: Floats
    """[rows, rows], over the examples: the rows of the first arm's items, then those of the next."""
    n: int
    """Examples."""

    @classmethod
    def of(cls, items: Sequence[Floats]) -> Crossed:
        import numpy as np

        rows = np.concatenate(items)
        return cls(np.cov(rows).reshape(len(rows), len(rows)), rows.shape[1])

    def part(self, rows: Sequence[int]) -> Crossed:
        import numpy as np

        return Crossed(self.covariance[np.ix_(rows, rows)], self.n)


def contrast(
    arms: Sequence[tuple[float, Sample]], others: Sequence[Spread] = (), crossed: Crossed | None = None
) -> Estimate:
    """The weighted sum of arms' means, [(1, arm), (-1, baseline)], over seeds and over examples.

    Seeds: an arm's variance between them is its own (with that of its calibration), joined by as many degrees of
    freedom of the other arm's and of `others`, other arms of the study, unless those clearly spread otherwise.
    Examples: the variance over examples of the contrast's mean over seeds, less what the seeds alone bring into it;
    `crossed` where it was computed before, from all arms' items.
    """
    value = sum(weight * math.fsum(arm.scores) / len(arm.scores) for weight, arm in arms)
    examples, n = _of_crossed(arms, crossed) if crossed else _example_variance(arms)
    own = [own_spread(arm) for _, arm in arms]
    rest = _pooled([one for one in others if one.df > 0])
    lent = _lent(_pooled(own), rest)
    spreads = [*own, rest]
    factors = [0.0] * len(spreads)  # the variance of the contrast as a sum of independent spreads
    per_seed = 0.0
    for place, (weight, arm) in enumerate(arms):
        shares = _shares(place, spreads, lent)
        if not any(shares):
            return Estimate(value, None, examples, 1.0, n=n)
        per_seed += weight**2 * sum(share * one.variance for share, one in zip(shares, spreads, strict=True))
        for at, share in enumerate(shares):
            factors[at] += weight**2 / len(arm.scores) * share
    seeds = math.fsum(factor * one.variance for factor, one in zip(factors, spreads, strict=True))
    if seeds == 0:  # not one seed differs from another: that is no measurement of how seeds spread
        return Estimate(value, None, examples, 1.0, n=n)
    sources = [arm.calibrated.source for _, arm in reversed(arms) if arm.calibrated and arm.calibrated.df > 0]
    sources += [one.source for one in others if one.df > 0 and factors[-1]]
    borrowed = tuple(dict.fromkeys(source for source in sources if source))
    df = _df_of_sum([(factor, one) for factor, one in zip(factors, spreads, strict=True) if factor])
    return Estimate(value, seeds, examples, _joint_df(seeds, df, examples, n), per_seed, n, borrowed)


def _pooled(spreads: Sequence[Spread]) -> Spread:
    df = math.fsum(one.df for one in spreads)
    return Spread(math.fsum(one.df * one.variance for one in spreads) / df, df) if df > 0 else Spread(0.0, 0.0)


def own_spread(arm: Sample) -> Spread:
    """How the seeds of an arm spread, those of its calibration included."""
    return _pooled([Spread(arm.variance, arm.df), *([arm.calibrated] if arm.calibrated else [])])


def _lent(pair: Spread, rest: Spread) -> float:
    """Degrees of freedom that other arms lend: at most as many as the pair has, none if they spread otherwise."""
    if not rest.df or not pair.df:
        return rest.df
    if pair.variance > 0 and pair.df < FEWEST_TO_POOL:
        return 0.0  # two seeds a side cannot show that they spread as the others do
    wider = _chance_of_ratio(pair, rest)
    return min(rest.df, pair.df) if WIDER < wider < 1 - NARROWER or pair.variance == 0 else 0.0


def _shares(place: int, spreads: Sequence[Spread], lent: float) -> list[float]:
    """What part each spread has in the variance of one arm; all 0 where nothing is known. The last is of other arms."""
    mine, rest = spreads[place], spreads[-1]
    partners = [at for at in range(len(spreads) - 1) if at != place]
    weights = [0.0] * len(spreads)
    if not mine.df:  # one seed: whatever is known elsewhere
        for at in partners:
            weights[at] = spreads[at].df
        weights[-1] = rest.df if lent else 0.0
    else:
        weights[place] = mine.df
        apart = [mine.variance > 0 and _chance_of_ratio(mine, spreads[at]) < APART for at in partners if spreads[at].df]
        if not any(apart):
            for at in partners:
                weights[at] = min(spreads[at].df, mine.df)
            weights[-1] = lent * mine.df / sum(one.df for one in spreads[:-1])
    whole = sum(weights)
    return [weight / whole for weight in weights] if whole else weights


def _chance_of_ratio(one: Spread, other: Spread) -> float:
    """How often chance alone gives a ratio of variances at least this large."""
    if other.variance == 0:
        return 0.0 if one.variance > 0 and other.df > 1 else 0.5
    return f_upper(one.df, other.df, one.variance / other.variance)


def _df_of_sum(parts: Sequence[tuple[float, Spread]]) -> float:
    """Degrees of freedom of a sum of factors x variances: Satterthwaite's, which guard against unequal ones.

    A variance v of d degrees has E v^2 = (1 + 2/d) sigma^4, so the squares are divided by that: as they stand they
    take spreads of few seeds for unequal ones, and leave too few degrees. Never more than equal spreads would have.
    """
    equal = sum(factor for factor, _ in parts) ** 2 / math.fsum(factor**2 / one.df for factor, one in parts)
    squares = math.fsum((factor * one.variance) ** 2 / (one.df + 2) for factor, one in parts)
    whole = math.fsum(factor * one.variance for factor, one in parts) ** 2 * equal / (equal + 2)
    return min(equal, whole / squares) if squares > 0 else equal


def _joint_df(seeds: float, df: float, examples: float, n: int) -> float:
    """Degrees of freedom of both variances: each counts by its share of the whole, 1/df = sum of share/df.

    Satterthwaite weighs by the squares of the shares. With two seeds a side a spread that came out small by chance
    then brings many degrees, and 7.5 % of equal methods differ at 5 %.
    """
    if seeds + examples == 0:
        return 1.0
    return (seeds + examples) / (seeds / df + examples / max(1.0, n - 1.0))


def _satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own."""
    known = [(variance, df) for variance, df in parts if variance > 0]
    if not known:
        return 1.0
    return math.fsum(v for v, _ in known) ** 2 / math.fsum(v**2 / df for v, df in known)


def _example_variance(arms: Sequence[tuple[float, Sample]]) -> tuple[float, int]:
    """(variance of the contrast due to the examples, how many there are); (0, 0) where they were not kept."""
    items = [arm.items for _, arm in arms]
    if any(one is None for one in items):
        return 0.0, 0
    matrices = [one for one in items if one is not None]
    if len({(arm.examples, one.shape[1]) for (_, arm), one in zip(arms, matrices, strict=True)}) > 1:
        parts = [_example_variance([one]) for one in arms]  # other examples: each arm's own, nothing cancels
        return sum(part for part, _ in parts), min(n for _, n in parts)
    n = matrices[0].shape[1]
    return _of_crossed(arms, Crossed.of(matrices)) if n > 1 else (0.0, n)


def _of_crossed(arms: Sequence[tuple[float, Sample]], crossed: Crossed) -> tuple[float, int]:
    """As `_example_variance`: c'Gc of the covariances G of examples between runs, less the noise of k runs."""
    import numpy as np

    counts = [len(arm.scores if arm.items is None else arm.items) for _, arm in arms]
    each = np.repeat([weight / k for (weight, _), k in zip(arms, counts, strict=True)], counts)
    found = float(each @ crossed.covariance @ each)
    ends = list(itertools.accumulate(counts))
    noises = [
        _seed_noise(crossed.covariance[end - k : end, end - k : end]) for end, k in zip(ends, counts, strict=True)
    ]
    known = [noise for noise in noises if noise is not None]
    for (weight, _), k, noise in zip(arms, counts, noises, strict=True):
        # of an arm with one seed it is not known; the other arms' stands in, and without any all of it counts
        own = noise if noise is not None else sum(known) / len(known) if known else 0.0
        found -= weight**2 * own / k
    return max(0.0, found) / crossed.n, crossed.n


def _seed_noise(covariance: Floats) -> float | None:
    """Variance of an example over seeds beyond the seeds' own level: interaction and chance; None with one seed.

    `covariance`: of the examples between one arm's runs [seeds, seeds].
    """
    k = len(covariance)
    return float((covariance.trace() - covariance.sum() / k) / (k - 1)) if k > 1 else None


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent contrasts, such as one gap on several data sets."""
    count = len(estimates)
    variances = [(one.seeds + one.examples) / count**2 if one.seeds is not None else None for one in estimates]
    known = [variance for variance in variances if variance is not None]
    value = math.fsum(one.value for one in estimates) / count
    if len(known) < count:
        return Estimate(value, None, 0.0, 1.0)
    df = _satterthwaite(zip(known, (one.df for one in estimates), strict=True))
    return Estimate(value, math.fsum(known), 0.0, df)


# -- many comparisons, targets -----------------------------------------------------------------------------------------


def holm(ps: Sequence[float | None], size: int = 0) -> list[float | None]:
    """Adjusted p-values (Holm 1979); `size`: comparisons in the family, if more than are there yet.

    >>> holm([0.01, 0.04, None], 3)
    [0.03, 0.08, None]
    """
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    size = max(size, len(known))
    adjusted: list[float | None] = [None] * len(ps)
    worst = 0.0
    for rank, (p, place) in enumerate(known):
        worst = max(worst, min(1.0, p * (size - rank)))
        adjusted[place] = worst
    return adjusted


def seeds_to_decide(per_seed: float, examples: float, distance: float) -> int | None:
    """Fewest seeds a side with which a bound at 95 % tells, in four of five cases, a target `distance` away.

    `per_seed`: variance of the contrast with one seed a side; `examples`: what more seeds leave. None where no number
    up to MOST_SEEDS does.
    """
    for k in range(2, MOST_SEEDS + 1):
        need = t_quantile(LEVEL, k - 1) + t_quantile(POWER, k - 1)
        if need**2 * (per_seed / k + examples) <= distance**2:
            return k
    return None


def resolved_by_examples(examples: float) -> float:
    """The smallest distance from a target that any number of seeds can tell on so many examples."""
    return (normal_quantile(LEVEL) + normal_quantile(POWER)) * math.sqrt(examples)


# -- runs without a score ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """A shift by ranks, where some runs have no score but "worse than all": Mann-Whitney, exact, and its inversion."""

    p: float
    interval: tuple[float, float]
    """Of arm minus baseline; an end is infinite where runs without a score reach it."""
    shift: float | None
    """Median of the differences between any two runs, one of each arm (Hodges and Lehmann); None if infinite."""


def rank_test(baseline: Sequence[float], arm: Sequence[float]) -> Ranked:
    """Two-sided exact test over all ways to deal the runs to the arms; a run that diverged is given as +-infinity."""
    p = _rank_p(baseline, arm, 0.0)
    middle = statistics.median(_minus(a, b) for a in arm for b in baseline)
    shift = middle if math.isfinite(middle) else None
    pairs = sorted({_minus(a, b) for a in arm for b in baseline})
    inside = [shift for shift in _between(pairs) if _rank_p(baseline, arm, shift) > 1 - LEVEL]
    if not inside:  # a test at this level rejects every shift only by rounding
        return Ranked(p, (pairs[0], pairs[-1]), shift)
    low = max((one for one in pairs if one <= min(inside)), default=-math.inf)
    high = min((one for one in pairs if one >= max(inside)), default=math.inf)
    return Ranked(p, (low, high), shift)


def _minus(a: float, b: float) -> float:
    return 0.0 if a == b else a - b  # two infinities are as bad as one another


def _between(values: Sequence[float]) -> list[float]:
    """A point below, between and above the finite ones."""
    finite = [one for one in values if math.isfinite(one)]
    if not finite:
        return [0.0]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(finite)]
    return [finite[0] - 1, *finite, *middles, finite[-1] + 1]


def _rank_p(baseline: Sequence[float], arm: Sequence[float], shift: float) -> float:
    ranks = _ranks([*baseline, *(one - shift for one in arm)])
    k, middle = len(arm), len(arm) * (len(ranks) + 1) / 2
    seen = abs(sum(ranks[-k:]) - middle)
    ways = list(itertools.combinations(ranks, k)) if math.comb(len(ranks), k) <= 20_000 else None
    if ways is None:  # more than ten a side: the normal approximation is close
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu([one - shift for one in arm], list(baseline), method="asymptotic").pvalue)
    return sum(abs(sum(way) - middle) >= seen - 1e-9 for way in ways) / len(ways)


def _ranks(values: Sequence[float]) -> list[float]:
    """Of each among all, from 1; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [(bisect.bisect_left(ordered, one) + bisect.bisect_right(ordered, one) + 1) / 2 for one in values]


@dataclass(frozen=True)
class TimeToReach:
    """When runs first reached a mark, with those counted that never did."""

    median: float | None
    """Kaplan-Meier; None where fewer than half reached it."""
    reached: int
    runs: int


def time_to_reach(times: Sequence[float | None], ends: Sequence[float]) -> TimeToReach:
    """`times`: when each run reached the mark, None for never; `ends`: how long each was watched.

    >>> time_to_reach([100, 300, None], [500, 500, 500]).median
    300
    """
    seen = sorted((end if at is None else at, at is None) for at, end in zip(times, ends, strict=True))
    left, share = len(seen), 1.0
    median = None
    for at, censored in seen:
        if not censored:
            share *= 1 - 1 / left
            if share <= 0.5 and median is None:
                median = at
        left -= 1
    return TimeToReach(median, sum(at is not None for at in times), len(seen))


# -- two trained models ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """Paired right/wrong counts of two classifiers on the same n examples, with the exact McNemar test."""

    n: int
    only_baseline: int
    """Examples only the baseline got right."""
    only_arm: int
    p: float
    interval: tuple[float, float]
    """Of the difference in accuracy: the test inverted, given how many examples the two disagree on."""

    @property
    def differing(self) -> int:
        return self.only_baseline + self.only_arm


def mcnemar(only_baseline: int, only_arm: int, n: int) -> Disagreement:
    """Under no difference each disagreement is a fair coin; Clopper and Pearson's interval inverts that test."""
    differing = only_baseline + only_arm
    if not differing:
        return Disagreement(n, 0, 0, 1.0, (0.0, 0.0))
    p = min(1.0, 2 * fair_coins(min(only_baseline, only_arm), differing))
    tail = (1 - LEVEL) / 2
    low = beta_quantile(only_arm, only_baseline + 1, tail) if only_arm else 0.0
    high = beta_quantile(only_arm + 1, only_baseline, 1 - tail) if only_baseline else 1.0
    ends = ((2 * low - 1) * differing / n, (2 * high - 1) * differing / n)
    return Disagreement(n, only_baseline, only_arm, p, ends)


def mcnemar_range(wrong_baseline: int, wrong_arm: int, n: int) -> tuple[float, float, int | None]:
    """(smallest p, largest p, most disagreements still significant at 0.05) for two error counts on n examples.

    What a published pair of accuracies allows when the predictions were not published: the two disagree at least on
    the difference of their errors, and at most everywhere that either is wrong.
    """
    net = abs(wrong_baseline - wrong_arm)
    most = min(wrong_baseline + wrong_arm, 2 * n - wrong_baseline - wrong_arm)
    chances = {
        differing: min(1.0, 2 * fair_coins((differing - net) // 2, differing))
        for differing in range(max(net, 1), max(most, net, 1) + 1, 2)
    }
    significant = [differing for differing, p in chances.items() if p < 0.05]
    return min(chances.values()), max(chances.values()), significant[-1] if significant else None


def paired_difference(baseline: Floats, arm: Floats) -> Estimate:
    """Two trained models on the same examples (or documents) [items]: a paired t over them."""
    difference = arm - baseline
    n = len(difference)
    if n < 2:
        return Estimate(float(difference.mean()), None, 0.0, 1.0, n=n)
    return Estimate(float(difference.mean()), 0.0, float(difference.var(ddof=1)) / n, n - 1.0, n=n)


# -- time per step -----------------------------------------------------------------------------------------------------

Clocked = tuple[float, float]
"""(when a run started, its seconds per step)"""


def neighbours(baseline: Sequence[Clocked], arm: Sequence[Clocked]) -> list[tuple[float, float]]:
    """[(baseline's step time, arm's)] of runs that followed one another: as many pairs as can be, the nearest in time.

    Only neighbours share a machine's state: with a pause or another load between them a pair would compare the hours.
    """
    runs = sorted([(at, False, time) for at, time in baseline] + [(at, True, time) for at, time in arm])
    best: list[tuple[int, float, list[tuple[float, float]]]] = [(0, 0.0, [])]  # of the first i runs
    for place, (at, is_arm, time) in enumerate(runs):
        found = best[-1]
        if place and runs[place - 1][1] != is_arm:
            before, _, other = runs[place - 1]
            pairs, gap, chosen = best[place - 1]
            pair = (other, time) if is_arm else (time, other)
            found = max(found, (pairs + 1, gap - (at - before), [*chosen, pair]), key=lambda one: one[:2])
        best.append(found)
    return best[-1][2]


def step_time_ratio(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """The log of arm over baseline, from pairs of neighbours; None with fewer than two."""
    logs = [math.log(arm / base) for base, arm in pairs if arm > 0 and base > 0]
    if len(logs) < 2:
        return None
    sample = Sample(tuple(logs))
    return Estimate(sum(logs) / len(logs), sample.variance / len(logs), 0.0, float(sample.df), sample.variance)


def noise_floor(ratios: Sequence[float]) -> float | None:
    """How far neighbours that do identical work lie apart: a ratio that 95 % of such pairs stay below, less 1.

    From the logs' standard deviation about zero, with the t of as many pairs; None with fewer than two.
    """
    if len(ratios) < 2:
        return None
    spread = math.sqrt(sum(math.log(one) ** 2 for one in ratios) / len(ratios))
    return math.expm1(t_quantile((1 + LEVEL) / 2, len(ratios)) * spread)


def trend(values: Sequence[float]) -> float | None:
    """Relative change from the first to the last value when every step goes the same way, else None."""
    if len(values) < 3 or values[0] == 0:
        return None
    steps = [b - a for a, b in itertools.pairwise(values)]
    same_way = all(step > 0 for step in steps) or all(step < 0 for step in steps)
    return values[-1] / values[0] - 1 if same_way else None
