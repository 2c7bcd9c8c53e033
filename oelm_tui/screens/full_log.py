"""The log over the whole screen: of one run, or of several with their lines in the order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.screen import Screen

from oelm_tui import glyphs
from oelm_tui.actions import bindings, hints
from oelm_tui.render.run_rows import headline
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.text import Line
from oelm_tui.widgets.bars import ActionTabs, Hints
from oelm_tui.widgets.log_view import LogPage, LogView


class FullLog(Screen[None]):
    BINDINGS = bindings("full_log")

    def __init__(self, views: Sequence[RunView]) -> None:
        super().__init__()
        self._views = sorted(views, key=lambda view: (view.run.created, view.id))

    def compose(self) -> ComposeResult:
        yield ActionTabs("full_log", "dismiss", id="log-title")
        yield LogView()
        yield Hints(hints("log", "full_log", "app"))

    def on_mount(self) -> None:
        self.query_one(LogPage).focus()
        self.watch(self.app, "snapshot", self.show_snapshot)

    def show_snapshot(self, snapshot: LabSnapshot | None) -> None:
        """The headline follows the run; the log may move to Slurm's when a job dies early."""
        if snapshot is not None:
            self._views = [snapshot.by_id.get(view.id, view) for view in self._views]
        several = len(self._views) > 1
        names = short_names(self._views) if several else []
        self.query_one(ActionTabs).set_lead(_title(names) if several else headline(self._views[0]))
        self.query_one(LogView).open(*(view.log for view in self._views), names=names)


def short_names(views: Sequence[RunView]) -> list[str]:
    """Each run's preset; with its seed where that is not enough, then with the end of its id."""
    names = [view.run.preset for view in views]
    for more in ([f" s{view.run.seed}" for view in views], [f" {view.id[-4:]}" for view in views]):
        times = Counter(names)
        names = [name + ending * (times[name] > 1) for name, ending in zip(names, more, strict=True)]
    return names


def _title(names: Sequence[str]) -> Line:
    line: Line = [(f" {len(names)} logs by time ", "title")]
    for number, name in enumerate(names):
        sign = glyphs.signs.arms[number % len(glyphs.signs.arms)]
        line.append((f" {sign} {name}", f"arm{number % len(glyphs.signs.arms)}"))
    return [*line, (" ", "")]
