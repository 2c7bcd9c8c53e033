"""The Devices pane: every card with meters, history, heat, power against its cap, and the processes on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from oelm_core import formatting
from oelm_core.devices.card import Card, CardProcess
from oelm_tui import glyphs
from oelm_tui.glyphs import sparkline
from oelm_tui.render import levels
from oelm_tui.render.levels import Level, meter
from oelm_tui.snapshots.cards import DeviceHistory, Machine, key_of, owner_of
from oelm_tui.text import Line, fit, heading, width_of

if TYPE_CHECKING:
    from oelm_core.devices.machine import Disk, Memory
    from oelm_core.launch.remote_devices import RemoteCard

OWNER_ROLES = {"free": "ok", "ours": "arm0", "other": "other", "suspect": "bad", "lost": "bad"}
SIDE_BY_SIDE = 104
"""Columns from which use and memory stand beside each other."""


class Held(NamedTuple):
    """A process and the card it is on."""

    card: str
    process: CardProcess


@dataclass
class DeviceText:
    """The pane's lines, and which of them stand for a process."""

    lines: list[Line] = field(default_factory=list)
    held: dict[int, Held] = field(default_factory=dict)

    def add_processes(self, cards: Sequence[Card], names: dict[str, str], width: int, now: float) -> None:
        for card in cards:
            for process in card.processes:
                self.held[len(self.lines)] = Held(card.label, process)
                which = card.label if len(cards) > 1 else ""
                self.lines.append(_process(process, which, names, width, now))


def device_text(
    machine: Machine | None, history: DeviceHistory, names: dict[str, str], width: int, height: int = 0
) -> DeviceText:
    """Several lines a card; one line a card, and all processes below, where that would not fit into `height`."""
    text = DeviceText()
    if machine is None:
        text.lines.append([("Looking at the devices.", "faint")])
        return text
    now = machine.here.t
    for card in machine.cards:
        text.lines += _card_lines(card, history, names, width)
        text.add_processes([card], names, width, now)
        text.lines.append([])
    ending = [*_remote_lines(machine, history, names, width), *_machine_lines(machine, history, width)]
    if len(machine.cards) > 1 and 0 < height < len(text.lines) + len(ending):
        owners = [owner_of(card).name for card in machine.cards]
        longest = max(cell_len(names.get(name, name)) for name in owners)
        text = DeviceText([_card_line(card, history, names, width, longest) for card in machine.cards])
        models = Counter(card.name or "unknown" for card in machine.cards)
        kinds = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in models.items())
        text.lines.append([(f"      {kinds}", "faint")])
        text.lines.append([])
        if any(card.processes for card in machine.cards):
            text.lines.append([(f"  GPU {'pid':>8}  {'memory':>6}  {'time':>6}  whose and what", "head")])
            text.add_processes(machine.cards, names, width, now)
            text.lines.append([])
    text.lines += ending
    if any(held.process.mine for held in text.held.values()):
        text.lines += [
            [],
            [("X ", "key"), ("ends your process under the cursor; a run saves a checkpoint first", "faint")],
        ]
    return text


def _card_lines(card: Card, history: DeviceHistory, names: dict[str, str], width: int) -> list[Line]:
    owner = owner_of(card)
    role = OWNER_ROLES[owner.kind]
    title: Line = [(f"GPU {card.label} ", "label"), (card.name or "", "faint"), (f"  {owner.kind}", role)]
    if owner.kind in ("ours", "other"):
        title.append((f": {names.get(owner.name, owner.name)}", role))
    if owner.kind == "lost":
        return [title, [(f"  {glyphs.signs.bad} {owner.name}", "bad")]]
    if card.suspect:
        title.append((f": {card.suspect}", "bad"))
    use = None if card.utilisation is None else card.utilisation / 100
    words = f"{formatting.size_short(card.memory_used)} of {formatting.size_short(card.memory_total)}"
    return [
        title,
        *_pair(
            _Meter("use", use, levels.of_use(use), "", history.use.get(key_of(card))),
            _Meter(
                "memory",
                card.memory_share,
                levels.of_memory(card.memory_share),
                words,
                history.memory.get(key_of(card)),
            ),
            width,
        ),
        *_power_lines(card, width),
    ]


