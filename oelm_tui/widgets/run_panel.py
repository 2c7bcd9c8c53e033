"""The selected run: a headline and its tabs; a failed run opens on the reason."""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget

from oelm_core.plain_text import visible
from oelm_tui import glyphs
from oelm_tui.charts.grid import has_room
from oelm_tui.charts.plot import ChartView, Panel
from oelm_tui.logs.clean import pieces
from oelm_tui.render.config import config_lines
from oelm_tui.render.curves import (
    Quantity,
    caption,
    curves,
    happenings,
    overview,
    quantities,
    system_quantities,
)
from oelm_tui.render.measured import check_lines, sample_lines, timing_lines
from oelm_tui.render.reason import reason_lines
from oelm_tui.render.run_rows import headline
from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.widgets.bars import TabBar
from oelm_tui.widgets.curve_chart import CurveChart
from oelm_tui.widgets.lines import OneLine, ScrollLines
from oelm_tui.widgets.log_view import LogPage, LogView

TABS = (
    ("curves", "Curves"),
    ("log", "Log"),
    ("config", "Config"),
    ("timing", "Timing"),
    ("samples", "Samples"),
    ("system", "System"),
    ("checks", "Checks"),
)
REASON = ("reason", "Reason")
ENDED_BADLY = ("failed", "lost")
GRID_FROM = 120
"""Columns of the terminal from which four charts are shown at once: a narrow one is better used by one."""
STANDS = 1.0
"""Seconds a picture stands while a large file is still being read: the next one hardly differs."""


