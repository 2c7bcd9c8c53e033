"""`oelm gpus` and `oelm doctor`: the cards, who is on them, the machine's load, and whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.formatting import size, size_short
from oelm_core.plain_text import visible
from oelm_tui.commands.options import AsJson, Slurm, Watch, single
from oelm_tui.console import console, note, print_json, print_once_or_watch, print_table

if TYPE_CHECKING:
    from oelm_core.devices.card import Card
    from oelm_core.devices.machine import MachineSnapshot
    from oelm_core.doctor import Diagnosis
    from oelm_core.proof.record import CheckResult

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
            why = visible(gpu.suspect)
            print(f"GPU {gpu.label} is suspect and not handed out until `oelm gpus --trust {gpu.label}`: {why}")


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


Gpu = Annotated[bool, typer.Option("--gpu", help="Prove the cards: about two minutes each, saved for reports.")]
Cards = Annotated[str | None, typer.Option("--cards", metavar="0,1", help="With --gpu: these cards; else all.")]
Only = Annotated[
    list[str] | None, typer.Option("--check", metavar="NAME", help="With --gpu: this check alone; may be repeated.")
]
Launcher = Annotated[str, typer.Option("--launcher", help="With --gpu: local, or slurm to prove its cards as a job.")]
Where = Annotated[str, typer.Option("--device", hidden=True, help="cpu: the checks of --gpu without a card.")]


def doctor(
    as_json: AsJson = False,
    gpu: Gpu = False,
    cards: Cards = None,
    only: Only = None,
    launcher: Launcher = "local",
    slurm: Slurm = None,
    device: Where = "cuda",
) -> None:
    """Check the machine, and say how to fix what is missing."""
    from oelm_core.doctor import examine
    from oelm_core.errors import BadInput, LabError

    if gpu and cards and device == "cpu":
        raise BadInput(f"--cards {cards}: with --device cpu no card is proven; leave one of the two out.")
    if gpu and launcher == "slurm":
        _prove_in_job(as_json, cards, only or [], slurm or [], device)
        return
    if launcher != "local" and gpu:
        raise BadInput(f"--launcher {launcher}: write local or slurm.")
    if gpu:
        _prove(as_json, cards, only or [], device)
        return
    if cards or only or launcher != "local":
        raise BadInput("--cards, --check and --launcher go with --gpu: oelm doctor --gpu --cards 0,1.")
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


def _prove(as_json: bool, cards: str | None, only: list[str], device: str) -> None:
    from msgspec import to_builtins

    from oelm_core.errors import BadInput, LabError
    from oelm_core.proof.prove import prove, where_kept

    if device not in ("cuda", "cpu"):
        raise BadInput(f"--device {device}: write cuda or cpu.")

    def begins() -> None:
        if not only and not as_json:
            note("proving takes about two minutes a card, and a minute more for several together.")

    made, shown = [], ""
    for one in prove(cards, only, device, begins):
        made.append(one)
        if as_json:
            continue
        if one.where != shown:
            console().print(one.where, style="bold")
            shown = one.where
        _print_result(one.result)
    if as_json:
        print_json([{"where": one.where, **to_builtins(one.result)} for one in made])
    else:
        console().print(f"kept in {where_kept()}", style="dim", highlight=False)
    bad = [f"{one.result.name} ({one.where})" for one in made if one.result.ok is False]
    if bad:
        raise LabError(f"not proven: {', '.join(bad)}.")


def _prove_in_job(as_json: bool, cards: str | None, only: list[str], settings: list[str], device: str) -> None:
    """Slurm picks the cards, so that --cards 0,1 asks for two of them."""
    from oelm_core.errors import BadInput
    from oelm_core.proof.checks import chosen
    from oelm_core.proof.slurm_job import follow

    if as_json:
        raise BadInput("--json does not go with --launcher slurm; gpu-proof.json has the results.")
    chosen(only)  # a wrong name is refused here, not in the job
    count = 0 if device == "cpu" else len((cards or "0").split(","))
    words = ["-m", "oelm_tui", "doctor", "--gpu", "--device", device]
    for line in follow([*words, *(part for name in only for part in ("--check", name))], count, settings):
        print(line, flush=True)


def _print_result(result: CheckResult) -> None:
    from rich.text import Text

    mark, colour = MARKS["bad" if result.ok is False else "warn" if result.ok is None or result.fix else "good"]
    out = console()
    bound = f" (should be: {result.bound})" if result.bound and not result.ok else ""
    words = f"{result.measured}{bound}, {result.seconds:.0f} s"
    out.print(Text.assemble((f"{mark} ", colour), (f"{result.name:<13}", "bold"), words))
    for line in result.fix.splitlines():
        out.print(Text(f"  {'':<13}{line}", style="dim"))


def _print_check(check: Diagnosis) -> None:
    from rich.text import Text

    mark, colour = MARKS[check.grade]
    out = console()
    out.print(Text.assemble((f"{mark} ", colour), (f"{check.name:<10}", "bold"), visible(check.found)))
    for line in check.fix.splitlines():
        out.print(Text(f"  {'':<10}{visible(line)}", style="dim"))


apps = {"gpus": single(gpus), "doctor": single(doctor)}
