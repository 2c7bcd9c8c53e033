"""One frozen look at this machine, and its form for `oelm gpus --json`."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec.structs import replace

from oelm_core.devices.card import Card, CardProcess
from oelm_core.devices.own_processes import holds_card, is_mine, run_of
from oelm_core.errors import Refused
from oelm_core.home import runs_dir
from oelm_core.launch import lease, suspects
from oelm_core.runs.process import identity


@dataclass(frozen=True)
class Cpu:
    cores: int
    utilisation: float
    """Percent of all cores since the look before."""
    load: tuple[float, float, float]
    temperature: float | None = None


@dataclass(frozen=True)
class Memory:
    used: int
    total: int
    available: int


@dataclass(frozen=True)
class Disk:
    """The disk that holds the runs."""

    path: str
    used: int
    total: int
    free: int


@dataclass(frozen=True)
class MachineSnapshot:
    """Everything `oelm gpus` and the screen show of this machine."""

    host: str
    t: float
    cpu: Cpu
    memory: Memory
    disk: Disk | None
    gpus: tuple[Card, ...] = ()
    driver_error: str | None = None
    """Why there are no cards, when a driver is installed but does not work."""
    no_driver: bool = False

    def to_json(self) -> dict[str, Any]:
        """The contract's shape, `{host, cpu, gpus: [...]}`, with what else is known added."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


def snapshot(root: Path | None = None) -> MachineSnapshot:
    """Looks at the machine now. May take long when a driver hangs: the screen asks a Sampler instead."""
    gpus, driver_error, absent = _gpus()
    return dataclasses.replace(without_gpus(root), gpus=gpus, driver_error=driver_error, no_driver=absent)


def without_gpus(root: Path | None = None) -> MachineSnapshot:
    """The quick part alone, for a first picture before NVML has answered."""
    memory = psutil.virtual_memory()
    used = Memory(memory.used, memory.total, memory.available)
    return MachineSnapshot(os.uname().nodename, time.time(), _cpu(), used, _disk(root or runs_dir()))


def _gpus() -> tuple[tuple[Card, ...], str | None, bool]:
    """(cards, what is wrong with the driver, whether there is none)."""
    from oelm_core.devices.nvml import NoDriver, read_cards

    try:
        cards = read_cards()
    except NoDriver as error:
        return (), str(error) if error.broken else None, not error.broken
    return tuple(_with_holders(card) for card in cards), None, False


def _with_holders(card: Card) -> Card:
    """The card with who is on it and which run holds it."""
    try:
        holder = lease.holder(card.uuid) if card.uuid else None
        doubt = suspects.suspicion(card.uuid) if card.uuid else None
    except Refused as refusal:  # never shown as free because we are kept from looking
        return replace(card, processes=tuple(map(_described, card.processes)), error=card.error or str(refusal))
    return replace(
        card,
        processes=tuple(map(_described, card.processes)),
        lease=holder.run if holder else None,
        suspect=f"{doubt.run}: {doubt.message}" if doubt else None,
    )


def _described(process: CardProcess) -> CardProcess:
    """Who is behind a pid; another user's details may be hidden, and the process may be gone by now."""
    user = command = None
    try:
        one = psutil.Process(process.pid)
        with one.oneshot():
            user = one.username()
            command = " ".join(one.cmdline()) or one.name()
    except psutil.Error:
        pass
    mine = is_mine(process.pid)
    return replace(
        process,
        user=user,
        command=command,
        run=run_of(process.pid),
        started=identity(process.pid).started,
        mine=mine,
        holds_card=holds_card(process.pid) if mine else None,
    )


def _cpu() -> Cpu:
    load = os.getloadavg()
    return Cpu(psutil.cpu_count() or 1, psutil.cpu_percent(interval=None), load, _cpu_temperature())


def _cpu_temperature() -> float | None:
    read = getattr(psutil, "sensors_temperatures", None)
    try:
        groups = read() if read else {}
    except (OSError, RuntimeError, ValueError):
        return None
    return max((one.current for group in groups.values() for one in group if one.current), default=None)


def _disk(path: Path) -> Disk | None:
    """The disk under `path`, or under its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        usage = psutil.disk_usage(str(path))
    except OSError:
        return None
    return Disk(str(path), usage.used, usage.total, usage.free)
