"""Choosing the columns of the runs table: space puts one in or takes it out, at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.screen import ModalScreen

from oelm_tui.actions import bindings
from oelm_tui.render.run_rows import COLUMNS, FIXED
from oelm_tui.screens.dialogs import Dialog
from oelm_tui.text import Column, Row
from oelm_tui.widgets.row_table import RowTable

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

ALL = "all"
CHOICES = tuple(column for column in COLUMNS if column.key not in FIXED)


class Columns(ModalScreen[None]):
    BINDINGS = bindings("columns")
    app: OelmApp

    def __init__(self, chosen: Sequence[str] | None, apply: Callable[[list[str] | None], object]) -> None:
        """`chosen`: None for all. `apply` gets the new choice, None when it is all again."""
        super().__init__()
        self._chosen = {column.key for column in CHOICES if chosen is None or column.key in chosen}
        self._apply = apply

    def compose(self) -> ComposeResult:
        with Dialog("Columns of the runs (space chooses, esc closes)", id="columns"):
            yield RowTable([Column("name", "column", 10), Column("about", "", 20, grow=True)], id="columns-choice")

    def on_mount(self) -> None:
        table = self.query_one(RowTable)
        rows = [Row(one.key, {"name": one.title or one.key, "about": (one.about, "faint")}) for one in CHOICES]
        table.set_rows([*rows, Row(ALL, {"name": "all", "about": ("as many as find room", "faint")})])
        self._show()
        table.focus()

    def _show(self) -> None:
        table = self.query_one(RowTable)
        table.marked = set(self._chosen)
        table.refresh()

    def on_row_table_chosen(self) -> None:
        self.action_choose_column()

    def action_choose_column(self) -> None:
        key = self.query_one(RowTable).key or ALL
        self._chosen = self._chosen ^ {key} if key != ALL else {column.key for column in CHOICES}
        in_order = [column.key for column in CHOICES if column.key in self._chosen]
        self._apply(None if len(in_order) == len(CHOICES) else in_order)
        self._show()