def _power_lines(card: Card, width: int) -> Iterator[Line]:
    """Temperature and power, each with its level in words."""
    heat = levels.of_heat(card.temperature)
    degrees = "?" if card.temperature is None else f"{card.temperature:.0f} C"
    line: Line = [("  temp   ", "faint"), (f"{degrees} {heat.word}".ljust(12), heat.role if heat.word else "")]
    share = card.power / card.power_limit if card.power is not None and card.power_limit else None
    level = levels.of_power(share)
    line.append(("  power ", "faint"))
    if share is not None:
        line += [*meter(share, 10 if width >= 70 else 6, level.role), (" ", "")]
    line.append((watts(card) + (f" {level.word}" if level.word else ""), level.role if level.word else ""))
    slowed: Line = [(f"  {glyphs.signs.warn} slowed down by heat or power", "wait")] if card.throttled else []
    if slowed and width_of((*line, *slowed)) > width:
        yield line
        line = []
    yield line + slowed


def watts(card: Card) -> str:
    """212 of 230 W; without the cap where the card does not say."""
    used = "?" if card.power is None else f"{card.power:.0f}"
    return f"{used} of {card.power_limit:.0f} W" if card.power_limit else f"{used} W"


class _Meter(NamedTuple):
    name: str
    share: float | None
    level: Level
    words: str
    past: Sequence[float] | None = None

    def line(self, room: int) -> Line:
        """Name, bar, percent, words, and in what is left its history."""
        percent = "  ?" if self.share is None else f"{self.share * 100:3.0f}"
        line: Line = [(f"  {self.name:<6} ", "faint"), *meter(self.share, 12 if room >= 56 else 8, self.level.role)]
        line.append((f" {percent} % ", ""))
        line.append((self.level.word.ljust(4) + " ", self.level.role))
        line.append((self.words, "faint"))
        left = room - width_of(tuple(line)) - 2
        if self.past and left >= 6:
            line += [(" ", ""), (sparkline(list(self.past), min(left, len(self.past), 60)), "arm2")]
        return line


def _pair(first: _Meter, second: _Meter, width: int) -> Iterator[Line]:
    """Beside each other where there is room, else below each other."""
    if width >= SIDE_BY_SIDE:
        half = width // 2
        yield [*fit(tuple(first.line(half)), half), *second.line(width - half)]
    else:
        yield first.line(width)
        yield second.line(width)


def _card_line(card: Card, history: DeviceHistory, names: dict[str, str], width: int, longest: int) -> Line:
    """All of a card in a line, for many cards on a low screen; the `longest` owner's name decides on the history."""
    owner = owner_of(card)
    role = OWNER_ROLES[owner.kind]
    label = names.get(owner.name, owner.name)
    line: Line = [(f"GPU {card.label} ", "label")]
    if owner.kind == "lost":
        return [*line, (f"{glyphs.signs.bad} {label}", "bad")]
    use = None if card.utilisation is None else card.utilisation / 100
    level = levels.of_use(use)
    line += [*meter(use, 4 if width < 76 else 10, level.role)]
    line.append((f" {'?' if use is None else f'{card.utilisation:.0f}'}%".rjust(5) + " ", level.role))
    memory = levels.of_memory(card.memory_share)
    if width >= 76:
        line += [*meter(card.memory_share, 6, memory.role), (" ", "")]
    words = f"{formatting.size_short(card.memory_used)} of {formatting.size_short(card.memory_total)}"
    line.append((words.rjust(14) + memory.sign + " ", memory.role if memory.word else ""))
    heat = levels.of_heat(card.temperature)
    degrees = "?" if card.temperature is None else f"{card.temperature:.0f}"
    line.append((f"{degrees}C{heat.sign}".rjust(5) + " ", heat.role if heat.word else ""))
    if width >= 70:
        power = watts(card)
        line.append((power.rjust(12) + " ", "wait" if card.throttled else "faint"))
    past = history.use.get(key_of(card))
    room = min(40, width - width_of(tuple(line)) - longest - 3)
    if room >= 8:
        line += [(sparkline(list(past or ()), room), "arm2"), (" ", "")]
    return [*line, (label, role)]


