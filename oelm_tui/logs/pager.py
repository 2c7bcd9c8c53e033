"""Turns what the log view wants to see into a page, in a thread: follow, move, search, hits only, the error."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from oelm_tui.logs.reader import LogFile, TextPage
from oelm_tui.logs.search import Search, last_trouble

SLICE_SECONDS = 0.08
"""Searching gives way to answering after so long; it continues in the next round."""


@dataclass(frozen=True)
class LogRequest:
    """What to show. Without a path nothing is read."""

    path: Path | None
    rows: int = 10
    anchor: int = 0
    delta: int = 0
    follow: bool = True
    text: str = ""
    only: bool = False
    goal: str = ""
    """next, previous: a hit from the anchor; error: the newest trouble."""


@dataclass(frozen=True)
class LogAnswer:
    request: LogRequest
    page: TextPage
    hits: int = 0
    searched: float = 1.0
    focus: int | None = None
    """Start of the line the goal was reached at."""
    note: str = ""


class Pager:
    """Used by one thread; remembers the file and the search between rounds."""

    def __init__(self) -> None:
        self._log: LogFile | None = None
        self._search: Search | None = None
        self._request: LogRequest | None = None
        self._focus: int | None = None
        self._settled = False
        self._note = ""

    def answer(self, request: LogRequest) -> LogAnswer | None:
        """A page, or None when nothing changed since the last one."""
        if request.path is None:
            self._close()
            return None
        fresh = request is not self._request
        if self._log is None or self._log.path != request.path:
            self._close()
            self._log = LogFile(request.path)
        change = self._log.refresh()
        if change == "restarted":
            self._search, self._note = None, "the file was cut or replaced"
        searching = self._continue_search(request, change)
        if fresh:
            self._request, self._focus, self._settled = request, None, False
        if not fresh and change in ("same", "missing") and not searching and self._settled:
            return None
        page = self._page(request, self._log)
        search = self._search
        return LogAnswer(
            request, page, search.count if search else 0, search.share if search else 1.0, self._focus, self._note
        )

    def _continue_search(self, request: LogRequest, change: str) -> bool:
        """Searches for a moment; True when that changed anything."""
        assert self._log is not None
        if not request.text:
            self._search = None
            return False
        if self._search is None or self._search.text != request.text:
            self._search = Search(self._log, request.text)
        if self._search.done:
            return False
        until = time.monotonic() + SLICE_SECONDS
        while not self._search.done and time.monotonic() < until:
            self._search.step()
        return True

    def _page(self, request: LogRequest, log: LogFile) -> TextPage:
        self._settled = self._search is None or self._search.done
        if request.only and self._search is not None:
            return self._only_hits(request, log, self._search)
        if request.goal and (target := self._target(request, log)) is not None:
            self._focus = target
            return log.page_around(target, request.rows)
        if request.follow:
            return log.last_page(request.rows)
        if request.goal and request.anchor >= log.size:
            return log.last_page(request.rows)
        return log.page_from(request.anchor, request.rows, 0 if self._focus else request.delta)

    def _target(self, request: LogRequest, log: LogFile) -> int | None:
        if request.goal == "error":
            found = last_trouble(log)
            self._note = "" if found is not None else "no error in the last 8 MB"
            return found
        if self._search is None:
            return None
        if self._focus is not None:
            return self._focus  # reached in an earlier round; later finds do not move it
        near = self._search.before if request.goal == "previous" else self._search.after
        return near(min(request.anchor, log.size + 1))

    def _only_hits(self, request: LogRequest, log: LogFile, search: Search) -> TextPage:
        hits = search.hits
        if request.follow:
            first = len(hits) - request.rows
        else:
            first = sum(hit < request.anchor for hit in hits) + request.delta
        first = max(0, min(first, len(hits) - request.rows))
        lines = log.lines_at(hits[first : first + request.rows])
        return TextPage(tuple(lines), log.size, first + request.rows >= len(hits))

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._search = self._request = self._focus = None
        self._note = ""
