"""The log on the screen: follows the end, scrolls, searches and filters; every byte is read in its own thread."""

from __future__ import annotations

from collections.abc import Sequence
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
from oelm_tui.logs.emphasis import emphasised
from oelm_tui.logs.merged import Place
from oelm_tui.logs.pager import LogAnswer, LogRequest, Pager
from oelm_tui.logs.reader import LogLine
from oelm_tui.messages import Newest
from oelm_tui.snapshots.background import BackgroundThread
from oelm_tui.text import Line, fit, folded, width_of, windowed
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import LineWidget, OneLine

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

LOOK_AGAIN, SOON = 0.25, 0.05
"""Seconds between two looks at a log: as a rule, and while it is being searched or counted."""


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
            LOOK_AGAIN,
            lambda error: self.app.report_error(error),
        )

    def compose(self) -> ComposeResult:
        yield LogPage()
        yield OneLine()
        yield Field(placeholder="search; lower case finds any case", compact=True)

    def on_unmount(self) -> None:
        self.thread.close()

    # What is asked

    def open(self, *paths: Path, names: Sequence[str] = ()) -> None:
        """Shows a log from its end, following it; of several, with the names of theirs, the lines by time."""
        if self._request is None or self._request.paths != paths:
            self._answer = None
            self.query_one(LogPage).names = tuple(names)
            self._ask(LogRequest(paths, rows=self._rows))

    def pause(self) -> None:
        """Stops reading while nobody looks."""
        if self._request is not None:
            self._request = None
            self.thread.ask(LogRequest())

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
            self._ask(replace(self._request, anchor=(), delta=0, follow=False, goal=""))
        elif what == "end":
            self._ask(replace(self._request, follow=True, delta=0, goal=""))
        elif what == "search":
            field = self.query_one(Field)
            field.add_class("-shown")
            field.focus()
        elif what in ("next", "previous", "error"):
            origin = self._answer.focus if self._answer else None
            if what == "error" and self._request.goal != "error":
                origin = None  # the newest one first
            self.query_one(LogPage).to_the_left()
            self._ask(replace(self._request, anchor=self._top(), delta=0, follow=False, goal=what, origin=origin))
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
            self._show()
        elif what in ("left", "right"):
            self.query_one(LogPage).step_aside(1 if what == "right" else -1)
            self._show()

    def _top(self) -> Place:
        return self._answer.page.top if self._answer else ()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_close_search()
        if self._request is not None:
            text = event.value
            wanted = replace(self._request, text=text, only=self._request.only and bool(text), follow=not text)
            self._ask(replace(wanted, goal="previous" if text else "", anchor=None, origin=None))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Escape is the screen's own key while no search field is open."""
        return action != "close_search" or self.query_one(Field).has_class("-shown")

    def action_close_search(self) -> None:
        self.query_one(Field).remove_class("-shown")
        self.query_one(LogPage).focus()

    # What came

    def on_log_view_read(self, event: Read) -> None:
        if self._request is None or event.answer.request.paths != self._request.paths:
            return
        self._answer = event.answer
        self.thread.every = SOON if event.answer.unfinished else LOOK_AGAIN
        self._show()

    def _show(self) -> None:
        page = self.query_one(LogPage)
        page.show(self._answer)
        if self._answer is not None:
            self.query_one(OneLine).show(status_line(self._answer, self.app.settings.log_colours, page.columns))

    def on_log_page_moved_aside(self) -> None:
        self._show()

    def on_log_page_resized(self) -> None:
        self._show()
        if self._request is not None and self._request.rows != self._rows:
            self._ask(replace(self._request, rows=self._rows, delta=0))


