"""The presets as a tree that folds, with marks and results; several arms can be marked and launched together."""

from __future__ import annotations

from textual.message import Message

from oelm_tui.actions import bindings
from oelm_tui.render.preset_rows import COLUMNS, open_at_first, tree_rows
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.widgets.row_table import RowTable


class PresetTree(RowTable):
    BINDINGS = bindings("presets")

    class LaunchAsked(Message):
        """Enter on an arm or a study."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(COLUMNS, id=id)
        self.opened: set[str] | None = None
        self.empty_words = "reading the presets"
        self._snapshot: LabSnapshot | None = None

    def show(self, snapshot: LabSnapshot) -> None:
        """Takes the new snapshot in; nothing is drawn before the catalogue is there."""
        self._snapshot = snapshot
        if snapshot.catalogue is None:
            return
        if self.opened is None:
            self.opened = open_at_first(snapshot.catalogue, snapshot.runs)
        self.set_rows(tree_rows(snapshot.catalogue, snapshot.runs, self.opened))

    @property
    def arms(self) -> list[str]:
        """The marked arms, those in folded groups too, or the one under the cursor."""
        shown = [row.key for row in self.rows if row.key in self.marked]
        keys = [*shown, *sorted(self.marked.difference(shown))] or [self.key or ""]
        return [key.removeprefix("arm/") for key in keys if key.startswith("arm/")]

    @property
    def study(self) -> str | None:
        """The study under the cursor, when no arm is marked."""
        key = self.key or ""
        return key.removeprefix("study/") if key.startswith("study/") and not self.marked else None

    def can_mark(self, key: str) -> bool:
        return key.startswith("arm/")

    def action_choose(self) -> None:
        key = self.key or ""
        if key.startswith(("arm/", "study/")):
            self.post_message(self.LaunchAsked())
        elif self.opened is not None and key:
            self._set_open(key, key not in self.opened)

    def action_unfold(self) -> None:
        if self.key is not None and self._is_group(self.key):
            self._set_open(self.key, True)

    def action_fold(self) -> None:
        """Folds the group; on a leaf, goes up to its group."""
        if self.key is None or self.opened is None:
            return
        if self._is_group(self.key) and self.key in self.opened:
            self._set_open(self.key, False)
            return
        for number in range(self.cursor - 1, -1, -1):
            if self._is_group(self.rows[number].key):
                self.cursor = number
                return

    @staticmethod
    def _is_group(key: str) -> bool:
        return key.startswith(("family/", "data/")) or key in ("studies", "warnings")

    def _set_open(self, key: str, opened: bool) -> None:
        if self.opened is None or self._snapshot is None:
            return
        self.opened = self.opened | {key} if opened else self.opened - {key}
        self.show(self._snapshot)
