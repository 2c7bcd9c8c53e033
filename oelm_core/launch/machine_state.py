"""The machine's state around a run: load, memory, temperature and who else works, so timings can be judged later."""

from __future__ import annotations

import os
import time

from oelm_core.launch.device_request import probe
from oelm_core.runs import process
from oelm_core.runs.process import read_text
from oelm_core.runs.schema import BusyProcess, MachineState

_SAMPLE = 0.2
_BUSY = 0.1
"""Share of a core from which a process counts as busy."""


def look(kind: str) -> MachineState:
    """A record of now; cards are asked only for runs that use them."""
    return MachineState(
        t=time.time(),
        load=_load(),
        memory_available=_memory_available(),
        temperature=_temperature(),
        busy=_busy_processes(),
        gpus=(probe() or []) if kind == "cuda" else None,
    )


def _load() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def _memory_available() -> int | None:
    kilobytes = process.kernel_number("/proc/meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _temperature() -> float | None:
    """The hottest thermal zone, degrees C; None where the machine does not tell."""
    try:
        zones = [name for name in os.listdir("/sys/class/thermal") if name.startswith("thermal_zone")]
    except OSError:
        return None
    values = [read_text(f"/sys/class/thermal/{zone}/temp").strip() for zone in zones]
    return max((int(value) / 1000 for value in values if value.lstrip("-").isdigit()), default=None)


def _busy_processes(limit: int = 5) -> list[BusyProcess]:
    """Processes other than ours that use a noticeable part of a core, busiest first."""
    before, started = _cpu_seconds(), time.monotonic()
    time.sleep(_SAMPLE)
    elapsed = time.monotonic() - started
    ours = {os.getpid(), *process.descendants()}
    shares = {
        pid: (spent - before[pid]) / elapsed
        for pid, spent in _cpu_seconds().items()
        if pid in before and pid not in ours
    }
    busiest = sorted((share, pid) for pid, share in shares.items() if share >= _BUSY)[::-1][:limit]
    return [
        BusyProcess(pid, _owner(pid), read_text(f"/proc/{pid}/comm").strip(), round(share, 2)) for share, pid in busiest
    ]


def _cpu_seconds() -> dict[int, float]:
    found = {pid: process.stat_fields(pid) for pid in process.everyone()}
    return {pid: (int(fields[11]) + int(fields[12])) / process.TICKS for pid, fields in found.items() if fields}


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
