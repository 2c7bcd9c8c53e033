"""The log of one run over the whole screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from oelm_tui.actions import bindings
from oelm_tui.render.run_rows import headline
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.widgets.bars import ActionTabs
from oelm_tui.widgets.log_view import LogPage, LogView


class FullLog(Screen[None]):
    BINDINGS = bindings("full_log")

    def __init__(self, view: RunView) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        yield ActionTabs("full_log", "dismiss", id="log-title")
        yield LogView()

    def on_mount(self) -> None:
        self.query_one(LogPage).focus()
        self.watch(self.app, "snapshot", self.show_snapshot)

    def show_snapshot(self, snapshot: LabSnapshot | None) -> None:
        """The headline follows the run; the log may move to Slurm's when a job dies early."""
        self._view = snapshot.by_id.get(self._view.id, self._view) if snapshot else self._view
        self.query_one(ActionTabs).set_lead(headline(self._view))
        self.query_one(LogView).open(self._view.log)
