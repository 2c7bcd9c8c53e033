"""`oelm gpus` and `oelm doctor`: the cards, who is on them, the machine's load, and whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.formatting import size, size_short
from oelm_tui.commands.options import AsJson, Watch, single
from oelm_tui.console import console, print_json, print_once_or_watch, print_table

if TYPE_CHECKING:
    from oelm_core.devices.card import Card
    from oelm_core.devices.machine import MachineSnapshot
    from oelm_core.doctor import Diagnosis

MARKS = {"good": ("✔", "green"), "warn": ("!", "yellow"), "bad": ("✘", "red")}


Trust = Annotated[
    str | None, typer.Option("--trust", metavar="CARD", help="Hand a suspect card out again: its number or UUID.")
]


def gpus(as_json: AsJson = False, watch: Watch = False, trust: Trust = None) -> None:
    """Show the GPUs, who is on them, and the machine's load."""
    from oelm_core.devices.machine import snapshot

    if trust is not None:
        _trust(trust)
        return

    def show() -> None:
        now = snapshot()
        if as_json:
            print_json(now.to_json())
        else:
            _print(now)

    print_once_or_watch(show, watch, clear=not as_json)


def _trust(name: str) -> None:
    from oelm_core.devices.machine import snapshot
    from oelm_core.launch import device_request, queue, suspects

    uuid = name if name.startswith(("GPU-", "MIG-")) else device_request.find_card(name, list(snapshot().gpus)).uuid
    if suspects.trust(str(uuid)):
        queue.announce()  # those who wait look at once
        print(f"GPU {name} is handed out again.")
    else:
        print(f"GPU {name} is not suspect.")


def _print(now: MachineSnapshot) -> None:
    cpu, memory = now.cpu, now.memory
    load = " ".join(f"{part:.1f}" for part in cpu.load)
    used = _of(memory.used, memory.total)
    print(f"{now.host}   CPU {cpu.utilisation:.0f}% of {cpu.cores} cores, load {load}   memory {used}")
    if now.disk:
        print(f"runs disk {size(now.disk.free)} free at {now.disk.path}")
    print()
    if not now.gpus:
        print(now.driver_error or "No NVIDIA driver here: runs use the CPU.")
        return
    print_table(
        ["GPU", "NAME", "USE", "MEMORY", "TEMP", "POWER", "LEASE", "PROCESSES"],
        [_row(gpu) for gpu in now.gpus],
        right=("USE", "MEMORY", "TEMP", "POWER"),
        drop=("POWER", "NAME", "TEMP", "LEASE"),
    )
    for gpu in now.gpus:
        if gpu.suspect:
            print(f"GPU {gpu.label} is suspect and not handed out until `oelm gpus --trust {gpu.label}`: {gpu.suspect}")


def _row(gpu: Card) -> list[str]:
    people = [f"{p.run or p.user or '?'} (pid {p.pid}, {size(p.memory)})" for p in gpu.processes]
    return [
        gpu.label,
        gpu.name or "-",
        "-" if gpu.utilisation is None else f"{gpu.utilisation}%",
        "-" if gpu.memory_total is None else _of(gpu.memory_used, gpu.memory_total),
        "-" if gpu.temperature is None else f"{gpu.temperature}C{' throttled' if gpu.throttled else ''}",
        "-" if gpu.power is None else f"{gpu.power:.0f}W",
        gpu.lease or ("suspect" if gpu.suspect else "free" if not people and not gpu.error else "-"),
        ", ".join([*people, *([gpu.error] if gpu.error else [])]),
    ]


def _of(used: float | None, total: float | None) -> str:
    """Short, so that 80 columns show a card's power too."""
    return f"{size_short(used)} / {size_short(total)}"


def doctor(as_json: AsJson = False) -> None:
    """Check the machine, and say how to fix what is missing."""
    from oelm_core.doctor import examine
    from oelm_core.errors import LabError

    checks = []
    for check in examine():
        checks.append(check)
        if not as_json:
            _print_check(check)
    if as_json:
        print_json([check.to_json() for check in checks])
    bad = [check.name for check in checks if check.grade == "bad"]
    if bad:
        raise LabError(f"not ready yet: {', '.join(bad)}.")


def _print_check(check: Diagnosis) -> None:
    from rich.text import Text

    mark, colour = MARKS[check.grade]
    out = console()
    out.print(Text.assemble((f"{mark} ", colour), (f"{check.name:<10}", "bold"), check.found))
    for line in check.fix.splitlines():
        out.print(Text(f"  {'':<10}{line}", style="dim"))


apps = {"gpus": single(gpus), "doctor": single(doctor)}
