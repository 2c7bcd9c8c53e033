"""Numbers of lines in a log of any size: newlines are counted in slices, from the start, while the page is shown."""

from __future__ import annotations

from array import array

from oelm_tui.logs.reader import LogFile

SLICE = 1024 * 1024


class LineNumbers:
    """Grows by `step` until `done`. Remembers the count at every slice, so that a place costs one slice to number."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self._counts: array[int] = array("Q", [0])  # newlines before each whole slice

    @property
    def _whole(self) -> int:
        """Bytes in the slices that are counted; a last one that is not full may still grow."""
        return (len(self._counts) - 1) * SLICE

    @property
    def done(self) -> bool:
        return self.log.size - self._whole < SLICE

    def step(self) -> None:
        """Counts one slice more."""
        if not self.done:
            piece = self.log.bytes_at(self._whole, SLICE)
            self._counts.append(self._counts[-1] + piece.count(b"\n"))

    def at(self, offset: int) -> int | None:
        """The number of the line that starts there, from 1; None while nobody has counted so far."""
        slice_number = offset // SLICE
        if slice_number >= len(self._counts):
            return None
        start = slice_number * SLICE
        return self._counts[slice_number] + self.log.bytes_at(start, offset - start).count(b"\n") + 1
