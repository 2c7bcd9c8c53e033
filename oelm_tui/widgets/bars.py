"""The one-line bars: header with counts and clock, pane and run tabs, key hints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.message import Message
from textual.reactive import reactive

from oelm_tui import glyphs
from oelm_tui.actions import Action, actions_of, owner_of
from oelm_tui.text import Line, Span, fit
from oelm_tui.widgets.lines import Lines


class Header(Lines):
    """Where we are, how many runs do what, what needs a look, and the time of the last snapshot."""

    DEFAULT_CSS = "Header { height: 1; }"
    place: reactive[str] = reactive("")
    counts: reactive[tuple[tuple[str, int], ...]] = reactive(())
    now: reactive[float] = reactive(0.0)
    problem: reactive[str] = reactive("")
    readonly: reactive[bool] = reactive(False)

    def lines(self, width: int, height: int) -> Sequence[Line]:
        dot = f" {glyphs.signs.dot} "
        clock = (
            time.strftime("%a %H:%M:%S" if width >= 100 else "%H:%M:%S", time.localtime(self.now)) if self.now else ""
        )
        left: Line = [(" OELM ", "title")]
        counts = dict(self.counts)
        parts: list[tuple[int, Span]] = [(0, (self.place, "faint"))] if width >= 100 and self.place else []
        parts += [(rank, (f"{counts[name]} {name}", role)) for name, role, rank in _COUNTED if counts.get(name)]
        if counts.get("look"):
            words = f"{glyphs.signs.flag} {counts['look']} need{'s' * (counts['look'] == 1)} a look"
            parts.append((9, (words, "bad")))
        if self.readonly:
            parts.append((7, ("read-only", "wait")))
        if self.problem:  # narrow: without the explanation after its colon
            words = self.problem if width >= 100 else self.problem.partition(":")[0]
            parts.append((8, (words, "bad")))
        while len(parts) > 1 and len(" OELM ") + sum(cell_len(text) + 3 for _, (text, _) in parts) - 2 > width:
            parts.remove(min(parts, key=lambda part: part[0]))
        for number, (_, part) in enumerate(parts):
            left += [(dot if number else " ", "faint"), part]
        used = sum(cell_len(text) for text, _ in left)
        gap = width - used - len(clock) - 1
        if gap < 1:  # narrow: the clock goes first
            return [left]
        return [[*left, (" " * gap, ""), (clock, "faint")]]


_COUNTED = (
    ("running", "ok", 6),
    ("starting", "ok", 5),
    ("stopping", "wait", 4),
    ("waiting", "wait", 4),
    ("queued", "wait", 3),
    ("failed", "bad", 5),
    ("lost", "bad", 5),
    ("unknown", "faint", 2),
    ("stopped", "faint", 1),
    ("finished", "faint", 2),
)
"""State, role, and how long it stays when the line gets narrow; what needs a look stays longest."""


class TabBar(Lines):
    """Names side by side; the current one stands out by brackets as well as by colour."""

    DEFAULT_CSS = "TabBar { height: 1; }"
    current: reactive[str] = reactive("")

    @dataclass
    class Pressed(Message):
        name: str

    def __init__(self, tabs: Sequence[tuple[str, str]], *, id: str | None = None) -> None:  # noqa: A002
        """`tabs`: (name, title) pairs."""
        super().__init__(id=id)
        self.tabs = list(tabs)
        self.lead: Line = []
        self._places: list[tuple[int, int, str]] = []

    def set_lead(self, lead: Line) -> None:
        if lead != self.lead:
            self.lead = lead
            self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        names = sum(cell_len(title) + 2 for _, title in self.tabs)
        after = "" if names > width else " "  # the last tab is never cut on 60 columns
        line: Line = []
        room = width - names - 1
        for text, role in self.lead:
            if cell_len(text) > room:
                if not line and room > 0:  # the first words say what this is
                    line = fit((f"{text.rstrip()} ", role), room)
                break
            line.append((text, role))
            room -= cell_len(text)
        at = sum(cell_len(text) for text, _ in line)
        self._places = []
        for name, title in self.tabs:
            chosen = name == self.current
            text = f"[{title}]" if chosen else f" {title}{after}"
            self._places.append((at, at + cell_len(text), name))
            line = [*line, (text, "key|bold" if chosen else "faint")]
            at += cell_len(text)
        return [line]

    async def on_click(self, event: events.Click) -> None:
        for start, end, name in self._places:
            if start <= event.x < end:
                await self.press(name)

    async def press(self, name: str) -> None:
        self.post_message(self.Pressed(name))


class ActionTabs(TabBar):
    """Tabs that do what their keys do; both are the screen's."""

    def __init__(self, where: str, *names: str, id: str | None = None) -> None:  # noqa: A002
        super().__init__((), id=id)
        self._known = {action.name: action.tab for action in actions_of(where)}
        self.set_names(*names)

    def set_names(self, *names: str) -> None:
        """Shows these actions of the screen."""
        self.tabs = [self._known[name] for name in names]
        self.refresh()

    async def press(self, name: str) -> None:
        await self.app.run_action(name, self.screen)


class Hints(Lines):
    """Key hints; what does not fit is left out from the least important. A click does what the key does."""

    DEFAULT_CSS = "Hints { height: 1; }"

    def __init__(self, actions: Sequence[Action], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.actions = list(actions)
        self._places: list[tuple[int, int, Action]] = []

    def lines(self, width: int, height: int) -> Sequence[Line]:
        line: Line = [(" ", "")]
        at = 1
        self._places = []
        last = [action for action in self.actions if action.name in ("help", "quit", "dismiss")]
        reserve = sum(len(action.first_key) + len(action.title) + 3 for action in last)
        for action in [*(a for a in self.actions if a not in last), *last]:
            size = len(action.first_key) + len(action.title) + 3
            if (action not in last and at + size + reserve > width) or at + size > width + 2:
                continue
            line += [(action.first_key, "key"), (f" {action.title}  ", "faint")]
            self._places.append((at, at + size, action))
            at += size
        return [line]

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self._places:
            if start <= event.x < end:
                await self.app.run_action(action.name, owner_of(self.screen, action))
