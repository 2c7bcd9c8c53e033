"""A small random generator of our own, so that a seed gives the same text on every platform and Python version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    """SplitMix64: whole numbers only, so neither float rounding nor changes to `random.choice` can reach the text."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """A whole number below 2**64."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        return self.next() % limit

    def percent(self, chance: int) -> bool:
        """True in `chance` of 100 throws."""
        return self.below(100) < chance

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def pick_several(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different options in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(count)]