class RunPanel(Vertical):
    DEFAULT_CSS = """
    RunPanel CurveChart, RunPanel ScrollLines { height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.view: RunView | None = None
        self.detail: Detail | None = None
        self._snapshot: LabSnapshot | None = None
        self._wanted = "curves"
        self._shown = ""
        self._chosen: dict[str, str] = {}
        """By tab: the title of the quantity that was chosen; none for the first, or for the grid of four."""
        self._with_baseline = True
        self.marked: frozenset[str] = frozenset()
        self._filled = 0.0
        self.live = True
        """Whether anybody can see the panel; a hidden one reads no log."""

    def compose(self) -> ComposeResult:
        yield TabBar(TABS, id="run-tabs")
        yield CurveChart(id="chart")
        yield OneLine(id="last-line")
        yield LogView(id="log")
        yield ScrollLines(id="text")

    def on_mount(self) -> None:
        self.query_one(CurveChart).view = ChartView(smoothing=None)
        self._switch()

    # Which run

    def select(self, view: RunView | None, snapshot: LabSnapshot) -> None:
        """Shows a run, or the same run's newer view."""
        changed = (view.id if view else None) != (self.view.id if self.view else None)
        self.view, self._snapshot = view, snapshot
        if changed:
            self.detail = None
            chart = self.query_one(CurveChart)
            chart.view = ChartView(chart.view.x, chart.view.log_y, chart.view.smoothing)
        bad = view is not None and view.run.state in ENDED_BADLY
        bar = self.query_one(TabBar)
        tabs = [REASON, *TABS] if bad else list(TABS)
        other_tabs, bar.tabs = tabs != bar.tabs, tabs
        if changed:
            self._shown = "reason" if bad else self._wanted
        elif bad and other_tabs:  # it failed before our eyes
            self._shown = "reason"
        elif self._shown == "reason" and not bad:
            self._shown = self._wanted
        title = "".join(text for text, _ in headline(view, False)).strip() if view else "Run"
        self.border_title = Content(visible(title))
        if changed or other_tabs:
            bar.refresh()
            self._switch()
        elif self.tab == "config":
            self._fill()

    def show_detail(self, detail: Detail) -> None:
        """New contents of the selected run's files."""
        if self.view is not None and detail.view.id == self.view.id:
            first, self.detail = self.detail is None, detail
            if first or not detail.loading or time.monotonic() - self._filled > STANDS:
                self._fill()

    # Which tab

    @property
    def tab(self) -> str:
        return self._shown or self._wanted

    def show_tab(self, name: str) -> None:
        self._shown = name
        if name != "reason":
            self._wanted = name
        self._switch()

    def step_tab(self, by: int) -> None:
        names = [name for name, _ in self.query_one(TabBar).tabs]
        place = names.index(self.tab) if self.tab in names else 0
        self.show_tab(names[(place + by) % len(names)])

    def content(self) -> Widget:
        """The widget of the tab in front, to put the focus on."""
        if self.tab in ("curves", "system"):
            return self.query_one(CurveChart)
        return self.query_one(LogPage) if self.tab == "log" else self.query_one("#text")

    def on_tab_bar_pressed(self, event: TabBar.Pressed) -> None:
        event.stop()
        self.show_tab(event.name)

    def _switch(self) -> None:
        tab = self.tab
        had_focus = self.has_focus_within
        self.query_one(TabBar).current = tab
        self.query_one(CurveChart).display = tab in ("curves", "system")
        self.query_one("#last-line").display = tab == "curves"
        self.query_one(LogView).display = tab == "log"
        self.query_one("#text").display = tab not in ("curves", "system", "log")
        log = self.query_one(LogView)
        if tab == "log" and self.view is not None and self.live:
            log.open(self.view.log)
        else:
            log.pause()
        if had_focus and not self.content().has_focus:
            self.content().focus()
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def set_live(self, live: bool) -> None:
        if live != self.live:
            self.live = live
            self._switch()

    # What is in it

    def _fill(self) -> None:
        self._filled = time.monotonic()
        view, detail = self.view, self.detail
        tab = self.tab
        width = max(20, self.query_one("#text").size.width or self.size.width)
        text = self.query_one("#text", ScrollLines)
        if view is None or self._snapshot is None:
            text.show([])
            self.query_one(CurveChart).show()
            return
        if tab == "config":
            text.show(config_lines(view, self._snapshot.catalogue, self._snapshot.baseline_of(view), width))
        elif detail is None:
            if tab in ("curves", "system"):
                self.query_one(CurveChart).show(below="reading")
            else:
                text.show([[("reading", "faint")]])
        elif tab in ("curves", "system"):
            self._draw(detail)
        elif tab == "reason":
            text.show(reason_lines(detail, width, glyphs.signs.ascii_only))
        elif tab == "timing":
            text.show(timing_lines(detail))
        elif tab == "samples":
            text.show(sample_lines(detail.samples, width))
        elif tab == "checks":
            text.show(check_lines(detail))

    def _choices(self, detail: Detail) -> list[Quantity]:
        return quantities(detail) if self.tab == "curves" else system_quantities(detail)

    def _shown_quantities(self, detail: Detail) -> list[Quantity]:
        """The one that was chosen, else four at once where there is room, else the first."""
        choices, chosen = self._choices(detail), self._chosen.get(self.tab)
        found = [one for one in choices if one.title == chosen]
        return found or (overview(detail) if self._has_grid(detail) else choices[:1])

    def _has_grid(self, detail: Detail) -> bool:
        size = self.query_one(CurveChart).size
        wide = self.app.size.width >= GRID_FROM and has_room(size.width, size.height - 1)
        return self.tab == "curves" and wide and len(overview(detail)) > 2

    def _draw(self, detail: Detail) -> None:
        chart = self.query_one(CurveChart)
        shown = self._shown_quantities(detail)
        if not shown:
            chart.show(below="the worker wrote no device samples")
            return
        curves_tab = self.tab == "curves"
        hidden = {view.id for view, _ in detail.others} if not curves_tab else self._hidden(detail)
        marks = happenings(detail, chart.view) if curves_tab else []
        panels = [Panel(curves(detail, one, chart.view, hidden), one.title, one.is_share, marks) for one in shown]
        chart.show(*panels, below=caption(detail, shown, chart.view, self._choices(detail), marks))
        newest = [(text, style or "faint") for text, style in pieces(detail.last_line)]
        self.query_one("#last-line", OneLine).show(newest)

    def _hidden(self, detail: Detail) -> set[str]:
        """The baseline, where it is not wanted; marked runs are always shown."""
        return set() if self._with_baseline else {view.id for view, _ in detail.others} - self.marked

    def change_chart(self, what: str) -> None:
        """A chart key pressed anywhere on the screen."""
        if self.tab not in ("curves", "system"):
            self.show_tab("curves")
        self.query_one(CurveChart).action_chart(what)
        self._fill()

    def on_curve_chart_changed(self, event: CurveChart.Changed) -> None:
        event.stop()
        if event.what == "quantity" and self.detail is not None:
            self._choose_next(self.detail)
        elif event.what == "baseline":
            self._with_baseline = not self._with_baseline
        self._fill()

    def _choose_next(self, detail: Detail) -> None:
        """After the last quantity comes the grid, or the first."""
        titles = [one.title for one in self._choices(detail)]
        chosen = self._chosen.get(self.tab)
        first = "" if self._has_grid(detail) else titles[0] if titles else ""
        order = [first, *titles] if not first else titles
        place = order.index(chosen) if chosen in order else 0
        self._chosen[self.tab] = order[(place + 1) % len(order)]
