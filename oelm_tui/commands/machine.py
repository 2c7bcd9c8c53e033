"""`oelm gpus`: the cards, who is on them, and the machine's load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.formatting import size
from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import print_json, print_table

if TYPE_CHECKING:
    from oelm_core.devices.card import Card
    from oelm_core.devices.machine import MachineSnapshot


def gpus(
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show the GPUs, who is on them, and the machine's load."""
    from oelm_core.devices.machine import snapshot

    while True:
        now = snapshot()
        if as_json:
            print_json(now.to_json())
        else:
            if watch:
                print("\033[H\033[2J", end="")
            _print(now)
        if not watch:
            return
        try:
            time.sleep(2)
        except KeyboardInterrupt:
            return


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


def _row(gpu: Card) -> list[str]:
    people = [f"{p.run or p.user or '?'} (pid {p.pid}, {size(p.memory)})" for p in gpu.processes]
    return [
        gpu.label,
        gpu.name or "-",
        "-" if gpu.utilisation is None else f"{gpu.utilisation}%",
        "-" if gpu.memory_total is None else _of(gpu.memory_used, gpu.memory_total),
        "-" if gpu.temperature is None else f"{gpu.temperature}C{' throttled' if gpu.throttled else ''}",
        "-" if gpu.power is None else f"{gpu.power:.0f}W",
        gpu.lease or ("free" if not people and not gpu.error else "-"),
        ", ".join([*people, *([gpu.error] if gpu.error else [])]),
    ]


def _of(used: float | None, total: float | None) -> str:
    return f"{size(used)} / {size(total)}"


apps = {"gpus": single(gpus)}
