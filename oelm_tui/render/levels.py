"""How much is much: use, memory, heat and power of a device as a role, a word and a sign that say the same."""

from __future__ import annotations

from typing import NamedTuple

from oelm_tui import glyphs
from oelm_tui.text import Line

WARM, HOT = 75, 84
"""Degrees C. Cards slow themselves down between 83 and 95, by model."""


class Level(NamedTuple):
    role: str
    word: str = ""
    grave: bool = False

    @property
    def sign(self) -> str:
        """One column for lines without room for the word; blank where all is as usual."""
        if not self.word or self.role not in ("wait", "bad"):
            return " "
        return glyphs.signs.warn if self.grave else glyphs.signs.up


UNKNOWN = Level("faint")


def of_use(share: float | None) -> Level:
    """A busy card is what one wants; it is to be seen, not feared."""
    if share is None:
        return UNKNOWN
    if share < 0.10:
        return Level("faint", "idle")
    return Level("ok") if share < 0.75 else Level("accent", "busy")


def of_memory(share: float | None) -> Level:
    return _rising(share, 0.80, 0.95, ("high", "full"))


def of_disk(share: float | None) -> Level:
    return _rising(share, 0.90, 0.97, ("high", "full"))


def of_heat(degrees: float | None) -> Level:
    return _rising(degrees, WARM, HOT, ("warm", "hot"))


def of_power(share: float | None) -> Level:
    """Against the cap; a card at its cap is slowed down, not harmed."""
    if share is None:
        return UNKNOWN
    return Level("arm0") if share < 0.97 else Level("wait", "at its cap")


def _rising(value: float | None, high: float, highest: float, words: tuple[str, str]) -> Level:
    if value is None:
        return UNKNOWN
    if value >= highest:
        return Level("bad", words[1], grave=True)
    return Level("wait", words[0]) if value >= high else Level("arm0")


def meter(share: float | None, width: int, role: str) -> Line:
    """A bar on its track, so that one sees what is left; the unknown is a track alone."""
    filled = glyphs.bar(share, width).rstrip() if share is not None else ""
    return [(filled, role), (glyphs.signs.track * (width - len(filled)), "axis")]
