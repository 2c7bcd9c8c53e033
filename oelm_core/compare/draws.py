"""Draws of a tuning: what they found, and which runs stand for an arm once its setting is chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.formatting import listed
from oelm_core.metric import metric_named
from oelm_core.runs.schema import Tuning

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.runs.store import Run


@dataclass(frozen=True)
class Draw:
    """One point that an arm tried, over its tuning seeds."""

    point: int
    settings: tuple[str, ...]
    state: str
    """done, failed, pruned, or open while a run of it is not over."""
    value: float | None
    """Mean over seeds of the best validation, of a pruned one until then; None where it failed or is open."""


def draws_of(runs: Iterable[Run], seeds: int | None = None) -> list[Draw]:
    """The draws that an arm's runs in one tuning make, by point; with fewer runs than `seeds` a draw is open."""
    by_point: dict[int, dict[int, tuple[Run, Tuning]]] = {}
    for run in sorted(runs, key=lambda run: run.created):
        if run.tuning is not None and run.tuning.role == "draw":
            by_point.setdefault(run.tuning.point, {})[run.seed] = run, run.tuning  # the newest of a seed
    return [_draw(point, list(made.values()), seeds) for point, made in sorted(by_point.items())]


def _draw(point: int, made: Sequence[tuple[Run, Tuning]], seeds: int | None) -> Draw:
    states = {run.state for run, _ in made}
    values = [run.metric_value for run, _ in made if run.metric_value is not None and math.isfinite(run.metric_value)]
    settings = made[0][1].settings
    complete = len(values) == len(made)
    if "failed" in states or (states == {"finished"} and not complete):
        return Draw(point, settings, "failed", None)
    if not states <= {"finished", "stopped"} or len(made) < (seeds or 1):
        return Draw(point, settings, "open", None)
    if "stopped" in states:  # stopped before its first validation it has shown nothing
        return (
            Draw(point, settings, "pruned", statistics.fmean(values))
            if complete
            else Draw(point, settings, "failed", None)
        )
    return Draw(point, settings, "done", statistics.fmean(values))


def best_draw(draws: Iterable[Draw], metric: str) -> Draw | None:
    """The best of those that came to their end, the earliest of equals; None where none did."""
    best: Draw | None = None
    for draw in draws:
        if draw.state != "done" or draw.value is None:
            continue
        if best is None or metric_named(metric).better(draw.value, best.value):
            best = draw
    return best


def expected_best(values: Sequence[float], *, higher_is_better: bool) -> tuple[float, ...]:
    """The mean best of m of these N values over all subsets of size m, for m = 1..N.

    Draws without replacement: the unbiased estimate of what m draws find. (With replacement, as in Dodge et al. 2019,
    one value may be drawn twice, so that the estimate is too low; see Tang et al. 2020.) The i-th worst value is the
    best of C(i-1, m-1) of the C(N, m) subsets.

    >>> expected_best([0.7, 0.9, 0.8], higher_is_better=True)[2]
    0.9
    """
    ordered, count = sorted(values, reverse=not higher_is_better), len(values)
    return tuple(
        math.fsum(value * (math.comb(place, m - 1) / math.comb(count, m)) for place, value in enumerate(ordered))
        for m in range(1, count + 1)
    )


# -- which runs stand for an arm ---------------------------------------------------------------------------------------


def without_draws(study: Study, runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """(the runs that stand for a study's arms, footnotes about the rest).

    Draws never do. Where an arm's chosen setting has finished on a fresh seed, the arm is that setting: its newest
    tuning's runs, and not those of the plain preset.
    """
    kept: list[Run] = []
    notes: list[str] = []
    draws = [run for run in runs if run.is_draw]
    if draws:
        ids = sorted({run.tuning.id for run in draws if run.tuning})
        notes.append(f"{len(draws)} runs are draws of {listed(ids)}: they choose a setting and are no arm.")
    for preset in dict.fromkeys(run.preset.lower() for run in runs):
        mine = [run for run in runs if run.preset.lower() == preset and not run.is_draw]
        plain = [run for run in mine if run.tuning is None]
        own = [run for run in mine if run.tuning and (run.study or "").lower() == study.id.lower()]
        finished = [run for run in own if run.state == "finished"]
        newest = max(finished or ([] if plain else own), key=lambda run: run.created, default=None)
        if newest is None:
            kept += plain
            notes += [f"{run.id} is left out: {run.state_and_reason}." for run in own]
        else:
            same = [run for run in own if _choice(run) == _choice(newest)]
            kept += same
            notes += _left_out(newest, plain, [run for run in own if run not in same])
        foreign = [run for run in mine if run.tuning and run not in own]
        notes += [f"{run.id} is left out: it was tuned for the study {run.study or 'unknown'}." for run in foreign]
    return kept, notes


def _choice(run: Run) -> tuple[str, int] | None:
    return (run.tuning.id, run.tuning.point) if run.tuning else None


def _left_out(newest: Run, plain: Sequence[Run], older: Sequence[Run]) -> list[str]:
    tuning = newest.tuning.id if newest.tuning else ""
    notes = [f"{run.id} is left out: {tuning} chose another setting since." for run in older]
    if plain:
        which = plain[0].id if len(plain) == 1 else f"{len(plain)} runs"
        are = "is" if len(plain) == 1 else "are"
        notes.append(f"{newest.preset}: {which} with untuned settings {are} left out: {tuning} chose this arm's.")
    return notes
