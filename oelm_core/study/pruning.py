"""Which draws of an arm are not worth their end: Optuna's median pruner over the validations so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

STARTUP = 4
"""Draws that must have come to their end before any other is judged by them."""
WARM_UP = 1 / 3
"""Share of the steps in which no draw is judged: many a good setting starts slowly."""


class DrawCurve(NamedTuple):
    """The validations of one draw, mean over its seeds."""

    points: tuple[tuple[int, float], ...]
    """(step, value), steps ascending."""
    total: int
    """Steps of the whole draw."""
    state: str
    """done, pruned, or open; a failed draw tells nothing about others."""


def to_prune(curves: Sequence[DrawCurve], *, higher_is_better: bool) -> list[int]:
    """Places of the open draws whose best value so far is worse than the median of those that ended, at that step."""
    if sum(curve.state == "done" for curve in curves) < STARTUP:
        return []
    import optuna  # heavy: half a second, paid when there is something to judge

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if higher_is_better else "minimize")
    found = []
    for place, curve in sorted(enumerate(curves), key=lambda one: one[1].state == "open"):
        warm_up = int(curve.total * WARM_UP)
        study.pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warm_up)
        trial = study.ask()
        for step, value in curve.points:
            trial.report(value, step)
        if curve.state == "open":
            if curve.points and trial.should_prune():
                found.append(place)
        elif curve.points:
            pruned = curve.state == "pruned"
            study.tell(
                trial, None if pruned else curve.points[-1][1], optuna.trial.TrialState.PRUNED if pruned else None
            )
    return found


def mean_curve(curves: Sequence[Mapping[int, float]]) -> tuple[tuple[int, float], ...]:
    """The mean over seeds at every step that all of them have reached."""
    if not curves:
        return ()
    common = set.intersection(*(set(curve) for curve in curves))
    return tuple((step, sum(curve[step] for curve in curves) / len(curves)) for step in sorted(common))
