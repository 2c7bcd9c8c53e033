"""The runs table: filtered, sorted, marked; its cursor stays on its run whatever happens around it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.reactive import var

from oelm_core import formatting
from oelm_tui.render.run_rows import COLUMNS, FIXED, LOSS, SORTS, chosen, row_of
from oelm_tui.run_filter import Query, parse
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.text import LazyRows, Row
from oelm_tui.widgets.row_table import RowTable, lay_out


class RunsTable(RowTable):
    snapshot: var[LabSnapshot | None] = var(None)
    query_text: var[str] = var("")
    """Of neither is the table itself repainted: `set_rows` knows which lines changed."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(COLUMNS, id=id)
        self._query = Query()
        self._made: dict[str, tuple[RunView, str, Row]] = {}
        self.sorted_by, self.descending = "state", False

    @property
    def problem(self) -> str:
        """What the filter could not understand."""
        return self._query.problem

    def watch_snapshot(self) -> None:
        self._fill()

    def watch_query_text(self, text: str) -> None:
        self._query = parse(text)
        self._fill()

    def sort_by(self, column: str) -> None:
        """The same column again turns the order round."""
        if column in ("age", "remark", "flag"):
            column = "created"
        if column == self.sorted_by:
            self.descending = not self.descending
        else:
            self.sorted_by, self.descending = column, column in ("created", "step", "rate", "metric")
        self._fill()
        self.refresh()

    def next_sort(self) -> str:
        place = SORTS.index(self.sorted_by) if self.sorted_by in SORTS else -1
        self.sort_by(SORTS[(place + 1) % len(SORTS)])
        return self.sorted_by

    def _fill(self) -> None:
        snapshot = self.snapshot
        if snapshot is None:
            self.empty_words = "reading the runs"
            return
        self.marked &= set(snapshot.by_id)
        if len(self._made) > 2 * len(snapshot.runs) + 100:
            self._made.clear()
        views = chosen(snapshot.runs, self._query, self.sorted_by, self.descending)
        self.empty_words = (
            "no run matches the filter; esc clears it"
            if snapshot.runs
            else "no runs yet: choose a preset (1) and press l"
        )
        now = snapshot.now
        self.set_rows(LazyRows([view.id for view in views], lambda number: self._row(views[number], now)))

    def choose_columns(self, names: Sequence[str] | None) -> None:
        """Only these, and those that are always there; with None all that find room."""
        self.set_columns([one for one in COLUMNS if names is None or one.key in (*FIXED, *names)])

    @property
    def shows_losses(self) -> bool:
        """Whether there is room for the little curves, if there were any."""
        if all(column.key != "loss" for column in self.columns):
            return False
        wanted = {**self._natural, "loss": LOSS}
        return any(column.key == "loss" for column, _ in lay_out(self.columns, self.size.width - 2, wanted))

    def _row(self, view: RunView, now: float) -> Row:
        """A run that is over is the same view every second: its row is made anew only when its age changed."""
        known = self._made.get(view.id)
        age = formatting.age(now - view.run.created)
        if known is None or known[0] is not view or known[1] != age:
            known = self._made[view.id] = (view, age, row_of(view, now))
        return known[2]
