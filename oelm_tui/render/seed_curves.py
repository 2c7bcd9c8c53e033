"""The curves of a comparison: for each arm the mean over its seeds, and the band between the least and the greatest."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oelm_core.metric import metric_named
from oelm_tui import glyphs
from oelm_tui.charts.plot import Panel, PlotCurve

if TYPE_CHECKING:
    from oelm_core.compare import Arm, Group

TITLES = {"loss": "validation loss", "train_loss": "training loss"}


def curve_names(group: Group, arms: Sequence[Arm]) -> list[str]:
    """What there is to draw, the headline metric first."""
    names = dict.fromkeys((group.metric, "loss", "train_loss"))
    return [name for name in names if any(name in arm.curves for arm in arms)]


def arm_curves(arms: Sequence[Arm], name: str) -> Panel:
    drawn = []
    for number, arm in enumerate(arms):
        points = arm.band(name)
        if points:
            xs, ys, low, high = (array("d", column) for column in zip(*points, strict=True))
            band = (low, high) if len(arm.curves[name]) > 1 else None
            mark = glyphs.signs.arms[number % 4]
            drawn.append(PlotCurve(arm.id, xs, ys, f"arm{number % 4}", mark, band=band))
    return Panel(drawn, _title(name), metric_named(name).is_share)


def curve_caption(arms: Sequence[Arm], name: str, names: Sequence[str], log_y: bool) -> str:
    """Under the chart: which curve, which scale, and over which seeds."""
    seeds = {curve.seed for arm in arms for curve in arm.curves.get(name, ())}
    most = max((len(arm.curves.get(name, ())) for arm in arms), default=0)
    of = f"seed {min(seeds)}" if len(seeds) == 1 else "one seed an arm"
    if most > 1:
        of = f"{most} seeds: mean, least to greatest"
    turn = [f"v {_title(name)} {names.index(name) + 1}/{len(names)}"] if len(names) > 1 else []
    return "  ".join([of, *turn, f"g {'log' if log_y else 'linear'}"])


def _title(name: str) -> str:
    return TITLES.get(name, f"validation {name}")
