"""A GPU: the one type that NVML's reader fills in, the runner's probe sends, and launcher, commands and screen show."""

from __future__ import annotations

from msgspec import Struct


class CardProcess(Struct, frozen=True):
    """A process on a card; another user's details may be hidden."""

    pid: int
    memory: int | None = None
    user: str | None = None
    command: str | None = None
    run: str | None = None
    """Id of the run of ours it belongs to."""


class Card(Struct, frozen=True):
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
    processes: tuple[CardProcess, ...] = ()
    lease: str | None = None
    """Id of the run that holds it."""

    @property
    def label(self) -> str:
        """The number as people write it: 2, or 2:0 for the first MIG instance on it."""
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig}"
