"""The devices, twice: a line that is always in view, and the Devices pane with history and processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from oelm_tui.actions import bindings
from oelm_tui.render.device_strip import strip_lines
from oelm_tui.render.devices import DeviceText, Held, device_text
from oelm_tui.snapshots.cards import DeviceHistory, Machine
from oelm_tui.text import Line
from oelm_tui.widgets.lines import Lines, ScrollLines


class DeviceStrip(Lines):
    DEFAULT_CSS = "DeviceStrip { height: 1; }"
    machine: reactive[Machine | None] = reactive(None)
    names: reactive[dict[str, str]] = reactive(dict)
    """Run id to the short name shown for it."""
    history: DeviceHistory | None = None

    def lines(self, width: int, height: int) -> Sequence[Line]:
        return strip_lines(self.machine, self.history, self.names, width, max(1, height))


class DevicesPane(ScrollLines):
    """Its cursor goes from process to process, and scrolls where there is none to go to."""

    BINDINGS = bindings("devices")

    @dataclass
    class EndAsked(Message):
        """Somebody wants the process under the cursor to end."""

        held: Held | None

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.history = DeviceHistory()
        self._last: tuple[Machine | None, dict[str, str]] = (None, {})
        self._text = DeviceText()
        self._chosen: tuple[str, int] | None = None
        """Card and pid."""

    def show_machine(self, machine: Machine | None, names: dict[str, str]) -> None:
        """Remembers the machine's new state; `names` are short names of our runs."""
        if machine is not None and machine is not self._last[0]:
            self.history.add(machine)
        self._last = (machine, names)
        if self.display:
            self._fill()

    def _fill(self) -> None:
        machine, names = self._last
        self._text = device_text(machine, self.history, names, max(40, self.size.width), self.size.height)
        before = self.cursor_line
        self.show(self._text.lines)
        if self.cursor_line != before:
            self.refresh()

    # The process under the cursor

    @property
    def cursor_line(self) -> int | None:
        """Of the chosen process; of the first one when that is gone."""
        held = self._text.held
        there = (line for line, one in held.items() if (one.card, one.process.pid) == self._chosen)
        return next(there, min(held, default=None))

    @property
    def chosen(self) -> Held | None:
        return self._text.held[self.cursor_line] if self.cursor_line is not None else None

    def action_move(self, lines: int) -> None:
        order = sorted(self._text.held)
        place = order.index(self.cursor_line) + lines if self.cursor_line is not None else -1
        if not 0 <= place < len(order):
            super().action_move(lines)
            place = max(0, min(place, len(order) - 1))
        if order:
            self._choose(order[place], scroll=abs(lines) == 1)

    def _choose(self, line: int, scroll: bool = True) -> None:
        one = self._text.held[line]
        self._chosen = (one.card, one.process.pid)
        if scroll and not self.scroll_y <= line < self.scroll_y + self.size.height:
            self.scroll_to(y=max(0, line - self.size.height // 2), animate=False)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        line = event.y - self.gutter.top + round(self.scroll_y)
        if line in self._text.held:
            self._choose(line, scroll=False)

    def action_end_process(self) -> None:
        self.post_message(self.EndAsked(self.chosen))

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        if self.has_focus and number == self.cursor_line and number < len(self.shown):
            return self.draw_line(self.shown[number], "chosen")
        return super().render_line(y)

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()

    def on_show(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        super().on_resize()
        self._fill()
