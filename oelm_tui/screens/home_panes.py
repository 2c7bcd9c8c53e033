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
from oelm_core.plain_text import visible
from oelm_tui import glyphs
from oelm_tui.actions import hints
from oelm_tui.render.preset_card import card_lines
from oelm_tui.render.preset_rows import about
from oelm_tui.render.run_rows import headline, shortened
from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.preset_card import ShownCard, mark_of
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.text import Line
from oelm_tui.widgets.bars import ActionTabs, Header, Hints
from oelm_tui.widgets.devices import DevicesPane, DeviceStrip
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import Lines, OneLine, ScrollLines
from oelm_tui.widgets.preset_tree import PresetTree
from oelm_tui.widgets.row_table import RowTable
from oelm_tui.widgets.run_panel import RunPanel
from oelm_tui.widgets.runs_table import RunsTable

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

WIDE, TALL = 110, 26
"""Smaller terminals show one pane at a time."""
MOST_BESIDE = 7
"""Curves of other runs beside the selected one's: more cannot be told apart."""
DWELL = 2.0
"""Seconds a run must stay selected for its attention mark to count as seen."""


class RunHeadline(OneLine):
    """The selected run, where its panel is not in view."""

    def lines(self, width: int, height: int) -> list[Line]:
        return [shortened(self.line, width)]


