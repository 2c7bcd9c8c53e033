"""Lines of (text, role) runs: the base of panels that are computed as text, one-liners and scrolling ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from oelm_tui.widgets.cells import BaseStyle, Span, strip_of

if TYPE_CHECKING:
    from typing_extensions import Self

Line = list[Span]


class Lines(BaseStyle):
    """A fixed panel: `lines` is asked for once after every refresh, with the size at hand."""

    _lines: list[Line] | None = None
    _lines_size: Size | None = None

    def lines(self, width: int, height: int) -> Sequence[Line]:
        raise NotImplementedError

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        self._lines = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render_line(self, y: int) -> Strip:
        if self._lines is None or self._lines_size != self.size:
            self._lines_size = self.size
            self._lines = list(self.lines(self.size.width, self.size.height))
        runs = self._lines[y] if y < len(self._lines) else []
        return strip_of(runs, self.size.width, self.app.current_theme, self.base_style)


class ScrollLines(ScrollView, BaseStyle, can_focus=True):
    """Text that scrolls; set with `show`. Lines wider than the panel are cut."""

    BINDINGS = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._shown: list[Line] = []

    def action_move(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_y + lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def show(self, lines: Sequence[Line]) -> None:
        """Replaces the text; repaints only when it changed."""
        if self._shown == lines:
            return
        self._shown = list(lines)
        self.virtual_size = Size(self.size.width, len(self._shown))
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._shown))

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        runs = self._shown[number] if number < len(self._shown) else []
        return strip_of(runs, self.size.width, self.app.current_theme, self.base_style)
