"""What the threads tell the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.sampler import LabSnapshot

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


class Newest(Message):
    """Replaces an older one of its kind that is still waiting."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class Sampled(Newest):
    """A new snapshot of the lab."""

    def __init__(self, snapshot: LabSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class DetailRead(Newest):
    """The selected run's files, as read just now."""

    def __init__(self, detail: Detail) -> None:
        super().__init__()
        self.detail = detail


class CatalogueLoaded(Message):
    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__()
        self.catalogue = catalogue


class Trouble(Message):
    """Something in a thread went wrong; the thread continues."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words
