"""Checks of published times: clocks against durations, steps x step time against the wall clock, drift, speed-ups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oelm_core.compare.comparison import Finding
from oelm_core.compare.config_values import Config, steps_of
from oelm_core.compare.statistics import step_time_ratio, trend
from oelm_core.formatting import chance, duration_words, listed, percent, relative
from oelm_core.published.figures import Figure, cited, derived, mean_figure, named, sources

if TYPE_CHECKING:
    from oelm_core.config import Experiment

SLACK = 0.15
"""Times were quoted loosely; less than this apart is no contradiction."""


def times(experiment: Experiment, figures: Sequence[Figure], config: Config) -> Iterator[Finding]:
    """Contradictions among the times of one run. `config` is the recipe as it was run."""
    measured = [one for one in figures if not one.projected and not _is_mean_of_runs(one, figures)]
    clock = _clock(measured)
    yield from _durations(experiment, measured, clock)
    yield from _rates(experiment, measured)
    steps = named(measured, "steps")
    recipe = steps_of(config)
    yield from _steps(experiment, steps, recipe)
    count = float(recipe or (steps[0].value if steps else 0))
    walls = [clock] if clock else named(measured, "seconds")
    if count and walls:
        wall = min(walls, key=lambda one: one.value)
        yield from _products(experiment, measured, count, wall)
        yield from _marks(experiment, measured, count, wall)


def _is_mean_of_runs(one: Figure, figures: Sequence[Figure]) -> bool:
    """A step time that averages separate timing runs says nothing about the run that gave the result."""
    runs = named(figures, "step_time_run")
    return one.what == "step_time" and bool(runs) and one.agrees(mean_figure("step_time", runs))


def _clock(figures: Sequence[Figure]) -> Figure | None:
    """The run's length by its start and end on the clock."""
    starts, ends = named(figures, "clock_start"), named(figures, "clock_end")
    if not starts or not ends:
        return None
    return derived(
        "seconds", lambda start, end: (end - start) % 86400, starts[0], ends[0], source=sources(starts[0], ends[0])
    )


def _durations(experiment: Experiment, figures: Sequence[Figure], clock: Figure | None) -> Iterator[Finding]:
    lengths = named(figures, "seconds")
    if clock is None and not _all_agree(lengths):
        why = f"lengths of one run do not agree: {listed([duration_words(one.value) for one in lengths])}."
        yield cited("breaks", "wall-clock", (experiment.id,), why, *lengths)
    for claim in lengths:
        if clock is not None and not claim.agrees(clock, slack=0.02):
            why = (
                f"{duration_words(claim.value)} is given as the run's length, but its start and end on the clock are "
                f"{duration_words(clock.value)} apart."
            )
            yield cited("breaks", "wall-clock", (experiment.id,), why, claim)


def _rates(experiment: Experiment, figures: Sequence[Figure]) -> Iterator[Finding]:
    """Seconds per step and steps per second of one run must be reciprocal, and all quotes of them equal."""
    quotes = [(f"{one.value:g} s per step", one) for one in named(figures, "step_time")]
    for rate in named(figures, "it_per_s"):
        inverse = derived("step_time", lambda r: 1 / r, rate, source=rate.source)
        quotes.append((f"{rate.value:g} steps per second, which is {inverse.value:.3f} s", inverse))
    speeds = [one for _, one in quotes]
    if not _all_agree(speeds):
        why = f"the run's speed is given as {listed([text for text, _ in quotes])}; these cannot all hold."
        values = tuple(one.value for one in named(figures, "step_time"))
        yield cited("breaks", "step-time", (experiment.id,), why, *speeds, values=values)


def _steps(experiment: Experiment, claims: Sequence[Figure], recipe: int | None) -> Iterator[Finding]:
    counts = sorted({one.value for one in claims} | ({float(recipe)} if recipe and claims else set()))
    if counts and counts[-1] - counts[0] > 1:
        each = listed([f"{count:,.0f}" for count in counts])
        by = f" (the recipe makes {recipe:,})" if recipe else ""
        why = f"the number of training steps is given as {each}{by}: how long it trained is in doubt."
        yield cited("breaks", "steps", (experiment.id,), why, *claims)


def _products(experiment: Experiment, figures: Sequence[Figure], steps: float, wall: Figure) -> Iterator[Finding]:
    """Steps x seconds per step cannot exceed the wall clock, which holds validation too."""
    for claim in named(figures, "step_time"):
        product = derived("seconds", lambda t: t * steps, claim)
        if product.low > wall.high * 1.02:
            why = (
                f"{claim.value:g} s per step x {steps:,.0f} steps = {duration_words(product.value)}, more than the "
                f"{duration_words(wall.value)} that the whole run took."
            )
            about = (claim.value,)
            yield cited("breaks", "step-time-x-steps", (experiment.id,), why, claim, wall, values=about)
    for claim in named(figures, "training_seconds"):
        share = claim.value / wall.value
        if share < 0.5:
            why = (
                f"the clock counted {duration_words(claim.value)} of training in a run of "
                f"{duration_words(wall.value)}, {percent(share, 0)} of it: the step time leaves out most of the work."
            )
            yield cited("confounds", "training-time", (experiment.id,), why, claim, wall)