def _process(one: CardProcess, card: str, names: dict[str, str], width: int, now: float) -> Line:
    """Pid, memory, how long it has been there, whose it is, and what it is."""
    ran = formatting.duration(now - one.started) if one.started else "?"
    run = names.get(one.run, one.run) if one.run else ""
    whose = f"run {run}" if run else f"{one.user} (you)" if one.mine else one.user or "?"
    line: Line = [
        (f"  {card:<4}" if card else "  ", "label"),
        (f"{one.pid:>8}" if card else f"pid {one.pid:<8}", "" if one.mine else "faint"),
        (f"  {formatting.size_short(one.memory):>6}  {ran:>6}  ", ""),
        (whose, "arm0" if run else "ok" if one.mine else "other"),
    ]
    room = width - width_of(tuple(line)) - 3
    if one.command and room >= 8:
        line += [("  ", ""), *fit((one.command, "faint"), room)]
    return line


def _remote_lines(machine: Machine, history: DeviceHistory, names: dict[str, str], width: int) -> list[Line]:
    if not machine.remote:
        return []
    title = heading("On other machines, as reported by the runs there")
    return [title, *(_remote(card, history, names, width) for card in machine.remote), []]


def _remote(card: RemoteCard, history: DeviceHistory, names: dict[str, str], width: int) -> Line:
    use = None if card.utilisation is None else card.utilisation / 100
    level = levels.of_use(use)
    line: Line = [(f"  {card.label:<16} ", "label"), *meter(use, 8, level.role)]
    line.append((("  ? " if use is None else f" {use * 100:3.0f} ") + "% ", level.role))
    line.append((f"{formatting.size_short(card.memory_used):>7} ", ""))
    past = history.use.get(key_of(card))
    if past and width >= 90:
        line.append((sparkline(list(past), min(width // 4, len(past))), "arm2"))
    when = time.strftime(" %H:%M:%S", time.localtime(card.measured)) if card.measured else " no sample yet"
    name = owner_of(card).name
    return [*line, (f" {names.get(name, name)}", "arm0"), (when, "faint")]


def _machine_lines(machine: Machine, history: DeviceHistory, width: int) -> Iterator[Line]:
    here = machine.here
    if here.driver_error:
        yield [(driver_problem(machine), "bad")]
        yield []
    elif not machine.cards:
        yield [("No NVIDIA card here: runs use the processor.", "faint")]
        yield []
    yield heading(here.host)
    use, memory, disk = here.cpu.utilisation / 100, share_of(here.memory), share_of(here.disk)
    total = formatting.size_short(here.memory.total)
    yield from _pair(
        _Meter("CPU", use, levels.of_use(use), f"{here.cpu.cores} cores", history.use.get("cpu")),
        _Meter("memory", memory, levels.of_memory(memory), f"of {total}", history.memory.get("cpu")),
        width,
    )
    free = formatting.size_short(here.disk.free if here.disk else None)
    yield _Meter("disk", disk, levels.of_disk(disk), f"{free} free").line(width)


def driver_problem(machine: Machine) -> str:
    return f"cards: {machine.here.driver_error}" if machine.here.driver_error else ""


def share_of(part: Memory | Disk | None) -> float | None:
    return part.used / part.total if part and part.total else None
