"""Which curves the Curves and System tabs draw: quantities of a run, beside its baseline, smoothed where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from oelm_core.metric import metric_named
from oelm_core.registry import method_name
from oelm_tui import glyphs
from oelm_tui.charts.plot import ChartView, PlotCurve
from oelm_tui.charts.smooth import Smoother
from oelm_tui.snapshots.columns import Columns, KindColumns
from oelm_tui.snapshots.detail import Detail

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


def system_quantities(detail: Detail) -> list[Quantity]:
    table = detail.columns["system"]
    names = [name for name in table.columns if name not in ("step", "t")]
    order = {"util": "device use (%)", "memory": "device memory"}
    names.sort(key=lambda name: (list(order).index(name) if name in order else len(order), name))
    return [Quantity("system", name, order.get(name, name)) for name in names]


def curves(detail: Detail, quantity: Quantity, view: ChartView, with_others: bool) -> list[PlotCurve]:
    runs = [(detail.view, detail.columns)]
    if with_others:
        runs += list(detail.others)
    drawn: list[PlotCurve] = []
    for number, (run, columns) in enumerate(runs):
        name, method = run.run.preset, method_name(run.run.method).lower()
        if number and method not in name.lower():
            name = f"{name} ({method})"
        if number and run.run.preset == detail.view.run.preset:
            name = f"{run.run.preset} s{run.run.seed}"
        role = "arm1" if not number and len(runs) > 1 else "arm0"
        drawn.append(one_curve(columns, quantity, view, name, role, glyphs.signs.arms[number % 4]))
    return drawn


def one_curve(columns: Columns, quantity: Quantity, view: ChartView, name: str, role: str, mark: str) -> PlotCurve:
    table = columns[quantity.kind]
    xs, ys = columns.xs(quantity.kind, view.x), table.column(quantity.column)
    if quantity.smooth and view.smoothing and len(ys) > 2:
        smoother = _smoothers.setdefault(table, {}).setdefault(
            (quantity.column, view.smoothing), Smoother(view.smoothing)
        )
        return PlotCurve(name, xs, smoother.extend_to(ys), role, mark, raw=ys)
    return PlotCurve(name, xs, ys, role, mark)


def caption(detail: Detail, quantity: Quantity, view: ChartView, choices: Sequence[Quantity]) -> str:
    """The line under the chart: how it is being looked at."""
    place = choices.index(quantity) + 1 if quantity in choices else 1
    parts = [f"v {place}/{len(choices)}", f"x {view.x}", f"g {'log' if view.log_y else 'linear'}"]
    if quantity.smooth:
        parts.append(f"m {view.smoothing:g}" if view.smoothing else "m raw")
    if view.window:
        parts.append("0 whole")
    if detail.columns.share < 1:
        parts.append(f"loading {detail.columns.share * 100:.0f} %, sampled until then")
    return "  ".join(parts)
