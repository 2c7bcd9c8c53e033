"""A preset compared with itself: how often the lab finds a difference where there is none, and what gap it could see.

The seeds of one recipe are split into two sides, in every way or in a sample of them, and each split is judged by the
same `contrast` that a table's gap is judged by, with seeds and examples, nothing borrowed.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.compare.arms import arm_of_runs, newest_per_seed, same_inputs
from oelm_core.compare.evidence import Evidence, gather
from oelm_core.compare.item_scores import Basis, common_basis
from oelm_core.compare.significance import as_gap, score_arm
from oelm_core.compare.statistics import LEVEL, POWER, Crossed, Sample, contrast
from oelm_core.errors import BadInput, NotFound
from oelm_core.formatting import listed
from oelm_core.study.calibration import Calibration

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

FEWEST = 4
"""Seeds: two sides of two."""
MOST_SPLITS = 2_000
"""Of one size; where there are more, a sample of so many stands for them."""
REPLICATES = 400
"""Labs of normal seeds, for the range of false-alarm rates that chance allows."""


@dataclass(frozen=True)
class Splits:
    """The splits of a preset's seeds into two sides of `seeds` each."""

    seeds: int
    looked_at: int
    possible: int
    alarms: int
    """Splits in which the preset differed from itself at 5 %."""
    by_chance: tuple[float, float]
    """Rates that 95 in 100 labs with so many seeds would see if alarms were at 5 %: the splits overlap."""
    detects: float
    """The gap, as it is shown, that so many seeds a side find in four of five cases."""
    detects_calibrated: float
    """The same for a table that rests on this calibration."""

    @property
    def rate(self) -> float:
        return self.alarms / self.looked_at


@dataclass(frozen=True, eq=False)
class SelfComparison:
    preset: str
    config_hash: str
    metric: str
    basis: Basis
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """One a seed, as the metric is written in files."""
    sample: Sample
    unit: str
    """What the examples are; "" where they were not kept."""
    weights: str
    text: str
    sizes: tuple[Splits, ...]
    by_chance: tuple[float, float]
    """As in Splits, over all sizes."""
    notes: tuple[str, ...] = ()

    @property
    def looked_at(self) -> int:
        return sum(one.looked_at for one in self.sizes)

    @property
    def rate(self) -> float:
        """False alarms over all splits."""
        return sum(one.alarms for one in self.sizes) / self.looked_at

    @property
    def examples(self) -> int:
        return 0 if self.sample.items is None else self.sample.items.shape[1]

    def record(self, host: str) -> Calibration:
        """What is kept of it."""
        return Calibration(
            preset=self.preset,
            config_hash=self.config_hash,
            metric=self.metric,
            basis=self.basis,
            seeds=list(self.seeds),
            scores=list(self.values),
            false_alarms={str(one.seeds): one.rate for one in self.sizes},
            splits={str(one.seeds): one.looked_at for one in self.sizes},
            weights=self.weights,
            text=self.text,
            created=time.time(),
            host=host,
        )


def own_runs(config_hash: str, runs: Sequence[Run]) -> tuple[list[Evidence], list[str]]:
    """(the finished runs of a preset's own configuration, newest per seed, all on the newest's text and weights; what
    was left out, a sentence each)."""
    mine = [run for run in runs if run.config_hash == config_hash and not (run.imported or run.is_draw)]
    found, _ = newest_per_seed(gather(run) for run in mine if run.state == "finished")
    found = sorted((e for e in found if e.has_result), key=lambda e: e.run.created, reverse=True)
    alike: dict[int, Evidence] = {}
    for e in found:
        if same_inputs(found[0], e):
            alike.setdefault(e.seed, e)
    notes = []
    other = sum(not same_inputs(found[0], e) for e in found)
    if other:
        which = "1 run on other text or weights is" if other == 1 else f"{other} runs on other text or weights are"
        notes.append(f"{which} left out.")
    diverged = sorted({run.seed for run in mine if run.is_over and run.reason == "nonfinite"} - set(alike))
    if diverged:
        names = listed([str(seed) for seed in diverged])
        notes.append(f"seed {names} diverged and is left out here; a table counts such runs as worse than all others.")
    return [alike[seed] for seed in sorted(alike)], notes


def missing_seeds(config_hash: str, runs: Sequence[Run], wanted: Sequence[int]) -> tuple[list[int], list[Run]]:
    """(seeds that have no run yet, runs of the others that are under way).

    A seed that diverged is a result, and is not tried again; one that failed otherwise is.
    """
    mine = [run for run in runs if run.config_hash == config_hash and not (run.imported or run.is_draw)]
    done = {run.seed for run in mine if run.state == "finished" or run.reason == "nonfinite"}
    under_way = {run.seed: run for run in mine if not run.is_over and run.seed not in done}
    missing = [seed for seed in wanted if seed not in done and seed not in under_way]
    return missing, [under_way[seed] for seed in wanted if seed in under_way]


