"""The presets as a tree that folds, with marks and results; several arms can be marked and launched together."""

from __future__ import annotations

from textual.message import Message

from oelm_tui.actions import bindings
from oelm_tui.render.preset_rows import COLUMNS, found_rows, open_at_first, tree_rows
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.widgets.row_table import RowTable


class PresetTree(RowTable):
    BINDINGS = bindings("presets")

    class CardAsked(Message):
        """Enter on an arm or a study."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(COLUMNS, id=id)
        self.opened: set[str] | None = None
        self.empty_words = "reading the presets"
        self._snapshot: LabSnapshot | None = None
        self.query_text = ""
        """Words that what is shown must have; everything that has them is unfolded."""

    def show(self, snapshot: LabSnapshot) -> None:
        """Takes the new snapshot in; nothing is drawn before the catalogue is there."""
        self._snapshot = snapshot
        if snapshot.catalogue is None:
            return
        first = self.opened is None
        if self.opened is None:
            self.opened = open_at_first(snapshot.catalogue, snapshot.runs)
        if self.query_text.strip():
            self.empty_words = "no preset has these words; esc clears them"
            self.set_rows(found_rows(snapshot.catalogue, snapshot.runs, self.query_text))
        else:
            self.set_rows(tree_rows(snapshot.catalogue, snapshot.runs, self.opened))
        if first:  # on something that can be launched
            self.go_to(next((key for key in self.keys if key.startswith("arm/")), ""))

    def filter(self, text: str) -> None:
        """Shows what has these words, the cursor on the first preset of it."""
        self.query_text = text
        if self._snapshot is not None:
            self.show(self._snapshot)
        if text.strip() and self.preset is None:
            first = next((key for key in self.keys if key.startswith(("arm/", "study/"))), None)
            if first is not None:
                self.go_to(first)

    def reveal(self, key: str) -> bool:
        """Puts the cursor on an arm or a study, unfolding what hides it."""
        catalogue = self._snapshot.catalogue if self._snapshot is not None else None
        if catalogue is None or self.opened is None or self._snapshot is None:
            return False
        self.query_text = ""
        kind, _, name = key.partition("/")
        if kind == "arm" and name in catalogue.experiments:
            arm = catalogue.experiments[name]
            self.opened |= {f"family/{arm.family}", f"data/{arm.family}/{arm.data.name}"}
        elif kind == "study":
            self.opened |= {"studies"}
        self.show(self._snapshot)
        return self.go_to(key)

    @property
    def arms(self) -> list[str]:
        """The marked arms, those in folded groups too, or the one under the cursor."""
        shown = [key for key in self.keys if key in self.marked]
        keys = [*shown, *sorted(self.marked.difference(shown))] or [self.key or ""]
        return [key.removeprefix("arm/") for key in keys if key.startswith("arm/")]

    @property
    def preset(self) -> str | None:
        """Key of the arm or study under the cursor."""
        return self.key if (self.key or "").startswith(("arm/", "study/")) else None

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
            self.post_message(self.CardAsked())
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
            if self._is_group(self.keys[number]):
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
