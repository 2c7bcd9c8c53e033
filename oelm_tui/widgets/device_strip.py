"""The device line: each card's use, memory, temperature and owner; the processor where there is no card."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.reactive import reactive

from oelm_core import formatting
from oelm_core.runs.folder import RUN_ID
from oelm_tui import glyphs
from oelm_tui.glyphs import bar, sparkline
from oelm_tui.snapshots.cards import Card, History, Machine
from oelm_tui.widgets.cells import fit
from oelm_tui.widgets.lines import Line, Lines

WHOSE_ROLES = {"free": "ok", "ours": "arm0", "other": "other", "lost": "bad"}


class DeviceStrip(Lines):
    DEFAULT_CSS = "DeviceStrip { height: 1; }"
    machine: reactive[Machine | None] = reactive(None)
    names: reactive[dict[str, str]] = reactive(dict)
    """Run id to the short name shown for it."""
    history: History | None = None

    def lines(self, width: int, height: int) -> Sequence[Line]:
        machine = self.machine
        if machine is None:
            return [[(" devices: looking", "faint")]]
        cards = (*machine.cards, *machine.remote)
        if not cards:
            return [_processor(machine, width)]
        rows = max(1, height)
        per_row = -(-len(cards) // rows)
        for detail in (4, 3, 2, 1, 0):
            parts = [_card(card, detail, self.names, self.history) for card in cards]
            column = max(sum(cell_len(text) for text, _ in part) for part in parts) + (3 if detail else 2)
            if column * per_row + 5 <= width or detail == 0:
                return [
                    self._row(parts[start : start + per_row], column, width) for start in range(0, len(parts), per_row)
                ]
        return []

    def _row(self, parts: list[Line], column: int, width: int) -> Line:
        cards_here = self.machine is not None and self.machine.cards
        line: Line = [(" GPU " if width >= 80 and cards_here else " ", "faint")]
        for part in parts:
            line += fit(tuple(part), column)
        return line


def short_run(label: str) -> str:
    """A run id as its preset; anything else as it is."""
    named = RUN_ID.match(label)
    return named["preset"] if named else label


def _card(card: Card, detail: int, names: dict[str, str], history: History | None) -> Line:
    """4: history and bars; 3: bar, use, memory, temperature, owner; 2: no bar; 1: use and owner; 0: index and use."""
    role = WHOSE_ROLES[card.whose]
    use = "--" if card.utilisation is None else f"{card.utilisation:.0f}%"
    if detail == 0:
        return [(f"{card.index}:", "faint"), (use, role)]
    label = names.get(card.label) or short_run(card.label)
    line: Line = [(f"{card.index} ", "faint")]
    if card.whose == "lost":
        return [*line, (f"{glyphs.signs.bad} {label[: 8 * detail]}", "bad")]
    if detail == 4 and history is not None:
        line.append((sparkline(list(history.use.get(card.uuid, ())), 12), role))
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
    line: Line = [(" CPU ", "faint"), (bar(machine.cpu, size), "arm0"), (f" {(machine.cpu or 0) * 100:3.0f}%", "")]
    if machine.cores and width >= 80:
        line.append((f" of {machine.cores} cores", "faint"))
    if machine.memory is not None:
        words = f" {machine.memory * 100:3.0f}%" + (
            f" of {formatting.size_short(machine.memory_total)}" if width >= 80 else ""
        )
        line += [("   memory ", "faint"), (bar(machine.memory, size), "arm2"), (words, "")]
    if machine.disk_free is not None and width >= 70:
        low = machine.disk is not None and machine.disk > 0.95
        line += [("   disk ", "faint"), (f"{formatting.size_short(machine.disk_free)} free", "bad" if low else "")]
    words = machine.note or ("no GPU" if width >= 90 else "")
    return [*line, ("   " + words, "bad" if machine.note else "faint")]