class LogPage(LineWidget, can_focus=True):
    """The visible lines with their numbers. At the end they stand at the bottom; wrapped ones push older ones out."""

    BINDINGS = bindings("log")
    app: OelmApp

    class Resized(Message):
        pass

    class MovedAside(Message):
        """Other columns are to be shown."""

    def __init__(self) -> None:
        super().__init__()
        self.wrap = False
        self.names: tuple[str, ...] = ()
        """Of the logs, where there are several."""
        self._left = 0
        self._room = self._longest = 0
        self._answer: LogAnswer | None = None
        self._drawn: list[Line] = []

    def show(self, answer: LogAnswer | None) -> None:
        self._answer = answer
        self._drawn = self._lay_out(self.size)
        self.refresh()

    @property
    def columns(self) -> tuple[int, int, int] | None:
        """First and last column shown, and how many there are; None where all are in view."""
        if self.wrap or self._longest <= self._room:
            return None
        return self._left + 1, min(self._longest, self._left + self._room), self._longest

    def step_aside(self, by: int) -> None:
        """Half a page to the right or left, as far as the lines in view go."""
        wanted = self._left + by * max(4, self._room // 2)
        self._left = 0 if self.wrap else max(0, min(wanted, self._longest - self._room))

    def to_the_left(self) -> None:
        self._left = 0

    def on_resize(self) -> None:
        self._drawn = self._lay_out(self.size)
        self.post_message(self.Resized())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll(event, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll(event, -3)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self._scroll_aside(event, 1)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self._scroll_aside(event, -1)

    def _scroll_aside(self, event: events.MouseEvent, by: int) -> None:
        event.stop()
        self.step_aside(by)
        self.post_message(self.MovedAside())

    def _scroll(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.query_ancestor(LogView).move(lines)

    def action_log(self, what: str) -> None:
        self.query_ancestor(LogView).action_log(what)

    def _lay_out(self, size: Size) -> list[Line]:
        answer = self._answer
        if answer is None:
            return []
        numbered = max((len(str(number)) for number in answer.numbers if number is not None), default=1)
        margin = Margin(numbered if size.width >= LEAST_FOR_NUMBERS else 0, self.names, size.width)
        self._room = max(1, size.width - margin.width)
        texts = [self._text(line, answer) for line in answer.page.lines]
        self._longest = max((width_of(tuple(text)) for text in texts), default=0)
        self._left = max(0, min(self._left, self._longest - self._room))
        rows: list[Line] = []
        for line, number, text in zip(answer.page.lines, answer.numbers, texts, strict=True):
            before = margin.of(line, number, current=(line.source, line.start) == answer.focus)
            if self.wrap:
                first, *more = folded(text, self._room + 1)
                rows += [before + first, *([(" " * margin.width, ""), *part] for part in more)]
            else:
                rows.append(before + self._in_view(text))
        if len(rows) > size.height:
            rows = rows[-size.height :] if answer.page.at_end else rows[: size.height]
        return rows

    def _text(self, line: LogLine, answer: LogAnswer) -> Line:
        spans: Line = list(pieces(line.shown, glyphs.signs.ascii_only))
        if not self.app.settings.log_colours:
            spans = [(text, "") for text, _ in spans]
        spans = emphasised(spans)
        if line.left_out:
            size_of_line = formatting.size_short(line.end - line.start)
            spans.insert(0, (f"({size_of_line} in one line, its beginning) ", "faint"))
        return highlighted(spans, answer.request.text)

    def _in_view(self, text: Line) -> Line:
        """The columns in view, with a sign at each end beyond which there is more."""
        wide = width_of(tuple(text))
        if not self._left and wide <= self._room:
            return text
        before, after = self._left > 0 and wide > 0, wide > self._left + self._room
        inner = windowed(text, self._left + before, self._room - before - after)
        left: Line = [(glyphs.signs.more_left, "accent")] if before else []
        return [*left, *inner, *([(glyphs.signs.more_right, "accent")] if after else [])]

    def render_line(self, y: int) -> Strip:
        if self._answer is not None and not self._drawn and y == 0:
            words = "no log yet" if self._answer.page.size == 0 else "no line contains that text"
            return self.draw_line([("  " + words, "faint")])
        return self.draw_line(self._drawn[y] if y < len(self._drawn) else [])


class Margin:
    """What stands before a line: a sign for the one that was looked for, its number, and whose it is."""

    def __init__(self, digits: int, names: Sequence[str], width: int) -> None:
        self._digits, self._names = digits, names
        self._name = min(max(map(len, names), default=0), max(8, width // 5))
        self.width = 1 + (digits + 1 if digits else 0) + (self._name + 3 if names else 0)

    def of(self, line: LogLine, number: int | None, current: bool) -> Line:
        cells: Line = [(glyphs.signs.cursor if current else " ", "accent")]
        if self._digits:
            cells.append((f"{'~' if number is None else number:>{self._digits}} ", "axis"))
        if self._names:
            role = f"arm{line.source % len(glyphs.signs.arms)}"
            cells += [(glyphs.signs.arms[line.source % len(glyphs.signs.arms)] + " ", role)]
            name = self._names[line.source]
            if len(name) > self._name:  # runs differ at the end of their names
                name = glyphs.signs.ellipsis + name[1 - self._name :]
            cells += [*fit((name, role), self._name), (" ", "")]
        return cells


LEAST_FOR_NUMBERS = 40
"""Columns below which lines have no numbers."""


def status_line(answer: LogAnswer, colours: bool, columns: tuple[int, int, int] | None) -> Line:
    """Where in the file, following or not, which columns, how many hits."""
    page, request = answer.page, answer.request
    share = 100 if page.at_end or not page.size else int(page.share * 100)
    line: Line = [(f" {formatting.size_short(page.size)}  {share} %", "faint")]
    line.append(("  following", "ok") if request.follow else ("  end to follow", "faint"))
    if columns is not None:
        first, last, total = columns
        signs = glyphs.signs.more_left * (first > 1) + glyphs.signs.more_right * (last < total)
        line.append((f"  columns {first}-{last} of {total:,} {signs}", "key"))
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
