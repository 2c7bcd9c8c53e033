"""A GPU: the one type that NVML's reader fills in, the runner's probe sends, and launcher, commands and screen show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class CardProcess(Struct, frozen=True):
    """A process on a card; another user's details may be hidden."""

    pid: int
    memory: int | None = None
    user: str | None = None
    command: str | None = None
    run: str | None = None
    """Id of the run of ours it belongs to."""
    started: float | None = None
    """Epoch seconds; with the pid it names one process, however often pids come round."""
    mine: bool = False
    """Whether it belongs to who is asking."""
    holds_card: bool | None = None
    """Whether it has a card open, asked of one's own alone: in a container the driver may say another's pid."""


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
    suspect: str | None = None
    """What a run that failed on it said: it is not handed out until `oelm gpus --trust`."""
    power_limit: float | None = None
    """Watts it may draw, as enforced now."""

    @property
    def label(self) -> str:
        """The number as people write it: 2, or 2:0 for the first MIG instance on it."""
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig}"

    @property
    def memory_free(self) -> int | None:
        return None if self.memory_used is None or self.memory_total is None else self.memory_total - self.memory_used

    @property
    def memory_share(self) -> float | None:
        return self.memory_used / self.memory_total if self.memory_used is not None and self.memory_total else None


def device_kind(devices: Sequence[str]) -> str:
    """cpu or gpu, by the names in a run's `devices`; "" before it has any."""
    if not devices:
        return ""
    return "cpu" if devices[0].startswith("cpu") else "gpu"


def short_devices(devices: Sequence[str]) -> str:
    """The processor, whichever cores, is cpu; cards by their numbers, or the first letters of their UUIDs.

    >>> short_devices(["cuda:2", "GPU-abcdef12"]), short_devices(["cpu:0-3"])
    ('2,abcd', 'cpu')
    """
    if device_kind(devices) == "cpu":
        return "cpu"
    return ",".join(name[4:8] if name.startswith("GPU-") else name.removeprefix("cuda:") for name in devices)
