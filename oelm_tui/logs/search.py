"""Search in a log: lines that show a text, found from the end backwards in slices, so the first hit comes at once."""

from __future__ import annotations

from array import array

from oelm_tui.logs.clean import fold
from oelm_tui.logs.reader import LogFile

SLICE = 1024 * 1024
KEPT = 200_000
"""Hits remembered by place; beyond this they are only counted."""


class Search:
    """Grows by `step` until `done`; `hits` are starts of matching lines in ascending order.

    Lower-case text matches any case. A text that only a progress bar once showed, since overwritten, does not count.
    """

    def __init__(self, log: LogFile, text: str) -> None:
        self.log = log
        self.text = text
        self._needle = text.encode("utf-8", "replace")
        self._any_case = text == text.lower()
        self._low = self._high = log.line_start(log.size)
        self._older: array[int] = array("Q")  # descending
        self._newer: array[int] = array("Q")  # ascending
        self.count = 0

    @property
    def done(self) -> bool:
        return self._low == 0 and self._high >= self.log.size

    @property
    def share(self) -> float:
        """How much of the file has been looked at."""
        return (self._high - self._low) / self.log.size if self.log.size else 1.0

    @property
    def hits(self) -> list[int]:
        return [*reversed(self._older), *self._newer]

    def step(self) -> None:
        """One slice: what was appended first, then further back."""
        if self._high < self.log.size:
            self._forward()
        elif self._low > 0:
            self._backward()

    def before(self, offset: int) -> int | None:
        """Start of the nearest matching line above `offset`."""
        return max((hit for hit in self.hits if hit < offset), default=None)

    def after(self, offset: int) -> int | None:
        return min((hit for hit in self.hits if hit > offset), default=None)

    def _forward(self) -> None:
        chunk = self.log.bytes_at(self._high, SLICE)
        whole = chunk.rfind(b"\n") + 1
        if not chunk:
            self._high = self.log.size
            return
        if not whole:  # no newline: an unfinished last line, or a piece of a very long one
            whole = len(chunk)
        for start in self._matches(chunk[:whole], self._high):
            self._keep(self._newer, start)
        self._high += whole

    def _backward(self) -> None:
        at = max(0, self._low - SLICE)
        chunk = self.log.bytes_at(at, self._low - at)
        if at > 0:
            first = chunk.find(b"\n") + 1
            if 0 < first < len(chunk):
                at, chunk = at + first, chunk[first:]
        for start in reversed(self._matches(chunk, at)):
            self._keep(self._older, start)
        self._low = at

    def _keep(self, kept: array[int], start: int) -> None:
        self.count += 1
        if len(kept) < KEPT:
            kept.append(start)

    def _matches(self, chunk: bytes, offset: int) -> list[int]:
        """Starts of the lines in chunk whose folded text contains the needle."""
        looked_at = chunk.lower() if self._any_case else chunk
        starts: list[int] = []
        at = looked_at.find(self._needle)
        while at >= 0:
            start = looked_at.rfind(b"\n", 0, at) + 1
            end = looked_at.find(b"\n", at)
            end = len(looked_at) if end < 0 else end
            if self._needle in fold(looked_at[start:end]):
                starts.append(offset + start)
            at = looked_at.find(self._needle, end)
        return starts


WINDOW = 8 * SLICE
"""Bytes in which a traceback counts for more than a later line that names an error."""
_LONG_TRACEBACK = 64 * 1024
_TRACEBACK = b"Traceback (most recent call last)"


class TroubleSearch:
    """Looks for the newest error before a place, window by window towards the start of the file."""

    def __init__(self, log: LogFile, before: int) -> None:
        self.log = log
        self._before = self._high = before
        self.found: int | None = None

    @property
    def done(self) -> bool:
        return self.found is not None or self._high <= 0

    @property
    def share(self) -> float:
        """How much of what is before the place has been looked at."""
        return 1 - self._high / self._before if self._before else 1.0

    def step(self) -> None:
        low = self.log.line_start(max(0, self._high - WINDOW))
        chunk = self.log.bytes_at(low, self._high - low)
        for sign in (_TRACEBACK, b"Error", b"error:", b"Killed"):
            at = chunk.rfind(sign)
            if at >= 0:
                self.found = low + chunk.rfind(b"\n", 0, at) + 1
                if sign != _TRACEBACK and at < _LONG_TRACEBACK:
                    self._look_above(low)
                return
        self._high = low

    def _look_above(self, low: int) -> None:
        """The error stands at the top of the window: its traceback may begin above it."""
        start = self.log.line_start(max(0, low - _LONG_TRACEBACK))
        at = self.log.bytes_at(start, low - start).rfind(_TRACEBACK)
        if at >= 0:
            self.found = self.log.line_start(start + at)


def last_trouble(log: LogFile) -> int | None:
    """Where the newest error in the end of the log starts: a traceback if there is one, else a line naming an error."""
    search = TroubleSearch(log, log.size)
    search.step()
    return search.found
