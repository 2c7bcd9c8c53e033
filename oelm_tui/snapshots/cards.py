"""GPUs and the machine as the screen shows them: whose card it is, in one word, and the history of its use."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oelm_core.devices import card
    from oelm_core.devices.card import CardProcess
    from oelm_core.devices.machine import MachineSnapshot

HISTORY = 120


@dataclass(frozen=True)
class Card:
    """One GPU. Numbers are None where the card did not say."""

    index: str
    name: str
    uuid: str
    utilisation: float | None
    memory_used: float | None
    memory_total: float | None
    temperature: float | None
    power: float | None
    whose: str
    """free, ours, other or lost."""
    label: str
    """The run on it, the user on it, or what is wrong."""
    processes: tuple[CardProcess, ...] = ()
    throttled: bool = False
    heard: float | None = None
    """For a card of another machine: when it was measured."""

    @property
    def memory_free(self) -> float | None:
        return None if self.memory_used is None or self.memory_total is None else self.memory_total - self.memory_used

    @property
    def memory_share(self) -> float | None:
        return self.memory_used / self.memory_total if self.memory_used is not None and self.memory_total else None


@dataclass(frozen=True)
class Machine:
    """The host: its cards and its processor, memory and disk in shares of one."""

    host: str
    cards: tuple[Card, ...] = ()
    cpu: float | None = None
    cores: int | None = None
    memory: float | None = None
    memory_total: float | None = None
    disk: float | None = None
    disk_free: float | None = None
    note: str = ""
    remote: tuple[Card, ...] = ()
    """What our runs on other machines last said of their devices; `index` is node and device."""


class History:
    """Use of each card and of the processor over the last minutes, one value a sample."""

    def __init__(self) -> None:
        self.use: dict[str, deque[float]] = {}
        self.memory: dict[str, deque[float]] = {}

    def add(self, machine: Machine) -> None:
        for card in (*machine.cards, *machine.remote):
            self._push(self.use, card.uuid, card.utilisation)
            share = card.memory_share
            self._push(self.memory, card.uuid, None if share is None else share * 100)
        self._push(self.use, "cpu", None if machine.cpu is None else machine.cpu * 100)
        self._push(self.memory, "cpu", None if machine.memory is None else machine.memory * 100)

    @staticmethod
    def _push(table: dict[str, deque[float]], key: str, value: float | None) -> None:
        table.setdefault(key, deque(maxlen=HISTORY)).append(math.nan if value is None else value)


def machine_of(seen: MachineSnapshot) -> Machine:
    """From the devices snapshot of oelm_core."""
    note = f"cards: {seen.driver_error}" if seen.driver_error else ""
    disk = seen.disk
    return Machine(
        host=seen.host,
        cards=tuple(card_of(gpu) for gpu in seen.gpus if not gpu.is_mig_parent),
        cpu=seen.cpu.utilisation / 100,
        cores=seen.cpu.cores,
        memory=seen.memory.used / seen.memory.total if seen.memory.total else None,
        memory_total=seen.memory.total,
        disk=disk.used / disk.total if disk and disk.total else None,
        disk_free=disk.free if disk else None,
        note=note,
    )


def card_of(gpu: card.Card) -> Card:
    whose, label = _whose(gpu)
    return Card(
        index=gpu.label,
        name=gpu.name or "",
        uuid=gpu.uuid or gpu.label,
        utilisation=gpu.utilisation,
        memory_used=gpu.memory_used,
        memory_total=gpu.memory_total,
        temperature=gpu.temperature,
        power=gpu.power,
        throttled=bool(gpu.throttled),
        whose=whose,
        label=label,
        processes=gpu.processes,
    )


def _whose(gpu: card.Card) -> tuple[str, str]:
    if gpu.error:
        return "lost", gpu.error
    ours = next((process.run for process in gpu.processes if process.run), gpu.lease)
    if ours:
        return "ours", ours
    others = sorted({process.user or "someone" for process in gpu.processes})
    return ("other", ", ".join(others)) if others else ("free", "free")
