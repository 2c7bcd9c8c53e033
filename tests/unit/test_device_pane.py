"""The devices as lines: levels told by words as well as colours, every card named, power, time, at any width."""

from __future__ import annotations

import pytest

from oelm_core.devices.card import Card, CardProcess
from oelm_core.devices.machine import Cpu, Disk, MachineSnapshot, Memory
from oelm_tui.render.device_strip import strip_lines
from oelm_tui.render.devices import device_text
from oelm_tui.snapshots.cards import DeviceHistory, Machine
from oelm_tui.text import Line

NOW = 1_000_000.0
GIB = 2**30


def machine(*cards: Card, memory: float = 0.4) -> Machine:
    disk = Disk("/lab", 62, 100, 38)
    return Machine(
        MachineSnapshot("host", NOW, Cpu(32, 37.0, (0, 0, 0)), Memory(int(memory * GIB), GIB, 0), disk, cards)
    )


def card(index: int, use: int = 0, heat: int = 35, share: float = 0.1, power: float = 20.0, **more: object) -> Card:
    numbers = (use, int(share * 24 * GIB), 24 * GIB, heat, power)
    return Card(index, f"GPU-{index}", "RTX A5000", *numbers, power_limit=230.0, **more)


def pane(*cards: Card, width: int = 80, height: int = 0) -> list[Line]:
    return device_text(machine(*cards), DeviceHistory(), {}, width, height).lines


def words(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def roles(lines: list[Line], text: str) -> list[str]:
    return [role for line in lines for part, role in line if text in part]


def test_a_hot_busy_card_differs_from_an_idle_one_in_words_and_in_colour():
    hot, idle = pane(card(0, use=97, heat=84, share=0.96, power=229)), pane(card(0, use=3))
    for word in ("busy", "84 C hot", "full", "229 of 230 W at its cap"):
        assert word in words(hot)
        assert word not in words(idle)
    assert "idle" in words(idle)
    assert roles(hot, "84 C") == ["bad"]
    assert roles(pane(card(0, heat=78)), "78 C warm") == ["wait"]
    assert roles(idle, "35 C") == [""]


def test_a_bar_stands_on_its_track():
    assert "██████░░░░░░  50 %" in words(pane(card(0, use=50)))
    assert "░░░░░░░░░░░░   ? %" in words(pane(Card(0, "GPU-0")))


def test_a_process_says_how_long_it_runs_and_whether_it_is_yours():
    mine = CardProcess(41, GIB, "ann", "python train.py", started=NOW - 3700, mine=True)
    other = CardProcess(42, None, "bob", "python theirs.py")
    shown = words(pane(card(0, processes=(mine, other))))
    assert "1h01m  ann (you)  python train.py" in shown
    assert "?  bob  python theirs.py" in shown


@pytest.mark.parametrize("width", [60, 80, 104, 120, 200])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_every_card_is_named_and_fits_at_any_width(width, count):
    busy = (CardProcess(4711, GIB, "somebody", "python a-long-name.py", started=NOW - 9),)
    cards = [card(i, use=100, heat=90, share=0.99, power=230, processes=busy, throttled=True) for i in range(count)]
    shown = words(pane(*cards, width=width, height=20)).splitlines()
    assert [line[:5] for line in shown if line.startswith("GPU ")] == [f"GPU {i}" for i in range(count)]
    assert sum("4711" in line for line in shown) == count
    assert max(map(len, shown)) <= width
    strip = strip_lines(machine(*cards), DeviceHistory(), {}, width, 1 if width < 110 else 2)
    line = words(strip)
    assert all(f"GPU {i} " in line or f" {i}:100" in line for i in range(count))
    assert "⚠" in line
    assert max(len(one.rstrip()) for one in line.splitlines()) <= width


@pytest.mark.parametrize("width", [70, 80, 120])
def test_who_is_on_each_of_four_cards_is_said_where_there_is_room(width):
    cards = [card(i, use=97, heat=84, processes=(CardProcess(7, GIB, f"user{i}"),)) for i in range(4)]
    line = words(strip_lines(machine(*cards), DeviceHistory(), {}, width, 1))
    assert all(f"user{i}" in line for i in range(4))


def test_many_cards_on_a_low_screen_take_a_line_each():
    cards = [card(i, processes=(CardProcess(50 + i, GIB),)) for i in range(8)]
    low = device_text(machine(*cards), DeviceHistory(), {}, 80, 20)
    high = device_text(machine(*cards), DeviceHistory(), {}, 80, 90)
    assert words(low.lines[:8]).count("GPU") == 8
    assert len(high.lines) > len(low.lines)
    mixed = pane(card(0, lease="a-rather-long-name"), card(1), card(2), width=100, height=9)
    shown = words(mixed).splitlines()
    assert shown[0].index("a-rather") == shown[1].index("free") == shown[2].index("free")
    for text in (low, high):
        assert [held.process.pid for _, held in sorted(text.held.items())] == list(range(50, 58))
        assert all(str(held.process.pid) in words([text.lines[line]]) for line, held in text.held.items())


def test_without_a_card_the_processor_has_its_bars_and_full_memory_is_said():
    line = words(strip_lines(machine(memory=0.97), None, {}, 100, 1))
    assert "CPU ███░░░░░  37%" in line
    assert "97% of 1.0G⚠" in line
    assert "No NVIDIA card here" in words(pane())
