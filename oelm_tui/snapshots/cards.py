"""GPUs and the machine as the screen shows them: whose card it is, in one word, and the history of its use."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from oelm_core.devices.card import Card
from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run

if TYPE_CHECKING:
    from oelm_core.devices.machine import MachineSnapshot
    from oelm_core.launch.remote_devices import RemoteCard

HISTORY = 120


@dataclass(frozen=True)
class Machine:
    """This machine, and what our runs on other machines last reported of their devices."""

    here: MachineSnapshot
    remote: tuple[RemoteCard, ...] = ()

    @property
    def cards(self) -> tuple[Card, ...]:
        """Those of this machine that can be used: a divided card by its instances."""
        return tuple(card for card in self.here.gpus if not card.is_mig_parent)


class Owner(NamedTuple):
    kind: str
    """free, ours, other, suspect or lost."""
    name: str
    """The run on the card, the users on it, or what is wrong."""


def owner_of(card: Card) -> Owner:
    if card.error:
        return Owner("lost", card.error)
    ours = next((process.run for process in card.processes if process.run), card.lease)
    if ours:
        return Owner("ours", ours)
    others = sorted({process.user or "someone" for process in card.processes})
    if others:
        return Owner("other", ", ".join(others))
    return Owner("suspect", "suspect") if card.suspect else Owner("free", "free")


def key_of(card: Card) -> str:
    """The same for one card at every look."""
    return card.uuid or card.label


class DeviceHistory:
    """Use of each card and of the processor over the last minutes in percent, one value a sample."""

    def __init__(self) -> None:
        self.use: dict[str, deque[float]] = {}
        self.memory: dict[str, deque[float]] = {}

    def add(self, machine: Machine) -> None:
        for card in (*machine.cards, *machine.remote):
            self._push(self.use, key_of(card), card.utilisation)
            share = card.memory_share
            self._push(self.memory, key_of(card), None if share is None else share * 100)
        memory = machine.here.memory
        self._push(self.use, "cpu", machine.here.cpu.utilisation)
        self._push(self.memory, "cpu", memory.used / memory.total * 100 if memory.total else None)

    @staticmethod
    def _push(table: dict[str, deque[float]], key: str, value: float | None) -> None:
        table.setdefault(key, deque(maxlen=HISTORY)).append(math.nan if value is None else value)


def remote_cards(runs: Sequence[Run]) -> tuple[RemoteCard, ...]:
    """One card for each live run on another machine, by node."""
    if not any(run.launcher == "slurm" and run.state in LIVE and run.devices for run in runs):
        return ()  # nothing is imported for those who have no cluster
    from oelm_core.launch import remote_devices

    return tuple(remote_devices.remote_cards(runs))
