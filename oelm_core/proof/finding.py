"""What a check says: whether it holds, what it measured, and against which bound."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Finding(NamedTuple):
    ok: bool | None
    """None: it has no meaning on this device."""
    measured: str
    bound: str = ""
    fix: str = ""
    """Where what was found says more than the check's own advice."""
    figures: dict[str, float] = {}


NOT_ON_A_CPU = "not on a CPU"


class RanksSaid(Struct):
    """What rank 0 of `rank_work` prints."""

    without: list[tuple[int, int]] = []
    """Pairs of cards where the first cannot reach the second's memory."""
    wrong: int = 0
    """Sums that came out wrong on some rank."""
    latency: float = 0.0
    """Seconds of a sum of a few numbers."""
    bandwidth: float = 0.0
    """Bytes summed a second, of large sums."""
