"""What one card says of itself: the part that NVML's card and the snapshot's GPU have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """One card, or one MIG instance on it: percent, bytes, degrees C, watts. None where the card does not say."""

    index: int
    uuid: str | None = None
    name: str | None = None
    utilisation: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature: int | None = None
    power: float | None = None
    throttled: bool | None = None
    error: str | None = None
    """Why something could not be read, in a sentence."""
    mig: int | None = None
    """Number of the MIG instance on the card; None for a whole card."""
    is_mig_parent: bool = False
    """Divided into MIG instances, which are listed after it and used in its place."""
