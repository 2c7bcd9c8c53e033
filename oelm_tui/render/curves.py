"""Which curves the Curves and System tabs draw: quantities of a run, beside its baseline and the marked runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from oelm_core.metric import metric_named
from oelm_core.registry import method_name
from oelm_core.runs.schema import UNFROZEN
from oelm_tui import glyphs
from oelm_tui.charts.plot import AxisMark, ChartView, PlotCurve
from oelm_tui.charts.reduce import value_at
from oelm_tui.charts.smooth import Smoother, fitting_weight
from oelm_tui.snapshots.columns import Columns, KindColumns
from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.run_view import RunView

_smoothers: WeakKeyDictionary[KindColumns, dict[tuple[str, float], Smoother]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Quantity:
    """One thing that can be drawn: a column of one kind of record."""

    kind: str
    column: str
    title: str
    smooth: bool = False

    @property
    def is_share(self) -> bool:
        return metric_named(self.column).is_share


def quantities(detail: Detail) -> list[Quantity]:
    """What this run has to draw, the most telling first."""
    metric = detail.view.run.metric_name
    evaluated, trained = detail.columns["eval"], detail.columns["train"]
    found: list[Quantity] = []
    if metric in evaluated:
        found.append(Quantity("eval", metric, f"validation {metric}"))
    if len(trained):
        found.append(Quantity("train", "loss", "training loss", smooth=True))
    if "loss" in evaluated and metric != "loss":
        found.append(Quantity("eval", "loss", "validation loss"))
    for column, title in (("lr", "learning rate"), ("step_time", "step time (s)"), ("grad_norm", "gradient norm")):
        if column in trained:
            found.append(Quantity("train", column, title, smooth=column != "lr"))
    return found or [Quantity("train", "loss", "training loss", smooth=True)]


GRID = ("loss", "", "lr", "grad_norm")
"""Columns of the four charts of a grid; "" stands for the headline metric."""


def overview(detail: Detail) -> list[Quantity]:
    """Training loss, metric, learning rate and gradient norm; what a run lacks is replaced by what else it has."""
    there = quantities(detail)
    by_column = {one.column if one.kind == "train" else "": one for one in reversed(there)}
    wanted = [by_column[column] for column in GRID if column in by_column]
    return [*wanted, *(one for one in there if one not in wanted)][:4]


def system_quantities(detail: Detail) -> list[Quantity]:
    table = detail.columns["system"]
    names = [name for name in table.columns if name not in ("step", "t")]
    order = {"util": "device use (%)", "memory": "device memory"}
    order |= {"cpu": "processor use (% of a core)", "host_memory": "host memory"}
    names.sort(key=lambda name: (list(order).index(name) if name in order else len(order), name))
    return [Quantity("system", name, order.get(name, name)) for name in names]


def curves(detail: Detail, quantity: Quantity, view: ChartView, hidden: Collection[str] = ()) -> list[PlotCurve]:
    """The run's own first; `hidden`: ids of runs that are not to be drawn."""
    others = [(run, columns) for run, columns in detail.others if run.id not in hidden]
    others = [(run, columns) for run, columns in others if quantity.column in columns[quantity.kind]]
    runs = [(detail.view, detail.columns), *others]
    names = curve_names([run for run, _ in runs])
    weight = weight_of(detail, quantity, view)
    return [
        one_curve(columns, quantity, view, weight, names[place], *_look(place, len(runs)))
        for place, (_, columns) in enumerate(runs)
    ]


def _look(place: int, of: int) -> tuple[str, str]:
    """(role, sign): no two signs of eight curves are alike; the run itself is not in its baseline's colour."""
    colours, signs = (1, 0, 2, 3) if of > 1 else (0,), glyphs.signs.arms
    return f"arm{colours[place % len(colours)]}", signs[place % len(signs)]


def curve_names(runs: Sequence[RunView]) -> list[str]:
    """By preset, by method where the name does not say it, and by seed where the preset is there twice."""
    presets = [run.run.preset for run in runs]
    names = []
    for place, view in enumerate(runs):
        name, method = view.run.preset, method_name(view.run.method).lower()
        if presets.count(name) > 1:
            name = f"{name} s{view.run.seed}"
        elif place and method not in name.lower():
            name = f"{name} ({method})"
        names.append(name if name not in names else view.id)
    return names


def weight_of(detail: Detail, quantity: Quantity, view: ChartView) -> float:
    """How strongly the curves are smoothed: as asked for, or as the selected run's number of points allows."""
    if not quantity.smooth:
        return 0.0
    return fitting_weight(len(detail.columns[quantity.kind])) if view.smoothing is None else view.smoothing


def one_curve(
    columns: Columns, quantity: Quantity, view: ChartView, weight: float, name: str, role: str, mark: str
) -> PlotCurve:
    table = columns[quantity.kind]
    xs, ys = columns.xs(quantity.kind, view.x), table.column(quantity.column)
    if weight and len(ys) > 2:
        smoother = _smoothers.setdefault(table, {}).setdefault((quantity.column, weight), Smoother(weight))
        return PlotCurve(name, xs, smoother.extend_to(ys), role, mark, raw=ys)
    return PlotCurve(name, xs, ys, role, mark)


def happenings(detail: Detail, view: ChartView) -> list[AxisMark]:
    """Where layers were let go and where checkpoints are, on the axis that is shown."""
    signs = glyphs.signs
    saved = [(step, AxisMark(0, signs.saved, "key")) for step in detail.checkpoints]
    thaws = [
        (line.step, AxisMark(0, signs.let_go, through=True)) for line in detail.columns.events if line.what == UNFROZEN
    ]
    if not saved and not thaws:
        return []
    steps, xs = detail.columns["train"].column("step"), detail.columns.xs("train", view.x)
    marks = []
    for step, mark in (*saved, *thaws):
        at = float(step) if view.x == "step" else _x_at(steps, xs, step)
        if at is not None:
            marks.append(replace(mark, x=at))
    return marks


def _x_at(steps: Sequence[float], xs: Sequence[float], step: float) -> float | None:
    found = value_at(steps, xs, step)
    return found[1] if found else None


def caption(
    detail: Detail, shown: Sequence[Quantity], view: ChartView, choices: Sequence[Quantity], marks: Sequence[AxisMark]
) -> str:
    """The line under the chart: how it is being looked at, and what the signs on its axis are."""
    signs = glyphs.signs
    place = f"{shown[0].title} {choices.index(shown[0]) + 1}/{len(choices)}" if len(shown) == 1 else "overview"
    parts = [f"v {place}", f"x {view.x}", f"g {'log' if view.log_y else 'linear'}"]
    smoothed = next((one for one in shown if one.smooth), None)
    if smoothed is not None:
        weight = weight_of(detail, smoothed, view)
        parts.append(f"m smooth {weight:g}, raw pale" if weight else "m raw")
    known = ((signs.let_go, "layers let go"), (signs.saved, "checkpoint"))
    parts += [f"{sign} {what}" for sign, what in known if any(mark.sign == sign for mark in marks)]
    if view.window:
        parts.append("0 whole")
    if detail.columns.share < 1:
        parts.append(f"loading {detail.columns.share * 100:.0f} %, sampled until then")
    return "  ".join(parts)
