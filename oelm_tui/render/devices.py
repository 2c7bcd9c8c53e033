"""The Devices pane: every card with its history and processes, then processor, memory and disk."""

from __future__ import annotations

import time

from oelm_core import formatting
from oelm_tui import glyphs
from oelm_tui.glyphs import bar, sparkline
from oelm_tui.render.text import heading
from oelm_tui.snapshots.cards import Card, History, Machine
from oelm_tui.widgets.device_strip import WHOSE_ROLES
from oelm_tui.widgets.lines import Line


def device_lines(machine: Machine | None, history: History, names: dict[str, str], width: int) -> list[Line]:
    if machine is None:
        return [[("Looking at the devices.", "faint")]]
    lines: list[Line] = []
    room = max(10, min(60, width - 46))
    for card in machine.cards:
        lines += _card_lines(card, history, names, room)
    if machine.remote:
        lines += [
            heading("On other machines, as the runs there say"),
            *(_remote(c, history, names, room) for c in machine.remote),
            [],
        ]
    if machine.note:
        lines += [[(machine.note, "bad")], []]
    elif not machine.cards:
        lines += [[("No NVIDIA card here: runs use the processor.", "faint")], []]
    lines.append(heading(f"{machine.host}"))
    lines.append(_meter("CPU", machine.cpu, list(history.use.get("cpu", ())), room, f"{machine.cores or '?'} cores"))
    total = formatting.size_short(machine.memory_total)
    lines.append(_meter("memory", machine.memory, list(history.memory.get("cpu", ())), room, f"of {total}"))
    lines.append(_meter("disk", machine.disk, [], room, f"{formatting.size_short(machine.disk_free)} free"))
    return lines


def _card_lines(card: Card, history: History, names: dict[str, str], room: int) -> list[Line]:
    role = WHOSE_ROLES[card.whose]
    label = names.get(card.label, card.label)
    title: Line = [(f"GPU {card.index} ", "label"), (card.name, "faint"), (f"  {card.whose}", role)]
    if card.whose in ("ours", "other"):
        title.append((f": {label}", role))
    if card.whose == "lost":
        return [title, [(f"  {glyphs.signs.bad} {card.label}", "bad")], []]
    share = None if card.utilisation is None else card.utilisation / 100
    lines = [title, _meter("use", share, list(history.use.get(card.uuid, ())), room, "")]
    words = f"{formatting.size_short(card.memory_used)} of {formatting.size_short(card.memory_total)}"
    lines.append(_meter("memory", card.memory_share, list(history.memory.get(card.uuid, ())), room, words))
    heat = "?" if card.temperature is None else f"{card.temperature:.0f} C"
    power = "?" if card.power is None else f"{card.power:.0f} W"
    slowed = " slowed down by heat or power" if card.throttled else ""
    lines.append([("  heat     ", "faint"), (f"{heat}, {power}", ""), (slowed, "wait")])
    for process in card.processes:
        owner = names.get(process.run or "", process.run) if process.run else process.user or "?"
        command = f"  {process.command}" if process.command else ""
        lines.append(
            [
                (f"  pid {process.pid:<8}", "faint"),
                (f"{formatting.size_short(process.memory):>7} ", ""),
                (str(owner), "arm0" if process.run else "other"),
                (command, "faint"),
            ]
        )
    return [*lines, []]


def _remote(card: Card, history: History, names: dict[str, str], room: int) -> Line:
    use = "  ? " if card.utilisation is None else f"{card.utilisation:3.0f} "
    line: Line = [
        (f"  {card.index:<16} ", "label"),
        (f"{use}% ", ""),
        (f"{formatting.size_short(card.memory_used):>7} ", ""),
    ]
    past = list(history.use.get(card.uuid, ()))
    if past:
        line.append((sparkline(past, min(room // 2, len(past))), "arm2"))
    when = time.strftime(" %H:%M:%S", time.localtime(card.heard)) if card.heard else " no sample yet"
    return [*line, (f" {names.get(card.label, card.label)}", "arm0"), (when, "faint")]


def _meter(name: str, share: float | None, past: list[float], room: int, words: str) -> Line:
    percent = "  ?" if share is None else f"{share * 100:3.0f}"
    line: Line = [(f"  {name:<8} ", "faint"), (bar(share, 10), "arm0"), (f" {percent} % ", "")]
    if past:
        line.append((sparkline(past, min(room, len(past))), "arm2"))
    return [*line, (f" {words}", "faint")]
