"""The devices, twice: a line that is always in view, and the Devices pane with history and processes."""

from __future__ import annotations

from collections.abc import Sequence

from textual.reactive import reactive

from oelm_tui.render.devices import device_lines, strip_lines
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
    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.history = DeviceHistory()
        self._last: tuple[Machine | None, dict[str, str]] = (None, {})

    def show_machine(self, machine: Machine | None, names: dict[str, str]) -> None:
        """Remembers the machine's new state; `names` are short names of our runs."""
        if machine is not None and machine is not self._last[0]:
            self.history.add(machine)
        self._last = (machine, names)
        if self.display:
            self._fill()

    def _fill(self) -> None:
        machine, names = self._last
        self.show(device_lines(machine, self.history, names, max(40, self.size.width)))

    def on_show(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        super().on_resize()
        self._fill()
