"""Reads pages of a log of any size by position: a gigabyte opens on its last page, a line of 100 MB shows its end.

Nothing is indexed. Lines are found by looking for newlines around a byte offset, through a few cached blocks read with
pread: unlike a memory map, a file cut short under us gives a short read instead of a bus error.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oelm_core.small_files import open_plain_file
from oelm_tui.logs.clean import fold, plain

BLOCK = 256 * 1024
ROWS_AT_ONCE = 500
SHOWN = 16 * 1024
"""At most so many bytes of one line are shown."""


@dataclass(frozen=True)
class LogLine:
    """One line of the file: [start, end) without its newline, folded to what a terminal would show."""

    start: int
    end: int
    shown: bytes
    left_out: int = 0
    """Bytes of a very long line that are not shown."""
    source: int = 0
    """Which of several logs it is of."""


@dataclass(frozen=True)
class TextPage:
    """Lines in file order, and where they are in the file."""

    lines: tuple[LogLine, ...]
    size: int
    at_end: bool

    @property
    def top(self) -> int:
        return self.lines[0].start if self.lines else 0


class LogFile:
    """One log. `refresh` first, then ask for pages; all offsets are bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.written = 0.0
        """When it last changed, epoch seconds."""
        self._handle: int | None = None
        self._identity: tuple[int, int] | None = None
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._head = b""

    def refresh(self) -> str:
        """Looks at the file again: "missing", "same", "grown" or "restarted" (rotated, truncated or rewritten)."""
        try:
            status = os.stat(self.path)
        except OSError:
            was_there = self._handle is not None
            self.close()
            return "missing" if not was_there else "restarted"
        identity, self.written = (status.st_dev, status.st_ino), status.st_mtime
        if self._handle is None or identity != self._identity:
            first = self._identity is None
            self.close()
            try:
                self._handle = open_plain_file(self.path)
            except OSError:
                return "missing"
            self._identity, self.size = identity, status.st_size
            self._head = self._read(0, min(64, self.size))
            return "grown" if first else "restarted"
        if status.st_size < self.size or self._read(0, len(self._head)) != self._head:
            self._blocks.clear()
            self.size = status.st_size
            self._head = self._read(0, min(64, self.size))
            return "restarted"
        if status.st_size == self.size:
            return "same"
        self._blocks.pop(self.size // BLOCK, None)  # the last block was short
        self.size = status.st_size
        if len(self._head) < 64:
            self._head = self._read(0, min(64, self.size))
        return "grown"

    def close(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle, self.size = None, 0
        self._blocks.clear()

    def last_page(self, rows: int) -> TextPage:
        return self._page(self.lines_before(self.size, rows))

    def page_from(self, offset: int, rows: int, delta: int = 0) -> TextPage:
        """Rows lines from the line at `offset`, moved by `delta` lines; never past the last page."""
        start = self.line_start(min(offset, self.size))
        if delta < 0:
            before = self.lines_before(start, -delta)
            start = before[0].start if before else 0
        elif delta > 0:
            skipped = self.lines_from(start, delta + 1)
            start = skipped[-1].start if skipped else start
        lines = self.lines_from(start, rows)
        if len(lines) < rows:
            return self.last_page(rows)
        return self._page(lines)

    def lines_at(self, starts: list[int]) -> list[LogLine]:
        return [self._line(start, self.end_of(start)) for start in starts]

    def line_start(self, offset: int) -> int:
        return self._newline_before(offset) + 1

    def bytes_at(self, offset: int, count: int) -> bytes:
        """Raw bytes, for searching."""
        return self._read(offset, min(count, self.size - offset))

    def _page(self, lines: list[LogLine]) -> TextPage:
        at_end = not lines or lines[-1].end >= self.size - 1
        return TextPage(tuple(lines), self.size, at_end)

    def lines_before(self, offset: int, count: int) -> list[LogLine]:
        """Up to `count` whole lines that end at or before `offset` (a line's start, or the end of the file)."""
        lines: list[LogLine] = []
        end = offset
        if end and self._byte(end - 1) == b"\n":
            end -= 1
        elif not end:
            return []
        while len(lines) < count:
            start = self._newline_before(end) + 1
            lines.append(self._line(start, end))
            if start == 0:
                break
            end = start - 1
        return lines[::-1]

    def lines_from(self, offset: int, count: int) -> list[LogLine]:
        lines: list[LogLine] = []
        start = offset
        while len(lines) < count and start < self.size:
            end = self.end_of(start)
            lines.append(self._line(start, end))
            start = end + 1
        return lines

    def _line(self, start: int, end: int) -> LogLine:
        if end - start <= SHOWN:
            return LogLine(start, end, fold(self._read(start, end - start)))
        tail = self._read(end - SHOWN, SHOWN)
        last_state = fold(tail)
        if len(last_state) < len(tail.rstrip(b"\r\n")):  # a progress bar: only its last state counts
            return LogLine(start, end, last_state)
        return LogLine(start, end, self._read(start, SHOWN), end - start - SHOWN)

    def _newline_before(self, offset: int) -> int:
        """Position of the last newline before `offset`, or -1."""
        while offset > 0:
            number = (offset - 1) // BLOCK
            found = self._block(number).rfind(b"\n", 0, offset - number * BLOCK)
            if found >= 0:
                return number * BLOCK + found
            offset = number * BLOCK
        return -1

    def end_of(self, start: int) -> int:
        """Position of the newline that ends the line, or the file's end."""
        at = start
        while at < self.size:
            number = at // BLOCK
            found = self._block(number).find(b"\n", at - number * BLOCK)
            if found >= 0:
                return number * BLOCK + found
            at = (number + 1) * BLOCK
        return self.size

    def _byte(self, offset: int) -> bytes:
        block = self._block(offset // BLOCK)
        return block[offset % BLOCK : offset % BLOCK + 1]

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            block = self._read(number * BLOCK, min(BLOCK, self.size - number * BLOCK))
            self._blocks[number] = block
            while len(self._blocks) > 4:
                self._blocks.popitem(last=False)
        return block

    def _read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes; fewer when the file was cut under us."""
        if self._handle is None or count <= 0:
            return b""
        try:
            return os.pread(self._handle, count, offset)
        except OSError:
            return b""


def tail_bytes(
    path: Path, rows: int, *, follow: bool, ended: Callable[[], bool], pause: float = 0.3
) -> Iterator[bytes]:
    """The file from its last `rows` lines on, byte for byte; with `follow` what is added, until `ended` says so."""
    log = LogFile(path)
    log.refresh()
    page = log.last_page(rows) if rows else TextPage((), log.size, True)
    position, last_look = page.top if page.lines else log.size, not follow
    while True:
        while position < log.size and (piece := log.bytes_at(position, BLOCK)):
            yield piece
            position += len(piece)
        if last_look:
            return
        last_look = ended()
        if not last_look:
            time.sleep(pause)
        if log.refresh() == "restarted":
            position = 0


def tail(path: Path, rows: int, *, follow: bool, ended: Callable[[], bool], pause: float = 0.3) -> Iterator[str]:
    """The last `rows` lines; with `follow`, whole new lines as they come until `ended` says so and nothing is left."""
    log = LogFile(path)
    log.refresh()
    page = log.last_page(rows) if rows else TextPage((), log.size, True)
    yield from (plain(line.shown) for line in page.lines)
    position = page.lines[-1].end + 1 if page.lines else log.size
    while follow:
        last_look = ended()
        if log.refresh() == "restarted":
            position = 0
        while position < log.size:
            page = log.page_from(position, ROWS_AT_ONCE)
            fresh = tuple(line for line in page.lines if line.start >= position and line.end < log.size)
            if not fresh:
                break
            yield from (plain(line.shown) for line in fresh)
            position = fresh[-1].end + 1
        if last_look:
            return
        time.sleep(pause)
