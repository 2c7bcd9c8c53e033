"""The home screen but for its keys: presets, runs, selected run and devices, one at a time where room is scarce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.screen import Screen

from oelm_core.home import home as lab_home
from oelm_tui import glyphs
from oelm_tui.actions import hints
from oelm_tui.render.preset_rows import about
from oelm_tui.render.run_rows import headline, shortened
from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.text import Line
from oelm_tui.widgets.bars import ActionTabs, Header, Hints
from oelm_tui.widgets.devices import DevicesPane, DeviceStrip
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import OneLine
from oelm_tui.widgets.preset_tree import PresetTree
from oelm_tui.widgets.row_table import RowTable
from oelm_tui.widgets.run_panel import RunPanel
from oelm_tui.widgets.runs_table import RunsTable

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

WIDE, TALL = 110, 26
"""Smaller terminals show one pane at a time."""
DWELL = 2.0
"""Seconds a run must stay selected for its attention mark to count as seen."""


class RunHeadline(OneLine):
    """The selected run, where its panel is not in view."""

    def lines(self, width: int, height: int) -> list[Line]:
        return [shortened(self.line, width)]


class HomePanes(Screen[None]):
    app: OelmApp

    def __init__(self) -> None:
        super().__init__()
        self.pane = "runs"
        self._zoomed = False
        self._first = True

    def compose(self) -> ComposeResult:
        self.set_classes(self._classes_for(self.app.size))  # before there are children: later it restyles them all
        yield Header(id="header")
        panes = ("presets", "runs", "run", "devices")
        yield ActionTabs("home", *(f"pane('{pane}')" for pane in panes), "compare", id="pane-tabs")
        with Horizontal(id="body"):
            yield PresetTree(id="presets")
            with Vertical(id="right"):
                with Vertical(id="runs-box"):
                    yield Field(placeholder='state:running family:gpt lr>=1e-3 "tiny"', id="filter", compact=True)
                    yield RunsTable(id="runs")
                yield RunPanel(id="run")
                yield DevicesPane(id="devices")
        yield RunHeadline(id="headline")
        yield DeviceStrip(id="strip")
        yield Hints(hints("home", "app", readonly=self.app.readonly))

    def on_mount(self) -> None:
        self.tree_of_presets.border_title = "Presets"
        self.query_one("#runs-box").border_title = "Runs"
        self.query_one("#devices").border_title = "Devices"
        self.query_one("#run").border_title = "Run"
        self.query_one(Header).readonly = self.app.readonly
        self.runs_table.focus()
        self.watch(self.app, "snapshot", self.show_snapshot)
        self.watch(self.app, "detail", self.show_detail)

    @property
    def runs_table(self) -> RunsTable:
        return self.query_one("#runs", RunsTable)

    @property
    def tree_of_presets(self) -> PresetTree:
        return self.query_one("#presets", PresetTree)

    @property
    def panel(self) -> RunPanel:
        return self.query_one("#run", RunPanel)

    # A new picture of the lab

    def show_snapshot(self, snapshot: LabSnapshot | None) -> None:
        if snapshot is None:
            return
        with self.app.batch_update():
            header = self.query_one(Header)
            header.place = self._place(snapshot)
            header.counts = tuple(sorted(snapshot.counts().items()))
            header.now = snapshot.now
            header.problem = snapshot.problem
            names = {view.id: view.run.preset for view in snapshot.runs if view.is_live}
            strip = self.query_one(DeviceStrip)
            pane = self.query_one(DevicesPane)
            pane.show_machine(snapshot.machine, names)
            strip.history, strip.names, strip.machine = pane.history, names, snapshot.machine
            self._size_strip()
            self.tree_of_presets.show(snapshot)
            self.runs_table.snapshot = snapshot
            self._show_count()
            self._show_selected()
        if self._first:
            self._first = False
            if not snapshot.runs:
                self.go_to("presets")

    def _place(self, snapshot: LabSnapshot) -> str:
        home = lab_home()
        try:
            shown = f"./{home.relative_to(home.cwd())}"
        except ValueError:
            shown = str(home).replace(str(home.home()), "~", 1)
        host = snapshot.machine.here.host if snapshot.machine else ""
        return f"{host} {glyphs.signs.dot} {shown}" if host else shown

    def _show_count(self) -> None:
        if self.app.snapshot is None:
            return
        table, box = self.runs_table, self.query_one("#runs-box")
        shown, marked = len(table.rows), len(table.marked)
        words = f"{shown} of {len(self.app.snapshot.runs)}" if table.query_text else f"{shown}"
        box.border_subtitle = words + (f", {marked} marked" if marked else "")
        title = f"Runs  /{table.query_text}" if table.query_text else "Runs"
        box.border_title = Content(title + (f"  ({table.problem})" if table.problem else ""))

    def show_detail(self, detail: Detail | None) -> None:
        if detail is not None:
            self.panel.show_detail(detail)

    # Which run is selected

    @property
    def selected(self) -> RunView | None:
        snapshot = self.app.snapshot
        return snapshot.by_id.get(self.runs_table.key or "") if snapshot else None

    @property
    def chosen_runs(self) -> list[RunView]:
        """The marked runs, or the selected one."""
        snapshot = self.app.snapshot
        if snapshot is None:
            return []
        marked = [snapshot.by_id[key] for key in self.runs_table.marked if key in snapshot.by_id]
        return marked or ([self.selected] if self.selected else [])

    def _show_selected(self) -> None:
        view, snapshot = self.selected, self.app.snapshot
        if snapshot is None:
            return
        self.panel.select(view, snapshot)
        self.query_one(RunHeadline).show(headline(view) if view else [])
        baseline = snapshot.baseline_of(view) if view else None
        self.app.look_at(view, (baseline,) if baseline else ())

    def on_row_table_moved(self, event: RowTable.Moved) -> None:
        if event.table is self.runs_table:
            self.call_after_refresh(self._show_selected)  # the cursor first: the panel may have much to draw
            if event.by_hand and not self._first:
                self.look_closer()
        elif event.key and self.app.snapshot and self.app.snapshot.catalogue:
            words = about(self.app.snapshot.catalogue, event.key)
            self.tree_of_presets.border_subtitle = Content(words)

    def look_closer(self) -> None:
        """Somebody turned to the selected run: after a moment its troubles count as seen."""
        view = self.selected
        if view is not None and view.needs_a_look:
            self.set_timer(DWELL, lambda: self._dwelt(view.id))

    def _dwelt(self, run_id: str) -> None:
        view = self.selected
        if view is not None and view.id == run_id and self.app.screen is self:
            self.app.mark_seen([view])

    def on_row_table_chosen(self, event: RowTable.Chosen) -> None:
        if event.table is self.runs_table:
            self.go_to("run")

    def on_row_table_header_pressed(self, event: RowTable.HeaderPressed) -> None:
        if event.table is self.runs_table:
            self.runs_table.sort_by(event.column)

    # Panes

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    @property
    def one_pane(self) -> bool:
        return self._zoomed or self.size.width < WIDE or self.size.height < TALL

    def _classes_for(self, size: Size) -> set[str]:
        one = self._zoomed or size.width < WIDE or size.height < TALL
        ours = {"-one" if one else "-wide", f"-pane-{self.pane}"}
        return ours | {name for name in self.classes if not name.startswith(("-one", "-wide", "-pane-"))}

    def _lay_out(self) -> None:
        one = self.one_pane
        wanted = self._classes_for(self.size)
        if self.classes != wanted:
            self.set_classes(wanted)  # all at once: each change of classes restyles the whole screen
        self.query_one(ActionTabs).current = f"pane('{self.pane}')"
        self._size_strip()
        self.panel.set_live(self.pane == "run" if one else self.pane != "devices")

    def _size_strip(self) -> None:
        """Two lines for the cards where there is room."""
        machine = self.app.snapshot.machine if self.app.snapshot else None
        cards = len(machine.cards) + len(machine.remote) if machine is not None else 0
        roomy = cards > 1 and not self.one_pane and self.size.height >= 34
        strip = self.query_one(DeviceStrip)
        wanted = 2 if roomy else 1
        if strip.size.height != wanted:
            strip.styles.height = wanted

    def go_to(self, pane: str) -> None:
        """Brings a pane to the front and puts the focus in it."""
        self.pane = pane
        if pane == "run":
            self.look_closer()
        self._lay_out()
        targets = {"presets": self.tree_of_presets, "runs": self.runs_table, "devices": self.query_one(DevicesPane)}
        (targets.get(pane) or self.panel.content()).focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click into a pane makes it the current one."""
        for name, pane in (("presets", "presets"), ("runs-box", "runs"), ("run", "run"), ("devices", "devices")):
            if self.query_one(f"#{name}").has_focus_within and self.pane != pane:
                self.pane = pane
                self._lay_out()