def _marks(experiment: Experiment, figures: Sequence[Figure], steps: float, wall: Figure) -> Iterator[Finding]:
    """When an accuracy was reached, against the pace of the whole run."""
    pace = wall.value / steps
    wrong = [
        f"{at.value:,.0f} steps in {duration_words(took.value)}"
        for mark in ("80", "90")
        for at in named(figures, f"steps_to_{mark}")
        for took in named(figures, f"seconds_to_{mark}")
        if took.low > at.value * pace * 1.5
    ]
    if wrong:
        why = (
            f"{listed(wrong)}: {pace:.3f} s per step over the whole run ({steps:,.0f} steps) "
            "leaves no room for that; the times to an accuracy are too long."
        )
        yield cited("breaks", "time-to-accuracy", (experiment.id,), why, *named(figures, "seconds_to_80"))


def _all_agree(figures: Sequence[Figure]) -> bool:
    return all(a.agrees(b, slack=SLACK) for place, a in enumerate(figures) for b in figures[place + 1 :])


def speed_up(
    claims: Sequence[Figure], arm: Experiment, base: Experiment, known: dict[str, list[Figure]], settle: str
) -> Iterator[Finding]:
    """A claimed speed-up, against the step times it came from and against the wall clock."""
    ours, theirs = known.get(arm.id, []), known.get(base.id, [])
    for claim in named(claims, "speedup"):
        steps = [(a, b) for a in named(ours, "step_time") for b in named(theirs, "step_time")]
        expected = [derived("speedup", lambda a, b: 1 - a / b, a, b) for a, b in steps]
        if expected and not any(one.agrees(claim) for one in expected):
            nearest = min(expected, key=lambda one: abs(one.value - claim.value))
            why = f"speed-up given as {percent(claim.value, 1)}, but the step times make {percent(nearest.value, 1)}."
            yield cited("breaks", "speed-up", (arm.id, base.id), why, claim)
        walls = [
            min((f.value for f in named(side, "seconds") if not f.projected), default=None) for side in (ours, theirs)
        ]
        if walls[0] and walls[1] and claim.value > 0.05 and walls[0] >= walls[1]:
            why = (
                f"{percent(claim.value, 0)} less time per step is claimed, but the run took {duration_words(walls[0])} "
                f"against {duration_words(walls[1])}, {relative(walls[0] / walls[1] - 1, 0)}: "
                "the wall clock says the opposite."
            )
            yield cited("breaks", "speed-up", (arm.id, base.id), why, claim, settle_with=settle)


def timing_runs(
    arm: Experiment, base: Experiment, claims: Sequence[Figure], known: dict[str, list[Figure]]
) -> Iterator[Finding]:
    """Interleaved timing runs: their means, their drift, their order, and whether they show any difference."""
    sides = {
        one.id: _about(one.id, claims, "step_time_run") or named(known.get(one.id, []), "step_time_run")
        for one in (base, arm)
    }
    if any(len(runs) < 2 for runs in sides.values()):
        return
    for name, runs in sides.items():
        mean = mean_figure("step_time", runs)
        for claim in _about(name, claims, "step_time"):
            if not claim.agrees(mean):
                why = f"mean step time given as {claim.value:g} s, but the runs average {mean.value:.4f} s."
                yield cited("breaks", "average", (name,), why, claim)
        change = trend([one.value for one in runs])
        if change is not None and abs(change) >= 0.05:
            each = ", ".join(f"{one.value:g}" for one in runs)
            why = (
                f"step times of {name} drifted {relative(change, 0)} over its runs ({each} s): their spread shows the "
                "machine changing, not how stable training is."
            )
            yield cited("confounds", "drift", (name,), why, *runs)
    yield from _order(base.id, arm.id, claims)
    pairs = list(zip(*([one.value for one in runs] for runs in sides.values()), strict=False))
    effect = step_time_ratio(pairs)
    bounds = effect.interval() if effect else None
    if effect and bounds:
        low, high = (relative(math.expm1(end), 0) for end in bounds)
        gap = f"{relative(math.expm1(effect.value))} [{low}, {high}] per step"
        why = f"{len(pairs)} interleaved pairs give {gap}; {chance(effect.p())}."
        yield cited("note", "timing-runs", (base.id, arm.id), why, *sides[base.id], *sides[arm.id])


def _about(arm: str, claims: Sequence[Figure], what: str) -> list[Figure]:
    """A study's claims about one of its arms."""
    return [claim for claim in named(claims, what) if claim.arms and claim.arms[0].lower() == arm.lower()]


def _order(base: str, arm: str, claims: Sequence[Figure]) -> Iterator[Finding]:
    order = [c.arms[0].lower() for c in named(claims, "step_time_run") if c.arms]
    pairs = list(zip(order[::2], order[1::2], strict=False))
    if len(pairs) < 2 or len(set(pairs)) != 1 or set(pairs[0]) != {base.lower(), arm.lower()}:
        return
    first = base if pairs[0][0] == base.lower() else arm
    why = f"{first} ran first in every pair, so a warming machine favours it each time; alternate who goes first."
    yield Finding("note", "order", (base, arm), why)
