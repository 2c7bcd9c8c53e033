"""Generated text of two arms side by side, step by step, prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from oelm_core.plain_text import visible
from oelm_core.runs.evaluations import read_samples
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Sample
from oelm_tui.actions import bindings
from oelm_tui.render.measured import sample_lines
from oelm_tui.widgets.bars import ActionTabs
from oelm_tui.widgets.lines import ScrollLines

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

MOST = 400
"""Newest samples of an arm that are shown."""


class SideBySide(Screen[None]):
    BINDINGS = bindings("samples")
    app: OelmApp

    def __init__(self, folders: Sequence[tuple[str, RunFolder]]) -> None:
        super().__init__()
        self._folders = folders
        self._samples: list[list[Sample]] = []

    def compose(self) -> ComposeResult:
        bar = ActionTabs("samples", "dismiss", id="compare-title")
        bar.set_lead([(" Samples ", "title"), (" and ".join(name for name, _ in self._folders), "label"), ("  ", "")])
        yield bar
        with Horizontal():
            for number, (name, _) in enumerate(self._folders):
                text = ScrollLines(id=f"side-{number}", classes="side")
                text.border_title = Content(visible(name))
                yield text

    def on_mount(self) -> None:
        self.query_one("#side-0").focus()

        def read() -> None:
            self._samples = [read_samples(folder.samples, MOST) for _, folder in self._folders]
            self.app.call_from_thread(self._fill)

        self.app.in_thread(read)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        for number, found in enumerate(self._samples):
            text = self.query_one(f"#side-{number}", ScrollLines)
            text.show(sample_lines(found, max(20, text.size.width)))
