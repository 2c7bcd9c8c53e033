"""The chart widget: keeps the view (axis, scale, smoothing, zoom, cursor) and draws curves given to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.message import Message
from textual.reactive import reactive

from oelm_tui import glyphs
from oelm_tui.actions import bindings
from oelm_tui.charts.plot import ChartView, Picture, PlotCurve, draw, x_bounds
from oelm_tui.text import Line
from oelm_tui.widgets.lines import Lines

SMOOTHINGS = (0.0, 0.6, 0.9, 0.97, 0.99)


class CurveChart(Lines, can_focus=True):
    BINDINGS = bindings("curves")
    view: reactive[ChartView] = reactive(ChartView())

    @dataclass
    class Changed(Message):
        """Asks for curves anew: another x axis, smoothing or quantity."""

        what: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.curves: tuple[PlotCurve, ...] = ()
        self._y_name, self._percent, self._below = "", False, ""
        self._picture = Picture([])

    def show(self, curves: Sequence[PlotCurve], y_name: str, percent: bool, below: str = "") -> None:
        """`below`: a line under the chart, what is being shown or still loading."""
        self.curves, self._y_name, self._percent, self._below = tuple(curves), y_name, percent, below
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        rows, ascii_only = max(1, height - 1), glyphs.signs.ascii_only
        self._picture = draw(
            self.curves, self.view, width, rows, y_name=self._y_name, percent=self._percent, ascii_only=ascii_only
        )
        return [*self._picture.rows, [(self._below, "faint")]]

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
            step = span / max(1, self._picture.columns)
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
        if self._picture.columns:
            self.view = replace(self.view, cursor=self._picture.x_of_column(event.x))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_chart("zoom_out")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        if self._picture.columns and self.view.cursor is None:
            self.view = replace(self.view, cursor=self._picture.x_of_column(event.x))
        self.action_chart("zoom_in")
