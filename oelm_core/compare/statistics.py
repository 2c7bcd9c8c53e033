"""Significance tests: exact McNemar, paired bootstraps, t over seeds, interleaved timing. Pure; scipy on demand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

LEVEL = 0.95
DRAWS = 10_000
BOOTSTRAP_SEED = 20260207
"""Fixed, so that one set of runs always gives one interval."""


@dataclass(frozen=True)
class Effect:
    """A difference (or log ratio turned into a ratio) with its interval and p-value; None where it cannot be had."""

    value: float
    interval: tuple[float, float] | None
    p: float | None
    n: int


@dataclass(frozen=True)
class Disagreement:
    """Paired right/wrong counts of two classifiers on the same n examples."""

    n: int
    only_baseline: int
    """Examples only the baseline got right."""
    only_arm: int
    p: float

    @property
    def differing(self) -> int:
        return self.only_baseline + self.only_arm

    @property
    def net(self) -> int:
        """Examples gained by the arm."""
        return self.only_arm - self.only_baseline


def exact_mcnemar(only_baseline: int, only_arm: int) -> float:
    """Two-sided exact p: under no difference each disagreement is a fair coin."""
    from scipy.stats import binomtest

    if only_baseline + only_arm == 0:
        return 1.0
    return float(binomtest(only_arm, only_baseline + only_arm, 0.5).pvalue)


def mcnemar_range(wrong_baseline: int, wrong_arm: int, n: int) -> tuple[float, float, int | None]:
    """(smallest p, largest p, most disagreements still significant at 0.05) for two error counts on n examples.

    What a published pair of accuracies allows when the predictions were not published: the two disagree at least on
    the difference of their errors, and at most everywhere that either is wrong.
    """
    import numpy as np
    from scipy.stats import binom

    net = abs(wrong_baseline - wrong_arm)
    most = min(wrong_baseline + wrong_arm, 2 * n - wrong_baseline - wrong_arm)
    disagreements = np.arange(max(net, 1), max(most, net, 1) + 1, 2)
    p = np.minimum(1.0, 2 * binom.cdf((disagreements - net) // 2, disagreements, 0.5))
    significant = disagreements[p < 0.05]
    return float(p.min()), float(p.max()), int(significant[-1]) if len(significant) else None


def disagreement(labels: Sequence[int], baseline: Sequence[int], arm: Sequence[int]) -> Disagreement:
    right = [(b == y, a == y) for y, b, a in zip(labels, baseline, arm, strict=True)]
    only_baseline = sum(b and not a for b, a in right)
    only_arm = sum(a and not b for b, a in right)
    return Disagreement(len(right), only_baseline, only_arm, exact_mcnemar(only_baseline, only_arm))


def bootstrap_metric(
    labels: Sequence[int],
    baseline: Sequence[int],
    arm: Sequence[int],
    metric: str,
    *,
    ratio: bool = False,
    draws: int = DRAWS,
) -> Effect | None:
    """Arm minus baseline (or arm over baseline) in a metric of SCORES, with a paired bootstrap interval over examples.

    None for a ratio of values that are not all positive. Examples fall into few (label, baseline, arm) kinds;
    redrawing their counts is the same as redrawing examples.
    """
    import numpy as np

    from oelm_core.scores import SCORES

    size = max(max(labels), max(baseline), max(arm)) + 1
    kinds, counts = np.unique(np.array([labels, baseline, arm]), axis=1, return_counts=True)
    n = int(counts.sum())
    redrawn = np.random.default_rng(BOOTSTRAP_SEED).multinomial(n, counts / n, size=draws)  # [draws, kinds]
    weights = np.concatenate([counts[None], redrawn]).astype(float)
    y, b, a = kinds
    ours, theirs = (SCORES[metric](_confusions(weights, y, predicted, size)) for predicted in (a, b))
    if ratio and min(ours.min(), theirs.min()) <= 0:
        return None
    change = ours / theirs if ratio else ours - theirs
    low, high = np.quantile(change[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Effect(float(change[0]), (float(low), float(high)), None, n)


def _confusions(weights: Floats, labels: Integers, predictions: Integers, size: int) -> Floats:
    """[draws, size, size] from weights [draws, kinds] and the label and prediction of each kind [kinds]."""
    import numpy as np

    tables = np.zeros((len(weights), size, size))
    for kind, (label, prediction) in enumerate(zip(labels, predictions, strict=True)):
        tables[:, label, prediction] += weights[:, kind]
    return tables


def perplexity_ratio(
    baseline: Sequence[float], arm: Sequence[float], tokens: Sequence[float], draws: int = DRAWS
) -> Effect:
    """exp of the mean difference of negative log likelihood per token, paired by sequence.

    `baseline`, `arm`: summed nll of each sequence [sequences]; `tokens`: how many tokens each has. The interval is a
    bootstrap over sequences; p is a t test of the ratio estimator, which with equal lengths is the paired t test.
    """
    import numpy as np
    from scipy.stats import t as student

    difference = np.asarray(arm, float) - np.asarray(baseline, float)
    count = np.asarray(tokens, float)
    n, mean = len(difference), difference.sum() / count.sum()
    if n < 2:
        return Effect(math.exp(mean), None, None, n)
    spread = math.sqrt(n / (n - 1) * float(((difference - mean * count) ** 2).sum())) / count.sum()
    p = float(2 * student.sf(abs(mean) / spread, n - 1)) if spread > 0 else (1.0 if mean == 0 else 0.0)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    block = max(1, 2_000_000 // n)  # keeps the index table to a few tens of megabytes
    means: list[float] = []
    while len(means) < draws:
        picks = generator.integers(0, n, size=(min(block, draws - len(means)), n))
        means.extend(difference[picks].sum(1) / count[picks].sum(1))
    low, high = np.exp(np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return Effect(math.exp(mean), (float(low), float(high)), p, n)


def over_seeds(baseline: Mapping[int, float], arm: Mapping[int, float], *, ratio: bool) -> tuple[str, Effect] | None:
    """("paired t" | "Welch t", estimate) over seeds, or None with too few. With `ratio`, of logs, given as a ratio."""
    if ratio and min([*baseline.values(), *arm.values()], default=1) <= 0:
        return None
    shared = sorted(set(baseline) & set(arm))
    if len(shared) >= 2:
        return "paired t", paired_t([baseline[s] for s in shared], [arm[s] for s in shared], ratio=ratio)
    if len(baseline) >= 2 and len(arm) >= 2:
        return "Welch t", welch_t(list(baseline.values()), list(arm.values()), ratio=ratio)
    return None


def paired_t(baseline: Sequence[float], arm: Sequence[float], *, ratio: bool) -> Effect:
    """Arm minus baseline (or arm over baseline), paired; needs two pairs."""
    from scipy.stats import ttest_rel

    base, other = _scale(baseline, ratio), _scale(arm, ratio)
    differences = [a - b for a, b in zip(other, base, strict=True)]
    mean = sum(differences) / len(differences)
    has_spread = max(differences) - min(differences) > 1e-12 * max(map(abs, base))
    return _effect(mean, ttest_rel(other, base) if has_spread else None, len(differences), ratio)


def welch_t(baseline: Sequence[float], arm: Sequence[float], *, ratio: bool) -> Effect:
    """As paired_t for seeds that do not match: unequal variances allowed."""
    from scipy.stats import ttest_ind

    base, other = _scale(baseline, ratio), _scale(arm, ratio)
    mean = sum(other) / len(other) - sum(base) / len(base)
    has_spread = max(other) != min(other) or max(base) != min(base)
    outcome = ttest_ind(other, base, equal_var=False) if has_spread else None
    return _effect(mean, outcome, min(len(base), len(other)), ratio)


def interleaved(baseline: Sequence[tuple[float, float]], arm: Sequence[tuple[float, float]]) -> Effect | None:
    """Step-time ratio arm/baseline from runs in turns; inputs are (start time, step time) of each run.

    The first run of one is paired with the first of the other, and so on, so drift of the machine hits both sides
    alike. None when there are fewer than two pairs.
    """
    pairs = list(zip(sorted(baseline), sorted(arm), strict=False))
    if len(pairs) < 2:
        return None
    return paired_t([b for (_, b), _ in pairs], [a for _, (_, a) in pairs], ratio=True)


def trend(values: Sequence[float]) -> float | None:
    """Relative change from the first to the last value when every step goes the same way, else None."""
    if len(values) < 3 or values[0] == 0:
        return None
    steps = [b - a for a, b in itertools.pairwise(values)]
    same_way = all(step > 0 for step in steps) or all(step < 0 for step in steps)
    return values[-1] / values[0] - 1 if same_way else None


def _scale(values: Sequence[float], ratio: bool) -> list[float]:
    return [math.log(value) for value in values] if ratio else list(values)


def _effect(mean: float, outcome: Any, n: int, ratio: bool) -> Effect:
    """`outcome`: scipy's, or None without spread, where t is not defined."""
    back = math.exp if ratio else float
    if outcome is None:
        return Effect(back(mean), None, None, n)
    low, high = outcome.confidence_interval(LEVEL)
    return Effect(back(mean), (back(low), back(high)), float(outcome.pvalue), n)
