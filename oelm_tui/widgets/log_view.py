"""The log on the screen: follows the end, scrolls, searches and filters; every byte is read in its own thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from oelm_core import formatting
from oelm_tui import glyphs
from oelm_tui.actions import bindings
from oelm_tui.logs.clean import pieces
from oelm_tui.logs.pager import LogAnswer, LogRequest, Pager
from oelm_tui.messages import Newest
from oelm_tui.snapshots.background import BackgroundThread
from oelm_tui.text import Line, folded
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import LineWidget, OneLine

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp


class LogView(Vertical):
    """The page, a status line and a search field."""

    BINDINGS = bindings("search")
    app: OelmApp

    DEFAULT_CSS = """
    LogView { height: 1fr; }
    LogView LogPage { height: 1fr; }
    LogView Field { display: none; height: 1; border: none; padding: 0 1; }
    LogView Field.-shown { display: block; }
    """

    @dataclass
    class Read(Newest):
        """A page has been read."""

        answer: LogAnswer

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._request: LogRequest | None = None
        self._answer: LogAnswer | None = None
        self.thread: BackgroundThread[LogRequest, LogAnswer] = BackgroundThread(
            "log",
            Pager().answer,
            lambda answer: self.post_message(self.Read(answer)),
            0.25,
            lambda error: self.app.report_error(error),
        )

    def compose(self) -> ComposeResult:
        yield LogPage()
        yield OneLine()
        yield Field(placeholder="search; lower case finds any case", compact=True)

    def on_unmount(self) -> None:
        self.thread.close()

    # What is asked

    def open(self, path: Path) -> None:
        """Shows a log from its end, following it."""
        if self._request is None or self._request.path != path:
            self._answer = None
            self._ask(LogRequest(path, rows=self._rows))

    def pause(self) -> None:
        """Stops reading while nobody looks."""
        if self._request is not None:
            self._request = None
            self.thread.ask(LogRequest(None))

    @property
    def _rows(self) -> int:
        return max(1, self.query_one(LogPage).size.height)

    def _ask(self, request: LogRequest) -> None:
        self._request = request
        self.thread.ask(request)

    def move(self, lines: int) -> None:
        """Scrolls by lines. Moves asked for while a page is still being read add up."""
        if self._request is None or self._answer is None:
            return
        if self._answer.request is not self._request:
            self._ask(replace(self._request, delta=self._request.delta + lines, follow=False))
        elif not (self._request.follow and lines > 0):
            self._ask(replace(self._request, anchor=self._answer.page.top, delta=lines, follow=False, goal=""))

    def action_log(self, what: str) -> None:
        if self._request is None:
            return
        rows = self._rows
        moves = {"up": -1, "down": 1, "page_up": -rows, "page_down": rows}
        if what in moves:
            self.move(moves[what])
        elif what == "top":
            self._ask(replace(self._request, anchor=0, delta=0, follow=False, goal=""))
        elif what == "end":
            self._ask(replace(self._request, follow=True, delta=0, goal=""))
        elif what == "search":
            field = self.query_one(Field)
            field.add_class("-shown")
            field.focus()
        elif what in ("next", "previous", "error"):
            anchor = self._answer.focus if self._answer and self._answer.focus is not None else self._top()
            self._ask(replace(self._request, anchor=anchor, delta=0, follow=False, goal=what))
        elif what == "only":
            self._ask(
                replace(self._request, only=not self._request.only and bool(self._request.text), follow=True, goal="")
            )
        elif what == "colours":
            self.app.keep(log_colours=not self.app.settings.log_colours)
            self._show()
        elif what == "wrap":
            page = self.query_one(LogPage)
            page.wrap = not page.wrap
            page.show(self._answer)

    def _top(self) -> int:
        return self._answer.page.top if self._answer else 0

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_close_search()
        if self._request is not None:
            text = event.value
            wanted = replace(self._request, text=text, only=self._request.only and bool(text), follow=not text)
            self._ask(replace(wanted, goal="previous" if text else "", anchor=1 << 62))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Escape is the screen's own key while no search field is open."""
        return action != "close_search" or self.query_one(Field).has_class("-shown")

    def action_close_search(self) -> None:
        self.query_one(Field).remove_class("-shown")
        self.query_one(LogPage).focus()

    # What came

    def on_log_view_read(self, event: Read) -> None:
        if self._request is None or event.answer.request.path != self._request.path:
            return
        self._answer = event.answer
        self._show()

    def _show(self) -> None:
        self.query_one(LogPage).show(self._answer)
        if self._answer is not None:
            self.query_one(OneLine).show(status_line(self._answer, self.app.settings.log_colours))

    def on_log_page_resized(self) -> None:
        if self._request is not None and self._request.rows != self._rows:
            self._ask(replace(self._request, rows=self._rows, delta=0))


