"""One frozen look at this machine, and its form for `oelm gpus --json`."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from oelm_core.devices.reading import Reading
from oelm_core.launch import lease
from oelm_core.runs.folder import runs_dir


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
class GpuProcess:
    pid: int
    user: str | None
    command: str | None
    memory: int | None
    run: str | None
    """Id of the run of ours it belongs to."""


@dataclass(frozen=True)
class Gpu(Reading):
    """A card with who is on it and which run holds it."""

    processes: tuple[GpuProcess, ...] = ()
    lease: str | None = None
    """Id of the run that holds it."""

    @property
    def label(self) -> str:
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig}"


@dataclass(frozen=True)
class Snapshot:
    """Everything `oelm gpus` and the screen show."""

    host: str
    t: float
    cpu: Cpu
    memory: Memory
    disk: Disk | None
    gpus: tuple[Gpu, ...] = ()
    driver_error: str | None = None
    """Why there are no cards, when a driver is installed but does not work."""
    no_driver: bool = False

    def to_json(self) -> dict[str, Any]:
        """The contract's shape, `{host, cpu, gpus: [...]}`, with what else is known added."""
        content = asdict(self)
        content["cpu"]["load"] = list(content["cpu"]["load"])
        content["gpus"] = [{**gpu, "processes": list(gpu["processes"])} for gpu in content["gpus"]]
        return content


def snapshot(root: Path | None = None) -> Snapshot:
    """Looks at the machine now. May take long when a driver hangs: the screen asks a Sampler instead."""
    gpus, driver_error, absent = _gpus()
    return Snapshot(
        host=os.uname().nodename,
        t=time.time(),
        cpu=_cpu(),
        memory=_memory(),
        disk=_disk(root or runs_dir()),
        gpus=gpus,
        driver_error=driver_error,
        no_driver=absent,
    )


def without_gpus(root: Path | None = None) -> Snapshot:
    """The quick part alone, for a first picture before NVML has answered."""
    return Snapshot(os.uname().nodename, time.time(), _cpu(), _memory(), _disk(root or runs_dir()))


def _gpus() -> tuple[tuple[Gpu, ...], str | None, bool]:
    """(cards, what is wrong with the driver, whether there is none)."""
    from oelm_core.devices.nvml import NoDriver, read_cards

    try:
        cards = read_cards()
    except NoDriver as error:
        return (), str(error) if error.broken else None, not error.broken
    found = []
    for card in cards:
        processes = tuple(_process(one.pid, one.memory) for one in card.processes)
        holder = lease.holder(card.uuid) if card.uuid else None
        fields = {**card.__dict__, "processes": processes, "lease": holder.get("run") if holder else None}
        found.append(Gpu(**fields))
    return tuple(found), None, False


def _process(pid: int, memory: int | None) -> GpuProcess:
    """Who is behind a pid; another user's details may be hidden, and the process may be gone by now."""
    user = command = None
    arguments: list[str] = []
    try:
        one = psutil.Process(pid)
        with one.oneshot():
            user = one.username()
            arguments = one.cmdline()
            command = " ".join(arguments) or one.name()
    except psutil.Error:
        pass
    folders = [part.removeprefix("--run-folder=") for part in arguments if part.startswith("--run-folder=")]
    return GpuProcess(pid, user, command, memory, Path(folders[0]).name if folders else None)


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


def _memory() -> Memory:
    memory = psutil.virtual_memory()
    return Memory(memory.used, memory.total, memory.available)


def _disk(path: Path) -> Disk | None:
    """The disk under `path`, or under its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        usage = psutil.disk_usage(str(path))
    except OSError:
        return None
    return Disk(str(path), usage.used, usage.total, usage.free)
