"""The chart widget: keeps the view (axis, scale, smoothing, zoom, cursor) and draws curves given to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.message import Message
from textual.reactive import reactive

from oelm_tui import glyphs
from oelm_tui.actions import bindings
from oelm_tui.charts.grid import Placed, draw_grid
from oelm_tui.charts.plot import ChartView, Panel, PlotCurve, draw, x_bounds
from oelm_tui.charts.smooth import WEIGHTS
from oelm_tui.text import Line
from oelm_tui.widgets.lines import Lines

SMOOTHINGS = (None, *WEIGHTS)


class CurveChart(Lines, can_focus=True):
    BINDINGS = bindings("curves")
    view: reactive[ChartView] = reactive(ChartView())

    @dataclass
    class Changed(Message):
        """Asks for curves anew: another x axis, smoothing or quantity."""

        what: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.panels: tuple[Panel, ...] = ()
        self._below = ""
        self._placed: list[Placed] = []

    @property
    def curves(self) -> tuple[PlotCurve, ...]:
        return tuple(curve for panel in self.panels for curve in panel.curves)

    def show(self, *panels: Panel, below: str = "") -> None:
        """One chart, or several in a grid. `below`: a line under them, what is being shown or still loading."""
        self.panels, self._below = panels, below
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        rows, ascii_only = max(1, height - 1), glyphs.signs.ascii_only
        if len(self.panels) > 1:
            drawn, self._placed = draw_grid(self.panels, self.view, width, rows, ascii_only=ascii_only)
        else:
            one = draw(self.panels[0] if self.panels else Panel(()), self.view, width, rows, ascii_only=ascii_only)
            drawn, self._placed = one.rows, [Placed(0, one)]
        return [*drawn, [(self._below, "faint")]]

    @property
    def _columns(self) -> int:
        return self._placed[0].picture.columns if self._placed else 0

    def _x_at(self, column: int) -> float:
        """The x under a column of the widget."""
        left, picture = max((one for one in self._placed if one.left <= column), key=lambda one: one.left)
        return picture.x_of_column(column - left)

    def action_chart(self, what: str) -> None:
        view, bounds = self.view, x_bounds(self.curves, self.view)
        if what in ("quantity", "baseline"):
            self.post_message(self.Changed(what))
        elif what == "x":
            order = ("step", "time", "tokens")
            self.view = replace(view, x=order[(order.index(view.x) + 1) % 3], window=None, cursor=None)
            self.post_message(self.Changed(what))
        elif what == "log":
            self.view = replace(view, log_y=not view.log_y)
        elif what == "smooth":
            place = SMOOTHINGS.index(view.smoothing) if view.smoothing in SMOOTHINGS else 0
            self.view = replace(view, smoothing=SMOOTHINGS[(place + 1) % len(SMOOTHINGS)])
            self.post_message(self.Changed(what))
        elif what == "reset":
            self.view = replace(view, window=None, cursor=None)
        elif bounds is not None:
            self._move(what, *bounds)

    def _move(self, what: str, low: float, high: float) -> None:
        view, span = self.view, high - low
        middle = view.cursor if view.cursor is not None else (low + high) / 2
        if what in ("cursor_left", "cursor_right"):
            step = span / max(1, self._columns)
            moved = (high if what == "cursor_left" else low) if view.cursor is None else middle
            moved += -step if what == "cursor_left" else step
            self.view = replace(view, cursor=min(high, max(low, moved)))
        elif what in ("zoom_in", "zoom_out"):
            half = span * (0.25 if what == "zoom_in" else 1.0)
            self.view = replace(view, window=self._within(middle - half, middle + half))

    def _within(self, low: float, high: float) -> tuple[float, float] | None:
        whole = x_bounds(self.curves, replace(self.view, window=None))
        if whole is None or (low <= whole[0] and high >= whole[1]):
            return None
        return max(low, whole[0]), min(high, whole[1])

    def on_click(self, event: events.Click) -> None:
        if self._columns:
            self.view = replace(self.view, cursor=self._x_at(event.x))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_chart("zoom_out")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        if self._columns and self.view.cursor is None:
            self.view = replace(self.view, cursor=self._x_at(event.x))
        self.action_chart("zoom_in")
