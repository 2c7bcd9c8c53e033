"""The devices in a line or two that are always in view, with as much of each card as there is room for."""

from __future__ import annotations

from rich.cells import cell_len

from oelm_core import formatting
from oelm_core.devices.card import Card
from oelm_core.runs.folder import RUN_ID
from oelm_tui import glyphs
from oelm_tui.glyphs import sparkline
from oelm_tui.render import levels
from oelm_tui.render.devices import OWNER_ROLES, driver_problem, share_of
from oelm_tui.render.levels import meter
from oelm_tui.snapshots.cards import DeviceHistory, Machine, key_of, owner_of
from oelm_tui.text import Line, fit


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
    for detail in (6, 5, 4, 3, 2, 1, 0):
        parts = [_card(card, "GPU ", detail, names, history) for card in machine.cards]
        parts += [_card(card, "", detail, names, history) for card in machine.remote]
        lead = "GPU% " if not detail else " GPU " if detail <= 2 and machine.cards else " "
        column = max(sum(cell_len(text) for text, _ in part) for part in parts) + (2 if detail >= 2 else 1)
        if column * per_row - 1 + len(lead) <= width:
            break
    return [
        [(lead, "faint"), *(span for part in parts[start : start + per_row] for span in fit(tuple(part), column))]
        for start in range(0, len(parts), per_row)
    ]


def short_run(label: str) -> str:
    """A run id as its preset; anything else as it is."""
    named = RUN_ID.match(label)
    return named["preset"] if named else label


def _card(card: Card, before: str, detail: int, names: dict[str, str], history: DeviceHistory | None) -> Line:
    """6: history and bars; 5: bar, use, memory, temperature, owner; 4: no bar; 3, 2: use and owner; 1, 0: use alone."""
    owner = owner_of(card)
    role = OWNER_ROLES[owner.kind]
    use = None if card.utilisation is None else card.utilisation / 100
    level, heat, memory = levels.of_use(use), levels.of_heat(card.temperature), levels.of_memory(card.memory_share)
    percent = "--" if use is None else f"{card.utilisation:.0f}"
    label = names.get(owner.name) or short_run(owner.name)
    if detail <= 2:
        sign = glyphs.signs.bad if owner.kind == "lost" else heat.sign.strip()
        line: Line = [(f"{card.label}:", "faint"), (percent + "%" * (detail > 0), level.role)]
        line.append((sign, "bad" if owner.kind == "lost" else heat.role))
        return [*line, (f" {label}", role)] if detail == 2 else line
    line = [(f"{before}{card.label} ", "faint")]
    if owner.kind == "lost":
        return [*line, (f"{glyphs.signs.bad} {label[: 8 * (detail - 2)]}", "bad")]
    if detail == 6 and history is not None:
        line.append((sparkline(list(history.use.get(key_of(card), ())), 12), level.role))
    elif detail >= 5:
        line += meter(use, 8, level.role)
    line.append(((percent + "%" * (use is not None)).rjust(5 if detail >= 5 else 4), level.role))
    if detail == 6 and card.memory_total is not None:
        line += [(" ", ""), *meter(card.memory_share, 6, memory.role)]
    if detail >= 4:
        used = formatting.size_short(card.memory_used)
        if card.memory_total is not None:  # another machine's card says only what the run holds
            used = used.removesuffix("G") + "/" + formatting.size_short(card.memory_total).replace(".0G", "G")
        line.append((f" {used}{memory.sign}".ljust(10), memory.role if memory.word else ""))
    if card.temperature is not None and (detail >= 5 or heat.word):
        degree = "C" if glyphs.signs.ascii_only else "°"
        gap = "" if line[-1][0].endswith(" ") else " "
        line.append((f"{gap}{card.temperature:.0f}{degree}{heat.sign.strip()}", heat.role if heat.word else "faint"))
    return [*line, (f" {label}", role)]


def _processor(machine: Machine, width: int) -> Line:
    size = 8 if width >= 100 else 4
    here = machine.here
    use, memory, disk = here.cpu.utilisation / 100, share_of(here.memory), share_of(here.disk)
    line: Line = [(" CPU ", "faint"), *meter(use, size, levels.of_use(use).role), (f" {use * 100:3.0f}%", "")]
    if width >= 80:
        line.append((f" of {here.cpu.cores} cores", "faint"))
    if memory is not None:
        total = f" of {formatting.size_short(here.memory.total)}" if width >= 80 else ""
        level = levels.of_memory(memory)
        line += [("   memory ", "faint"), *meter(memory, size, level.role)]
        line.append((f" {memory * 100:3.0f}%{total}{level.sign.strip()}", level.role if level.word else ""))
    if here.disk and width >= 70:
        level = levels.of_disk(disk)
        words = f"{formatting.size_short(here.disk.free)} free{level.sign.strip()}"
        line += [("   disk ", "faint"), (words, level.role if level.word else "")]
    problem = driver_problem(machine)
    return [*line, ("   " + (problem or ("no GPU" if width >= 90 else "")), "bad" if problem else "faint")]
