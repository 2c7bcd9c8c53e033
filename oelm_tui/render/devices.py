"""The cards and the machine: a line or two for the strip, and the Devices pane with history and processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from oelm_core import formatting
from oelm_core.devices.card import Card
from oelm_core.runs.folder import RUN_ID
from oelm_tui import glyphs
from oelm_tui.glyphs import bar, sparkline
from oelm_tui.snapshots.cards import DeviceHistory, Machine, key_of, owner_of
from oelm_tui.text import Line, fit, heading

if TYPE_CHECKING:
    from oelm_core.devices.machine import Disk, Memory
    from oelm_core.launch.remote_devices import RemoteCard

OWNER_ROLES = {"free": "ok", "ours": "arm0", "other": "other", "suspect": "bad", "lost": "bad"}


def device_lines(machine: Machine | None, history: DeviceHistory, names: dict[str, str], width: int) -> list[Line]:
    if machine is None:
        return [[("Looking at the devices.", "faint")]]
    lines: list[Line] = []
    room = max(10, min(60, width - 46))
    for card in machine.cards:
        lines += _card_lines(card, history, names, room)
    if machine.remote:
        lines += [
            heading("On other machines, as reported by the runs there"),
            *(_remote(card, history, names, room) for card in machine.remote),
            [],
        ]
    here = machine.here
    if here.driver_error:
        lines += [[(_driver_problem(machine), "bad")], []]
    elif not machine.cards:
        lines += [[("No NVIDIA card here: runs use the processor.", "faint")], []]
    lines.append(heading(here.host))
    lines.append(_meter("CPU", here.cpu.utilisation / 100, history.use.get("cpu"), room, f"{here.cpu.cores} cores"))
    total = formatting.size_short(here.memory.total)
    lines.append(_meter("memory", _share(here.memory), history.memory.get("cpu"), room, f"of {total}"))
    free = formatting.size_short(here.disk.free if here.disk else None)
    lines.append(_meter("disk", _share(here.disk), None, room, f"{free} free"))
    return lines


def _driver_problem(machine: Machine) -> str:
    return f"cards: {machine.here.driver_error}" if machine.here.driver_error else ""


def _share(part: Memory | Disk | None) -> float | None:
    return part.used / part.total if part and part.total else None


def _card_lines(card: Card, history: DeviceHistory, names: dict[str, str], room: int) -> list[Line]:
    owner = owner_of(card)
    role = OWNER_ROLES[owner.kind]
    title: Line = [(f"GPU {card.label} ", "label"), (card.name or "", "faint"), (f"  {owner.kind}", role)]
    if owner.kind in ("ours", "other"):
        title.append((f": {names.get(owner.name, owner.name)}", role))
    if owner.kind == "lost":
        return [title, [(f"  {glyphs.signs.bad} {owner.name}", "bad")], []]
    share = None if card.utilisation is None else card.utilisation / 100
    if card.suspect:
        title.append((f": {card.suspect}", "bad"))
    lines = [title, _meter("use", share, history.use.get(key_of(card)), room, "")]
    words = f"{formatting.size_short(card.memory_used)} of {formatting.size_short(card.memory_total)}"
    lines.append(_meter("memory", card.memory_share, history.memory.get(key_of(card)), room, words))
    heat = "?" if card.temperature is None else f"{card.temperature:.0f} C"
    power = "?" if card.power is None else f"{card.power:.0f} W"
    slowed = " slowed down by heat or power" if card.throttled else ""
    lines.append([("  temp     ", "faint"), (f"{heat}, {power}", ""), (slowed, "wait")])
    for process in card.processes:
        user = names.get(process.run, process.run) if process.run else process.user or "?"
        command = f"  {process.command}" if process.command else ""
        lines.append(
            [
                (f"  pid {process.pid:<8}", "faint"),
                (f"{formatting.size_short(process.memory):>7} ", ""),
                (user, "arm0" if process.run else "other"),
                (command, "faint"),
            ]
        )
    return [*lines, []]


def _remote(card: RemoteCard, history: DeviceHistory, names: dict[str, str], room: int) -> Line:
    use = "  ? " if card.utilisation is None else f"{card.utilisation:3.0f} "
    line: Line = [
        (f"  {card.label:<16} ", "label"),
        (f"{use}% ", ""),
        (f"{formatting.size_short(card.memory_used):>7} ", ""),
    ]
    past = history.use.get(key_of(card))
    if past:
        line.append((sparkline(list(past), min(room // 2, len(past))), "arm2"))
    when = time.strftime(" %H:%M:%S", time.localtime(card.measured)) if card.measured else " no sample yet"
    name = owner_of(card).name
    return [*line, (f" {names.get(name, name)}", "arm0"), (when, "faint")]


def _meter(name: str, share: float | None, past: Sequence[float] | None, room: int, words: str) -> Line:
    percent = "  ?" if share is None else f"{share * 100:3.0f}"
    line: Line = [(f"  {name:<8} ", "faint"), (bar(share, 10), "arm0"), (f" {percent} % ", "")]
    if past:
        line.append((sparkline(list(past), min(room, len(past))), "arm2"))
    return [*line, (f" {words}", "faint")]


def strip_lines(
    machine: Machine | None, history: DeviceHistory | None, names: dict[str, str], width: int, rows: int
) -> list[Line]:
    """All cards in so many rows, each with as much detail as there is room for; the processor where there is none."""
    if machine is None:
        return [[(" looking for devices", "faint")]]
    cards = (*machine.cards, *machine.remote)
    if not cards:
        return [_processor(machine, width)]
    per_row = -(-len(cards) // rows)
    for detail in (4, 3, 2, 1, 0):
        parts = [_card(card, detail, names, history) for card in cards]
        column = max(sum(cell_len(text) for text, _ in part) for part in parts) + (3 if detail else 2)
        if column * per_row + 5 <= width:
            break
    lead = " GPU " if width >= 80 and machine.cards else " "
    return [
        [(lead, "faint"), *(span for part in parts[start : start + per_row] for span in fit(tuple(part), column))]
        for start in range(0, len(parts), per_row)
    ]


def short_run(label: str) -> str:
    """A run id as its preset; anything else as it is."""
    named = RUN_ID.match(label)
    return named["preset"] if named else label


def _card(card: Card, detail: int, names: dict[str, str], history: DeviceHistory | None) -> Line:
    """4: history and bars; 3: bar, use, memory, temperature, owner; 2: no bar; 1: use and owner; 0: index and use."""
    owner = owner_of(card)
    role = OWNER_ROLES[owner.kind]
    use = "--" if card.utilisation is None else f"{card.utilisation:.0f}%"
    if detail == 0:
        return [(f"{card.label}:", "faint"), (use, role)]
    label = names.get(owner.name) or short_run(owner.name)
    line: Line = [(f"{card.label} ", "faint")]
    if owner.kind == "lost":
        return [*line, (f"{glyphs.signs.bad} {label[: 8 * detail]}", "bad")]
    if detail == 4 and history is not None:
        line.append((sparkline(list(history.use.get(key_of(card), ())), 12), role))
    elif detail >= 3:
        line.append((bar(None if card.utilisation is None else card.utilisation / 100, 8), role))
    line.append((use.rjust(5 if detail >= 3 else 4), role))
    if detail == 4 and card.memory_total is not None:
        line.append((f" {bar(card.memory_share, 6)}", "faint"))
    if detail >= 2:
        used = formatting.size_short(card.memory_used)
        if card.memory_total is not None:  # another machine's card says only what the run holds
            used = used.removesuffix("G") + "/" + formatting.size_short(card.memory_total).replace(".0G", "G")
        line.append((f" {used}".ljust(9), ""))
    if detail >= 3 and card.temperature is not None:
        degree = "C" if glyphs.signs.ascii_only else "°"
        line.append((f" {card.temperature:.0f}{degree}", "faint"))
    return [*line, (f" {label}", role)]


def _processor(machine: Machine, width: int) -> Line:
    size = 8 if width >= 100 else 4
    here = machine.here
    use, memory, disk = here.cpu.utilisation / 100, _share(here.memory), _share(here.disk)
    line: Line = [(" CPU ", "faint"), (bar(use, size), "arm0"), (f" {use * 100:3.0f}%", "")]
    if width >= 80:
        line.append((f" of {here.cpu.cores} cores", "faint"))
    if memory is not None:
        total = f" of {formatting.size_short(here.memory.total)}" if width >= 80 else ""
        line += [("   memory ", "faint"), (bar(memory, size), "arm2"), (f" {memory * 100:3.0f}%{total}", "")]
    if here.disk and width >= 70:
        low = disk is not None and disk > 0.95
        line += [("   disk ", "faint"), (f"{formatting.size_short(here.disk.free)} free", "bad" if low else "")]
    problem = _driver_problem(machine)
    return [*line, ("   " + (problem or ("no GPU" if width >= 90 else "")), "bad" if problem else "faint")]
