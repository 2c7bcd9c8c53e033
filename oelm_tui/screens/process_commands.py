"""Ending a process on a card: whose may be ended, what will happen in words, and doing it."""

from __future__ import annotations

from collections.abc import Callable

from oelm_core import formatting
from oelm_core.devices import own_processes
from oelm_core.devices.card import CardProcess
from oelm_core.errors import LabError
from oelm_tui.render.devices import Held

LETTER = "X"


def why_not(held: Held | None) -> str:
    """Why a process cannot be ended from here; "" where it can."""
    if held is None:
        return "no process is on a card here"
    one = held.process
    if one.run:
        return f"process {one.pid} belongs to the run {one.run}, which is not of this home: stop it there"
    if not one.mine:
        return f"process {one.pid} is {one.user or 'somebody'}'s: only your own can be ended from here"
    return ""


def describe(held: Held, now: float, asked_before: bool) -> list[str]:
    one = held.process
    ran = f", running {formatting.duration(now - one.started)}" if one.started else ""
    where = f"GPU {held.card}, {formatting.size_short(one.memory)}{ran}"
    lines = [where, one.command or "its command is not known", ""]
    if asked_before:
        lines.append("It was asked before and is still there: now it ends at once (SIGKILL) and can save nothing.")
    else:
        lines.append("It is asked to end (SIGTERM). It is no run of the lab: nobody here knows what it has saved.")
    if one.holds_card is False:
        lines.append("It has no card open. In a container the driver may name another process: look at its command.")
    return lines


def perform(one: CardProcess, now: bool, say: Callable[[str, bool], object]) -> None:
    """Runs in a thread; tells how it went."""
    try:
        own_processes.end(one, now=now)
        say(f"process {one.pid} {'was ended' if now else 'was asked to end'}", False)
    except LabError as error:
        say(str(error), True)
