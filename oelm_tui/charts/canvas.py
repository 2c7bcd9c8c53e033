"""A grid of dots in characters: 2 x 4 braille dots a cell, or one mark a cell where only ASCII can be shown."""

from __future__ import annotations

from oelm_tui.text import Line

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille bit of the dot in row r, column c of a cell."""
PALE = "faint"
"""The owner of what lies beneath the curves; bands have the colour of their curve, as `arm0-pale`."""


def is_pale(owner: str) -> bool:
    return owner == PALE or owner.endswith("-pale")


class Canvas:
    """Dots have an owner (a role name); the owner who drew last into a cell gives the cell its colour.

    What is drawn over something pale wipes its cell: a line must not thicken where it crosses what it smooths.
    """

    dots_across = 2
    dots_down = 4

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._bits = [[0] * width for _ in range(height)]
        self._owner: list[list[str]] = [[""] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], tuple[str, str]] = {}
        self._uprights: dict[int, tuple[str, str]] = {}

    def dot(self, x: int, y: int, owner: str) -> None:
        """x counts dots from the left, y dots from the top; outside is ignored."""
        column, row = x // self.dots_across, y // self.dots_down
        if 0 <= column < self.width and 0 <= row < self.height:
            if not is_pale(owner) and is_pale(self._owner[row][column]):
                self._bits[row][column] = 0
            self._bits[row][column] |= self._bit(x % self.dots_across, y % self.dots_down)
            self._owner[row][column] = owner

    def _bit(self, x: int, y: int) -> int:
        return _BITS[y][x]

    def column(self, x: int, y0: int, y1: int, owner: str) -> None:
        for y in range(min(y0, y1), max(y0, y1) + 1):
            self.dot(x, y, owner)

    def line(self, x0: int, y0: int, x1: int, y1: int, owner: str) -> None:
        """A straight line between two dots, as vertical runs so that steep lines stay closed."""
        if x1 == x0:
            self.column(x0, y0, y1, owner)
            return
        slope = (y1 - y0) / (x1 - x0)
        before = y0
        for x in range(x0 + 1, x1 + 1):
            here = round(y0 + slope * (x - x0))
            after = before + (1 if here > before else -1 if here < before else 0)
            self.column(x, after, here, owner)
            before = here

    def mark(self, column: int, row: int, glyph: str, owner: str) -> None:
        """A sign of its own in a cell, so that curves differ without colour."""
        if 0 <= column < self.width and 0 <= row < self.height:
            self._marks[column, row] = (glyph, owner)

    def upright(self, column: int, glyph: str, owner: str) -> None:
        """A line from top to bottom, behind everything else."""
        self._uprights[column] = (glyph, owner)

    def character(self, bits: int) -> str:
        return chr(0x2800 + bits)

    def rows(self) -> list[Line]:
        """Each row as runs of (text, owner); "" owns what is empty."""
        return [self._row(row) for row in range(self.height)]

    def _row(self, row: int) -> Line:
        runs: Line = []
        for column, bits in enumerate(self._bits[row]):
            mark = self._marks.get((column, row))
            empty = self._uprights.get(column, (" ", ""))
            text, owner = mark or ((self.character(bits), self._owner[row][column]) if bits else empty)
            if runs and runs[-1][1] == owner:
                runs[-1] = (runs[-1][0] + text, owner)
            else:
                runs.append((text, owner))
        return runs


class AsciiCanvas(Canvas):
    """One column and two rows of dots a cell: ' for the upper one, . for the lower one, : for both."""

    dots_across = 1
    dots_down = 2

    def _bit(self, x: int, y: int) -> int:
        return 1 << y

    def character(self, bits: int) -> str:
        return " '.:"[bits]