class LogPage(LineWidget, can_focus=True):
    """The visible lines. At the end they stand at the bottom; wrapped lines push older ones out at the top."""

    BINDINGS = bindings("log")
    app: OelmApp

    class Resized(Message):
        pass

    def __init__(self) -> None:
        super().__init__()
        self.wrap = False
        self._answer: LogAnswer | None = None
        self._drawn: list[tuple[Line, bool]] = []

    def show(self, answer: LogAnswer | None) -> None:
        self._answer = answer
        self._drawn = self._lay_out(self.size)
        self.refresh()

    def on_resize(self) -> None:
        self._drawn = self._lay_out(self.size)
        self.post_message(self.Resized())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll(event, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll(event, -3)

    def _scroll(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.query_ancestor(LogView).move(lines)

    def action_log(self, what: str) -> None:
        self.query_ancestor(LogView).action_log(what)

    def _lay_out(self, size: Size) -> list[tuple[Line, bool]]:
        if self._answer is None:
            return []
        rows: list[tuple[Line, bool]] = []
        for line in self._answer.page.lines:
            spans: Line = list(pieces(line.shown, glyphs.signs.ascii_only))
            if not self.app.settings.log_colours:
                spans = [(text, "") for text, _ in spans]
            if line.left_out:
                size_of_line = formatting.size_short(line.end - line.start)
                spans.insert(0, (f"({size_of_line} in one line, its beginning) ", "faint"))
            spans = highlighted(spans, self._answer.request.text)
            current = line.start == self._answer.focus
            rows += [(part, current) for part in (folded(spans, size.width) if self.wrap else [spans])]
        if len(rows) > size.height:
            rows = rows[-size.height :] if self._answer.page.at_end else rows[: size.height]
        return rows

    def render_line(self, y: int) -> Strip:
        if self._answer is not None and not self._drawn and y == 0:
            words = "no log yet" if self._answer.page.size == 0 else "no line contains that text"
            return self.draw_line([("  " + words, "faint")])
        line, current = self._drawn[y] if y < len(self._drawn) else ([], False)
        return self.draw_line([(glyphs.signs.cursor if current else " ", "accent"), *line])


def status_line(answer: LogAnswer, colours: bool) -> Line:
    """Where in the file, following or not, how many hits."""
    page, request = answer.page, answer.request
    share = 100 if page.at_end or not page.size else int(page.top * 100 / page.size)
    line: Line = [(f" {formatting.size_short(page.size)}  {share} %", "faint")]
    line.append(("  following", "ok") if request.follow else ("  end to follow", "faint"))
    if not colours:
        line.append(("  C colours", "faint"))
    if answer.note:
        line.append((f"  {answer.note}", "wait"))
    if request.text:
        part = "" if answer.searched >= 1 else f" in {answer.searched * 100:.0f} %"
        found = f"  '{request.text}': {answer.hits:,} lines{part}"
        line.append((found + ("  only these" if request.only else "  n/N next, F only these"), "accent"))
    return line


def highlighted(line: Line, text: str) -> Line:
    """The searched text set off within a line."""
    if not text:
        return line
    found: Line = []
    for words, role in line:
        looked = words.lower() if text == text.lower() else words
        at = 0
        while len(looked) == len(words) and (place := looked.find(text, at)) >= 0:
            found += [(words[at:place], role), (words[place : place + len(text)], "hit")]
            at = place + len(text)
        found.append((words[at:], role))
    return [span for span in found if span[0]]
