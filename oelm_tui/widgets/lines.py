"""Widgets that are lines of text: the base of panels that are computed, one-liners and scrolling ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from oelm_tui.actions import bindings
from oelm_tui.logs.clean import harmless
from oelm_tui.palette import role_style
from oelm_tui.text import Line

if TYPE_CHECKING:
    from typing_extensions import Self


class LineWidget(Widget):
    """A widget that draws lines of text, each with `draw_line`.

    Comes after a scrolling base: Textual inherits default styles from the first base only.
    """

    _own_style: tuple[str, Style] | None = None

    @property
    def own_style(self) -> Style:
        """The widget's style, kept: Textual walks all ancestors for it anew, and we need it for every line."""
        if self._own_style is None or self._own_style[0] != self.app.theme:
            self._own_style = self.app.theme, self.rich_style
        return self._own_style[1]

    def notify_style_update(self) -> None:
        self._own_style = None
        super().notify_style_update()

    def draw_line(self, line: Line, over: str = "") -> Strip:
        """As wide as the widget; the role `over` is laid over everything (a cursor)."""
        theme, base = self.app.current_theme, self.own_style
        segments = [Segment(harmless(text), base + role_style(role, theme)) for text, role in line if text]
        strip = Strip(segments).adjust_cell_length(self.size.width, base)
        if not over:
            return strip
        style = role_style(over, theme)
        if style.reverse:  # 16 colours: coloured signs would become coloured blocks
            return Strip([Segment(segment.text, base + style) for segment in strip], strip.cell_length)
        return Strip([Segment(s.text, (s.style or base) + style) for s in strip], strip.cell_length)


class Lines(LineWidget):
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
        return self.draw_line(self._lines[y] if y < len(self._lines) else [])


class OneLine(Lines):
    """A line that is set with `show`; repaints only when it changed."""

    DEFAULT_CSS = "OneLine { height: 1; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.line: Line = []

    def show(self, line: Line) -> None:
        if line != self.line:
            self.line = line
            self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        return [self.line]


class ScrollLines(ScrollView, LineWidget, can_focus=True):
    """Text that scrolls; set with `show`. Lines wider than the panel are cut."""

    BINDINGS = bindings("lines")

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.shown: list[Line] = []
        self._all: Sequence[Line] = ()
        self._words: list[str] = []

    def only(self, text: str) -> None:
        """Shows only lines that have all these words, in any case; with none everything again."""
        self._words = text.lower().split()
        self.show(self._all)

    def action_move(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_y + lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def show(self, lines: Sequence[Line]) -> None:
        """Replaces the text; repaints only when it changed."""
        self._all = lines
        if self._words:
            said = [("".join(text for text, _ in line).lower(), line) for line in lines]
            lines = [line for text, line in said if all(word in text for word in self._words)]
        if self.shown == lines:
            return
        self.shown = list(lines)
        self.virtual_size = Size(self.size.width, len(self.shown))
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.shown))

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        return self.draw_line(self.shown[number] if number < len(self.shown) else [])