class PresetPane(ScrollLines):
    """The card of a preset or study, laid out for the width at hand."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._shown: ShownCard | None = None

    def show_card(self, shown: ShownCard | None, key: str) -> None:
        """A card that is not of `key` is not there yet."""
        before, self._shown = self._shown, shown if shown is not None and shown.key == key else None
        if before is None or before.key != key:
            self.scroll_to(y=0, animate=False)
        self.border_title = Content(visible(key.partition("/")[2]))
        self._fill()

    def on_resize(self) -> None:
        super().on_resize()
        self._fill()

    def _fill(self) -> None:
        if self._shown is not None:
            self.show(card_lines(self._shown.card, max(30, self.size.width)))
        else:
            self.show([[("  reading", "faint")]])


class Welcome(Lines):
    """What this is and how to begin, while there is no run."""

    def lines(self, width: int, height: int) -> list[Line]:
        return [
            [(" One question: ", "label"), ("can Transformers train with Q and K frozen?", "")],
            [(" d ", "key"), ("trains a two-minute demo here; ", ""), ("c ", "key"), ("then compares its arms.", "")],
            [(" Or choose a preset: ", ""), ("enter ", "key"), ("shows it, ", ""), ("l ", "key"), ("launches it.", "")],
        ]


class HomePanes(Screen[None]):
    app: OelmApp

    def __init__(self) -> None:
        super().__init__()
        self.pane = "runs"
        self._zoomed = False
        self._first = True
        self.card_key: str | None = None
        """Of the preset whose card is shown in the run's place."""
        self._card_mark: tuple[object, ...] = ()
        self._awaited = ""

    def compose(self) -> ComposeResult:
        self.set_classes(self._classes_for(self.app.size))  # before there are children: later it restyles them all
        yield Header(id="header")
        panes = ("presets", "runs", "run", "devices")
        yield Welcome(id="welcome")
        yield ActionTabs("home", *(f"pane('{pane}')" for pane in panes), "compare", id="pane-tabs")
        with Horizontal(id="body"):
            with Vertical(id="presets-box"):
                yield Field(placeholder="any words of a preset", id="preset-filter", compact=True)
                yield PresetTree(id="presets")
            with Vertical(id="right"):
                with Vertical(id="runs-box"):
                    yield Field(placeholder='state:running family:gpt lr>=1e-3 "tiny"', id="filter", compact=True)
                    yield RunsTable(id="runs")
                yield RunPanel(id="run")
                yield PresetPane(id="card")
                yield Field(placeholder="only lines with these words", id="text-filter", compact=True)
                yield DevicesPane(id="devices")
        yield RunHeadline(id="headline")
        yield DeviceStrip(id="strip")
        yield Hints(hints("home", "app", readonly=self.app.readonly))

    def on_mount(self) -> None:
        self.query_one("#presets-box").border_title = "Presets"
        self.query_one("#runs-box").border_title = "Runs"
        self.query_one("#devices").border_title = "Devices"
        self.query_one("#run").border_title = "Run"
        self.query_one(Header).readonly = self.app.readonly
        if self.app.settings.columns is not None:
            self.runs_table.choose_columns(self.app.settings.columns)
        self.runs_table.focus()
        self.watch(self.app, "snapshot", self.show_snapshot)
        self.watch(self.app, "detail", self.show_detail)
        self.watch(self.app, "card", self._fill_card)

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
            self.set_class(not snapshot.runs and not snapshot.partial, "-new")
            self.tree_of_presets.show(snapshot)
            self.runs_table.snapshot = snapshot
            self._show_count()
            self._show_selected()
            self.want_losses()
            self.show_card(self.card_key or (self.tree_of_presets.preset if self.pane == "presets" else None))
        if self._first:
            self._first = False
            if not snapshot.runs:
                self.go_to("presets")
        if self._awaited:
            self.turn_to(self._awaited)

    def turn_to(self, run_id: str) -> None:
        """Selects and shows a run, when it comes if it is not there yet; a filter that hides it goes."""
        snapshot = self.app.snapshot
        there = snapshot is not None and run_id in snapshot.by_id
        self._awaited = "" if there else run_id
        if not there:
            return
        if not self.runs_table.go_to(run_id):
            self.query_one("#filter", Field).value = self.runs_table.query_text = ""
            self.runs_table.go_to(run_id)
        if not isinstance(self.focused, Field):  # nobody loses the field they type in
            self.go_to("runs")
        self._show_count()

    def want_losses(self) -> None:
        """The shapes of losses are read as long as there is room to show them."""
        wanted, sampler = self.runs_table.shows_losses, self.app.sampler
        if wanted and not sampler.wants_losses:
            self.app.threads["lab"].ask(None)
        sampler.wants_losses = wanted

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
        shown, marked = len(table.keys), len(table.marked)
        words = f"{shown} of {len(self.app.snapshot.runs)}" if table.query_text else f"{shown}"
        box.border_subtitle = words + (f", {marked} marked" if marked else "")
        title = f"Runs  /{table.query_text}" if table.query_text else "Runs"
        box.border_title = Content(visible(title + (f"  ({table.problem})" if table.problem else "")))

    def show_detail(self, detail: Detail | None) -> None:
        if detail is not None:
            self.panel.show_detail(detail)

    # Filters

    @property
    def filter_of_pane(self) -> str:
        """Id of the field that `/` opens: the presets', the runs', or that of the text in the third pane."""
        if self.pane == "presets":
            return "preset-filter"
        text = self.card_key is not None or self.panel.tab not in ("curves", "system", "log")
        return "text-filter" if self.pane == "run" and text else "filter"

    def narrow_text(self, words: str) -> None:
        """Only lines with these words, of the card or of the run's text."""
        self.query_one("#card", PresetPane).only(words)
        self.query_one("#text", ScrollLines).only(words)

    def show_presets_title(self) -> None:
        words = self.tree_of_presets.query_text
        self.query_one("#presets-box").border_title = Content(f"Presets  /{words}" if words else "Presets")

    def turn_to_preset(self, key: str) -> None:
        """Goes to an arm or a study in the tree, whatever is folded or filtered away."""
        self.query_one("#preset-filter", Field).value = ""
        if self.tree_of_presets.reveal(key):
            self.go_to("presets")
        self.show_presets_title()

    # The card of a preset

    @property
    def on_presets(self) -> bool:
        """Whether keys are about the preset under the cursor: its tree has the focus, or its card."""
        return self.pane == "presets" or (self.pane == "run" and self.card_key is not None)

    def show_card(self, key: str | None) -> None:
        """A preset's card in the place of the run, or with None the run again."""
        changed, self.card_key = key != self.card_key, key
        snapshot = self.app.snapshot
        if changed:
            self.query_one("#text-filter", Field).value = ""
            self.query_one("#right").set_class(key is not None, "-card")
            self.query_one("#card", PresetPane).show_card(self.app.card, key or "")
            self._set_live()
        if key is None or snapshot is None:
            return
        mark = mark_of(key, snapshot.catalogue, snapshot.runs)
        if changed or mark != self._card_mark:
            self._card_mark = mark
            cards = snapshot.machine is not None and bool(snapshot.machine.cards)
            self.app.look_at_preset(key, "gpu" if cards else "cpu")

    def _fill_card(self, shown: ShownCard | None) -> None:
        if shown is not None and shown.key == self.card_key:
            self.query_one("#card", PresetPane).show_card(shown, shown.key)

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
        self.panel.marked = frozenset(self.runs_table.marked)
        self.app.look_at(view, self._beside(view, snapshot) if view else ())

    def _beside(self, view: RunView, snapshot: LabSnapshot) -> list[RunView]:
        """Runs whose curves are drawn with the selected one's: its baseline, and those that are marked."""
        baseline = snapshot.baseline_of(view)
        marked = [one for one in snapshot.runs if one.id in self.runs_table.marked]
        beside = {one.id: one for one in ([baseline] if baseline else []) + marked if one.id != view.id}
        return list(beside.values())[:MOST_BESIDE]

    def on_row_table_moved(self, event: RowTable.Moved) -> None:
        if event.table is self.runs_table:
            self.call_after_refresh(self._show_selected)  # the cursor first: the panel may have much to draw
            if event.by_hand and not self._first:
                self.look_closer()
        elif event.key and self.app.snapshot and self.app.snapshot.catalogue:
            words = about(self.app.snapshot.catalogue, event.key)
            self.query_one("#presets-box").border_subtitle = Content(visible(words))
            if self.pane == "presets":
                self.show_card(self.tree_of_presets.preset)

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
        wanted = self._classes_for(self.size)
        if self.classes != wanted:
            self.set_classes(wanted)  # all at once: each change of classes restyles the whole screen
        self.query_one(ActionTabs).current = f"pane('{self.pane}')"
        self._size_strip()
        self._set_live()

    def _set_live(self) -> None:
        seen = self.pane == "run" if self.one_pane else self.pane != "devices"
        self.panel.set_live(seen and self.card_key is None)

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
        self._turn_to(pane)
        if pane == "run" and self.card_key is None:
            self.look_closer()
        self._lay_out()
        targets = {"presets": self.tree_of_presets, "runs": self.runs_table, "devices": self.query_one(DevicesPane)}
        there = self.panel.content() if self.card_key is None else self.query_one("#card")
        (targets.get(pane) or there).focus()

    def _turn_to(self, pane: str) -> None:
        """Among presets the card of the one under the cursor is shown, among runs the run."""
        if pane == "presets":
            self.show_card(self.tree_of_presets.preset)
        elif pane == "runs":
            self.show_card(None)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click into a pane makes it the current one."""
        places = {"presets-box": "presets", "runs-box": "runs", "run": "run", "card": "run", "devices": "devices"}
        for name, pane in places.items():
            if self.query_one(f"#{name}").has_focus_within and self.pane != pane:
                self.pane = pane
                self._turn_to(pane)
                self._lay_out()
