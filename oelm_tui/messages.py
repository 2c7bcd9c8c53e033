"""What the threads tell the screen."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.preset_card import ShownCard
from oelm_tui.snapshots.sampler import LabSnapshot


class Newest(Message):
    """Replaces an older one of its kind that is still waiting."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


@dataclass
class Sampled(Newest):
    """A new snapshot of the lab."""

    snapshot: LabSnapshot


@dataclass
class DetailRead(Newest):
    """The selected run's files, as read just now."""

    detail: Detail


@dataclass
class CardRead(Newest):
    """The card of the preset under the cursor, with what is known by now."""

    shown: ShownCard
