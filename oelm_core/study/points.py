"""The points of a tuning: drawn once, the same for every arm, always the same for one space."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping

from oelm_core.config.tuning import Dimension, Value
from oelm_core.errors import BadInput

SEED = 42
DIGITS = 4
"""Significant digits of a drawn number: 0.0003162 is as good as 0.000316227766 and can be read."""
TRIES = 20
"""Draws for each point wanted, before the space is called too narrow."""

Space = Mapping[str, Dimension]
Point = dict[str, Value]


def draw_points(space: Space, count: int) -> list[Point]:
    """The first `count` points of the space's sequence: more points only add to fewer.

    Where a range of real numbers is among the settings: a scrambled Sobol sequence, by Optuna's sampler. Else the grid
    of all values, shuffled, each point once.
    """
    sizes = [one.size for one in space.values()]
    whole = [size for size in sizes if size is not None]
    if len(whole) < len(sizes):
        return _sobol(space, count)
    grid = math.prod(whole)
    if count > grid:
        raise BadInput(
            f"--budget {count}: there are only {grid} points in the space; write --budget {grid} or widen it."
        )
    return [_grid_point(space, place) for place in _first_of_shuffled(grid, count)]


def _sobol(space: Space, count: int) -> list[Point]:
    import optuna  # heavy: half a second, paid when points are drawn

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(one) for key, one in space.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.QMCSampler(qmc_type="sobol", scramble=True, seed=SEED)
    study = optuna.create_study(sampler=sampler)
    # The sampler learns the space from a trial that is there; without one its first point would be a random one.
    anywhere = {key: one.low for key, one in distributions.items()}
    study.add_trial(optuna.trial.create_trial(params=anywhere, distributions=distributions, value=0.0))
    points: list[Point] = []
    for _ in range(TRIES * count):
        drawn = study.ask(distributions).params
        point = {key: _value(one, drawn[key]) for key, one in space.items()}
        if point not in points:  # equal after rounding
            points.append(point)
        if len(points) == count:
            return points
    raise BadInput(f"--budget {count}: the space has too few points that differ in {DIGITS} digits; widen it.")


def _distribution(one: Dimension):  # type: ignore[no-untyped-def]  # Optuna's types are not loaded here
    from optuna.distributions import FloatDistribution, IntDistribution

    if one.values:
        return IntDistribution(0, len(one.values) - 1)
    if one.is_whole:
        return IntDistribution(int(one.low), int(one.high), log=one.log)
    return FloatDistribution(one.low, one.high, log=one.log)


def _value(one: Dimension, drawn: float) -> Value:
    if one.values:
        return one.values[int(drawn)]
    if one.is_whole:
        return int(drawn)
    return min(max(float(f"{drawn:.{DIGITS}g}"), float(one.low)), float(one.high))


def _grid_point(space: Space, place: int) -> Point:
    point: Point = {}
    for key, one in space.items():
        place, at = divmod(place, one.size or 1)
        point[key] = one.values[at] if one.values else int(one.low) + at
    return point


def _first_of_shuffled(size: int, count: int) -> list[int]:
    """The first of the numbers below `size`, in an order that depends on nothing else. Only what is swapped is kept."""
    order = random.Random(SEED)
    swapped: dict[int, int] = {}
    first = []
    for place in range(count):
        other = order.randrange(place, size)
        first.append(swapped.get(other, other))
        swapped[other] = swapped.get(place, place)
    return first