def compare_with_itself(
    preset: str, evidence: Sequence[Evidence], metric: str | None = None, notes: Sequence[str] = ()
) -> SelfComparison:
    """`evidence`: runs of one configuration, one a seed. NotFound with fewer than FEWEST that have the metric."""
    metric = metric or (evidence[0].metric if evidence else "")
    basis = common_basis(evidence, metric)
    scored = score_arm(arm_of_runs(preset, evidence), metric, basis) if evidence else None
    if scored is None or scored.sample is None or len(scored.runs) < FEWEST:
        have = len(scored.runs) if scored else 0
        if scored and have < len(evidence):
            known = sorted({name for e in evidence for name in (e.result.best or {})} - {"step", "seconds"})
            raise BadInput(f"the runs of {preset} have no {metric}; they have {listed(known)}.")
        raise NotFound(
            f"{preset} has {have or 'no'} finished {'seed' if have == 1 else 'seeds'} of its own configuration, and "
            f"comparing it with itself takes {FEWEST} or more; get them with: oelm calibrate {preset} --seeds 8"
        )
    sample = scored.sample
    crossed = Crossed.of([sample.items]) if sample.items is not None and sample.items.shape[1] > 1 else None
    count = len(sample.scores)
    chosen = {k: list(_splits(count, k)) for k in range(2, count // 2 + 1)}
    ranges, overall = _by_chance(count, chosen)
    return SelfComparison(
        preset,
        evidence[0].run.config_hash,
        metric,
        basis,
        tuple(e.seed for e in scored.runs),
        tuple(scored.values),
        sample,
        scored.unit,
        evidence[0].weights or "",
        evidence[0].text or "",
        tuple(
            Splits(
                k,
                len(splits),
                possible(count, k),
                sum(_differs(sample, crossed, one, other) for one, other in splits),
                ranges[k],
                as_gap(metric, detectable(sample.variance, k, 2 * (k - 1))),
                as_gap(metric, detectable(sample.variance, k, 2 * (k - 1) + sample.df)),
            )
            for k, splits in chosen.items()
        ),
        overall,
        tuple(notes),
    )


def _differs(sample: Sample, crossed: Crossed | None, one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether the table would say that two sides of one preset differ."""
    sides = [Sample(tuple(sample.scores[place] for place in side)) for side in (one, other)]
    found = contrast([(1.0, sides[0]), (-1.0, sides[1])], (), crossed.part([*one, *other]) if crossed else None)
    p = found.p()
    return p is not None and p < 1 - LEVEL


def detectable(variance: float, k: int, df: float) -> float:
    """The gap that a two-sided test at 5 % with k seeds a side finds in four of five cases, on the scale tested.

    `variance` between seeds. Examples on which two methods truly differ come on top, and are not known here.
    """
    from scipy.special import nctdtrinc, stdtrit

    limit = stdtrit(df, (1 + LEVEL) / 2)
    return float(nctdtrinc(df, 1 - POWER, limit)) * math.sqrt(2 * variance / k)


# -- splits ------------------------------------------------------------------------------------------------------------

Split = tuple[tuple[int, ...], tuple[int, ...]]


def possible(count: int, k: int) -> int:
    """Ways to choose two sides of k out of `count`, whichever is called the first.

    >>> possible(4, 2), possible(12, 6)
    (3, 462)
    """
    return math.comb(count, k) * math.comb(count - k, k) // 2


def _splits(count: int, k: int) -> Iterator[Split]:
    """All of them, or always the same sample of MOST_SPLITS."""
    if possible(count, k) <= MOST_SPLITS:
        for one in itertools.combinations(range(count), k):
            rest = [place for place in range(one[0] + 1, count) if place not in one]
            yield from ((one, other) for other in itertools.combinations(rest, k))
        return
    draw = random.Random(f"{count} {k}")
    seen: set[Split] = set()
    while len(seen) < MOST_SPLITS:
        dealt = draw.sample(range(count), 2 * k)
        one, other = sorted((tuple(sorted(dealt[:k])), tuple(sorted(dealt[k:]))))
        if (one, other) not in seen:
            seen.add((one, other))
            yield one, other


def _by_chance(
    count: int, chosen: dict[int, list[Split]]
) -> tuple[dict[int, tuple[float, float]], tuple[float, float]]:
    """({k: range}, range over all): of the rate of alarms, for normal seeds and a test that keeps its 5 % exactly."""
    import numpy as np
    from scipy.special import stdtrit

    scores = np.random.default_rng(count).normal(size=(count, REPLICATES))
    alarms = {}
    for k, splits in chosen.items():
        first, second = (np.zeros((len(splits), count)) for _ in range(2))
        for row, (one, other) in enumerate(splits):
            first[row, list(one)] = second[row, list(other)] = 1 / k
        means = first @ scores, second @ scores  # [splits, replicates]
        squares = (first + second) @ scores**2 - means[0] ** 2 - means[1] ** 2
        error = np.sqrt(squares / (k - 1))
        alarms[k] = (np.abs(means[0] - means[1]) > stdtrit(2 * (k - 1), (1 + LEVEL) / 2) * error).sum(0)
    looked_at = {k: len(splits) for k, splits in chosen.items()}

    def middle(rates: np.ndarray) -> tuple[float, float]:
        low, high = np.quantile(rates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    overall = sum(alarms.values()) / sum(looked_at.values())
    return {k: middle(found / looked_at[k]) for k, found in alarms.items()}, middle(overall)
