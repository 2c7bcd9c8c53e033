"""Turns what the log view wants to see into a page, in a thread: follow, move, search, hits only, the error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oelm_tui.logs.line_numbers import LineNumbers
from oelm_tui.logs.merged import MergedLogs, MergedPage, Place
from oelm_tui.logs.search import Search, TroubleSearch

SLICE_SECONDS = 0.08
"""Searching and counting give way to answering after so long; they continue in the next round."""
Spot = tuple[int, int]
"""A line: which of the logs it is in, and where it starts there."""


@dataclass(frozen=True)
class LogRequest:
    """What to show. Without a path nothing is read."""

    paths: tuple[Path, ...] = ()
    rows: int = 10
    anchor: Place | None = ()
    """Where the page begins; () is the beginning, None the end."""
    delta: int = 0
    follow: bool = True
    text: str = ""
    only: bool = False
    goal: str = ""
    """next, previous: a hit from `origin`, else from the anchor; error: the newest trouble before `origin`."""
    origin: Spot | None = None


@dataclass(frozen=True)
class LogAnswer:
    request: LogRequest
    page: MergedPage
    numbers: tuple[int | None, ...] = ()
    """Of each line of the page in its own file, from 1; None where nobody has counted so far."""
    hits: int = 0
    searched: float = 1.0
    focus: Spot | None = None
    """The line the goal was reached at."""
    note: str = ""
    unfinished: bool = False
    """Whether there is more to search or to count: the next round should come soon."""


class Pager:
    """Used by one thread; remembers the files and the search between rounds."""

    def __init__(self) -> None:
        self._logs: MergedLogs | None = None
        self._request: LogRequest | None = None
        self._forget()

    def _forget(self) -> None:
        self._searches: list[Search] = []
        self._troubles: list[TroubleSearch] = []
        self._numbers: list[LineNumbers] = []
        self._focus: Spot | None = None
        self._settled = False
        self._note = ""

    def answer(self, request: LogRequest) -> LogAnswer | None:
        """A page, or None when nothing changed since the last one."""
        if not request.paths:
            self._close()
            return None
        fresh = request is not self._request
        if self._logs is None or self._logs.paths != request.paths:
            self._close()
            self._logs = MergedLogs(request.paths)
        change = self._logs.refresh()
        if change == "restarted":
            self._forget()
            self._note = "the file was cut or replaced"
        if fresh:
            self._request, self._focus, self._settled = request, None, False
            self._troubles = self._trouble_searches(request, self._logs) if request.goal == "error" else []
        until = time.monotonic() + SLICE_SECONDS
        searching = self._continue_search(request, self._logs, until)
        counted = self._continue_counting(self._logs, 0.0 if fresh else until)
        if not fresh and change in ("same", "missing") and not (searching or counted) and self._settled:
            return None
        page = self._page(request, self._logs)
        size = max(1, self._logs.size)
        looked_at = sum(search.share * search.log.size for search in self._searches) / size
        return LogAnswer(
            request,
            page,
            tuple(self._numbers[line.source].at(line.start) for line in page.lines),
            sum(search.count for search in self._searches),
            looked_at if self._searches else 1.0,
            self._focus,
            self._note,
            not self._settled or not all(numbers.done for numbers in self._numbers),
        )

    def _continue_search(self, request: LogRequest, logs: MergedLogs, until: float) -> bool:
        """Searches for a moment; True when that changed anything."""
        if not request.text:
            self._searches = []
        elif not self._searches or self._searches[0].text != request.text:
            self._searches = [Search(log, request.text) for log in logs.files]
        working: Sequence[Search | TroubleSearch] = [*self._troubles, *self._searches]
        open_ones = [one for one in working if not one.done]
        for one in open_ones:
            while not one.done and time.monotonic() < until:
                one.step()
        return bool(open_ones)

    def _continue_counting(self, logs: MergedLogs, until: float) -> bool:
        """Counts lines for a moment, at least one slice of a file; True when that came to an end."""
        if not self._numbers:
            self._numbers = [LineNumbers(log) for log in logs.files]
        open_ones = [numbers for numbers in self._numbers if not numbers.done]
        for numbers in open_ones:
            numbers.step()
            while not numbers.done and time.monotonic() < until:
                numbers.step()
        return bool(open_ones) and all(numbers.done for numbers in self._numbers)

    def _page(self, request: LogRequest, logs: MergedLogs) -> MergedPage:
        working: Sequence[Search | TroubleSearch] = [*self._troubles, *self._searches]
        self._settled = all(one.done for one in working)
        hits = [search.hits for search in self._searches] if request.only and self._searches else None
        anchor = logs.end if request.anchor is None else request.anchor
        if hits is None and request.goal and (target := self._target(request, logs, anchor)) is not None:
            self._focus = target
            return logs.page_around(logs.place_of(*target), request.rows)
        if request.follow or request.anchor is None:
            return logs.last_page(request.rows, hits)
        return logs.page_from(anchor, request.rows, request.delta, hits)

    # Goals

    def _target(self, request: LogRequest, logs: MergedLogs, anchor: Place) -> Spot | None:
        if self._focus is not None:
            return self._focus  # reached in an earlier round; later finds do not move it
        if request.goal == "error":
            return self._trouble(request, logs)
        if not self._searches:
            return None
        place = list(logs.place_of(*request.origin) if request.origin else anchor or (0,) * len(logs.files))
        if request.goal == "next" and request.origin is not None:
            place[request.origin[0]] += 1
        if request.goal == "previous":
            near = [search.before(offset) for search, offset in zip(self._searches, place, strict=True)]
        else:
            near = [search.after(offset - 1) for search, offset in zip(self._searches, place, strict=True)]
        return self._nearest(logs, near, newest=request.goal == "previous")

    def _trouble_searches(self, request: LogRequest, logs: MergedLogs) -> list[TroubleSearch]:
        place = logs.place_of(*request.origin) if request.origin else logs.end
        return [TroubleSearch(log, offset) for log, offset in zip(logs.files, place, strict=True)]

    def _trouble(self, request: LogRequest, logs: MergedLogs) -> Spot | None:
        if not all(search.done for search in self._troubles):
            share = min(search.share for search in self._troubles if not search.done)
            self._note = f"looking for an error, {share * 100:.0f} %"
            return None
        found = self._nearest(logs, [search.found for search in self._troubles], newest=True)
        older = "older " if request.origin else ""
        self._note = "" if found is not None else f"no {older}error, looked at all of it"
        return found or request.origin

    @staticmethod
    def _nearest(logs: MergedLogs, starts: Sequence[int | None], newest: bool) -> Spot | None:
        found = [(source, start) for source, start in enumerate(starts) if start is not None]
        choose = max if newest else min
        return (
            choose(found, key=lambda spot: (logs.time_of(*spot), spot[0]))
            if len(found) > 1
            else next(iter(found), None)
        )

    def _close(self) -> None:
        if self._logs is not None:
            self._logs.close()
        self._logs = self._request = None
        self._forget()
