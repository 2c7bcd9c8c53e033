"""The logs of one run or of several as one text, in the order of time.

A place in it is an offset in each file. One line on, the file whose next line is oldest goes on; one line back, the
file whose last line is newest goes back. So nothing is read but what is shown, whatever the files' sizes. A line's time
is its stamp, as our workers and Python's logging write it; one without belongs to the last line before it that has one.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from oelm_tui.logs.reader import LogFile, LogLine

Place = tuple[int, ...]
"""An offset in each file: what is before them has been read."""
_STAMP = re.compile(rb"\W{0,2}(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d+)?)")
LOOK_BACK = 400
"""Lines without a stamp (a long traceback) over which the one they belong to is looked for."""
REMEMBERED = 20_000


@dataclass(frozen=True)
class MergedPage:
    """Lines in their order, and where they are."""

    lines: tuple[LogLine, ...]
    top: Place
    size: int
    at_end: bool

    @property
    def share(self) -> float:
        """How much of all files is before it."""
        return sum(self.top) / self.size if self.size else 1.0


@dataclass
class _Track:
    """The lines of one file that are walked over: all, or those at `hits`."""

    log: LogFile
    hits: Sequence[int] | None = None

    def after(self, offset: int) -> LogLine | None:
        if self.hits is None:
            return next(iter(self.log.lines_from(offset, 1)), None)
        place = bisect_left(self.hits, offset)
        return self.log.lines_at([self.hits[place]])[0] if place < len(self.hits) else None

    def before(self, offset: int) -> LogLine | None:
        if self.hits is None:
            return next(iter(self.log.lines_before(offset, 1)), None)
        place = bisect_left(self.hits, offset)
        return self.log.lines_at([self.hits[place - 1]])[0] if place else None

    def is_over(self, offset: int) -> bool:
        """Whether nothing comes from there on."""
        return offset >= self.log.size if self.hits is None else bisect_left(self.hits, offset) == len(self.hits)


class MergedLogs:
    """`refresh` first, then ask for pages. With one file it is that file."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self.files = [LogFile(path) for path in paths]
        self._times: dict[tuple[int, int], bytes] = {}

    def refresh(self) -> str:
        """Missing, same, grown or restarted: the gravest of what happened to the files."""
        changes = {file.refresh() for file in self.files}
        if "restarted" in changes:
            self._times.clear()
        return next(change for change in ("restarted", "grown", "same", "missing") if change in changes)

    def close(self) -> None:
        for file in self.files:
            file.close()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def end(self) -> Place:
        return tuple(file.size for file in self.files)

    # Pages

    def last_page(self, rows: int, hits: Sequence[Sequence[int]] | None = None) -> MergedPage:
        return self.page_from(self.end, rows, -rows, hits)

    def page_from(
        self, place: Place, rows: int, delta: int = 0, hits: Sequence[Sequence[int]] | None = None
    ) -> MergedPage:
        """Rows lines from a place, moved by `delta` lines; never past the last page. With `hits` only those lines."""
        tracks = [_Track(file, hits[number] if hits is not None else None) for number, file in enumerate(self.files)]
        top = self._settled(place)
        moves = self._back(tracks, top) if delta < 0 else self._on(tracks, top)
        top = next((after for _, after in reversed([*islice(moves, abs(delta))])), top)
        found = list(islice(self._on(tracks, top), rows))
        if len(found) < rows and delta != -rows:
            return self.last_page(rows, hits)
        below = found[-1][1] if found else top
        at_end = all(track.is_over(offset) for track, offset in zip(tracks, below, strict=True))
        return MergedPage(tuple(line for line, _ in found), top, self.size, at_end)

    def page_around(self, place: Place, rows: int) -> MergedPage:
        """The line at a place a third of the way down."""
        return self.page_from(place, rows, -(rows // 3))

    def place_of(self, source: int, start: int) -> Place:
        """The place from which that line is the next."""
        if len(self.files) == 1:
            return (start,)
        when = self.time_of(source, start)
        return tuple(
            start if number == source else self._first_after(number, when, number < source)
            for number in range(len(self.files))
        )

    def _settled(self, place: Place) -> Place:
        """At starts of lines that are there: files may have been cut."""
        if len(place) != len(self.files):
            return (0,) * len(self.files)
        return tuple(
            file.size if offset >= file.size else file.line_start(offset)
            for file, offset in zip(self.files, place, strict=True)
        )

    # The walk

    def _on(self, tracks: Sequence[_Track], place: Place) -> Iterator[tuple[LogLine, Place]]:
        """Each next line, and the place after it."""
        heads = [track.after(offset) for track, offset in zip(tracks, place, strict=True)]
        yield from self._walk(heads, place, min, lambda line: line.end + 1, [track.after for track in tracks])

    def _back(self, tracks: Sequence[_Track], place: Place) -> Iterator[tuple[LogLine, Place]]:
        """Each line before, and the place it begins at."""
        heads = [track.before(offset) for track, offset in zip(tracks, place, strict=True)]
        yield from self._walk(heads, place, max, lambda line: line.start, [track.before for track in tracks])

    def _walk(
        self,
        heads: list[LogLine | None],
        place: Place,
        choose: Callable[[list[tuple[bytes, int]]], tuple[bytes, int]],
        moved: Callable[[LogLine], int],
        follow: Sequence[Callable[[int], LogLine | None]],
    ) -> Iterator[tuple[LogLine, Place]]:
        offsets = list(place)
        while True:
            ready = [
                (self.time_of(source, line.start) if len(heads) > 1 else b"", source)
                for source, line in enumerate(heads)
                if line is not None
            ]
            if not ready:
                return
            source = choose(ready)[1]
            line = heads[source]
            assert line is not None
            offsets[source] = moved(line)
            yield replace(line, source=source), tuple(offsets)
            heads[source] = follow[source](offsets[source])  # not before it is asked for: it may be very long

    # Time

    def time_of(self, source: int, start: int) -> bytes:
        """When a line was written, as bytes that sort; of the line before it that says so, else of the next."""
        known = self._times.get((source, start))
        if known is not None:
            return known
        file = self.files[source]
        passed, when, at = [start], _stamp(file.bytes_at(start, 64)), start
        while when is None and at > 0 and len(passed) < LOOK_BACK:
            at = file.line_start(at - 1)
            when = self._times.get((source, at)) or _stamp(file.bytes_at(at, 64))
            passed.append(at)
        if when is None:
            below = (_stamp(line.shown) for line in file.lines_from(start, LOOK_BACK))
            when = next((stamp for stamp in below if stamp is not None), None) or self._begun(file)
        if len(self._times) > REMEMBERED:
            self._times.clear()
        self._times.update(dict.fromkeys(((source, one) for one in passed), when))
        return when

    def _begun(self, file: LogFile) -> bytes:
        """For a file without stamps: when it was last written to."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.written)).encode()

    def _first_after(self, source: int, when: bytes, equal_is_before: bool) -> int:
        """Start of the first line of a file that comes after a time, by halves."""
        file = self.files[source]
        low, high = 0, file.size
        while low < high:
            middle = file.line_start((low + high) // 2)
            end = file.end_of(middle) + 1
            then = self.time_of(source, middle)
            if then < when or (equal_is_before and then == when):
                low = max(end, low)
            else:
                high = middle
        return min(low, file.size)


def _stamp(line: bytes) -> bytes | None:
    found = _STAMP.match(line)
    return found[1] + b" " + found[2].replace(b",", b".") if found else None
