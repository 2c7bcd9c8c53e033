"""Cards on which a run ended with a fault of the card: kept from the queue until somebody trusts them, or a reboot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from oelm_core.errors import Refused
from oelm_core.launch import lease
from oelm_core.runs import process
from oelm_core.runs.schema import Outcome


class Suspicion(Struct):
    """What a `.suspect` file says, beside the card's lease: why the card is not handed out."""

    boot_id: str | None = None
    t: float = 0.0
    """When, epoch seconds."""
    run: str = ""
    user: str | None = None
    message: str = ""
    trusted_by: str | None = None
    """Who took the suspicion back. The file stays: in a sticky folder only its owner could remove it."""


def mark(device: str, run: str, message: str, folder: Path | None = None) -> None:
    """A card that a run failed on. A disk that cannot take it loses the mark, never the run's end."""
    record = Suspicion(process.boot_id(), round(time.time(), 3), run, process.user_name(), message)
    with contextlib.suppress(OSError, Refused):
        _write(device, record, folder)


def suspicion(device: str, folder: Path | None = None) -> Suspicion | None:
    """Why a card is not handed out; None where it may be, as after a reboot, which resets cards."""
    found = lease.read_line(_path(device, folder), Suspicion)
    return found if found and found.boot_id == process.boot_id() and not found.trusted_by else None


def trust(device: str, folder: Path | None = None) -> bool:
    """Hands a card out again; False where it was not suspect."""
    found = suspicion(device, folder)
    if found is None:
        return False
    found.trusted_by = process.user_name()
    try:
        _write(device, found, folder)
    except OSError as error:
        raise Refused(f"cannot write {_path(device, folder)}: {error.strerror}.") from None
    return True


def failed_cards(said: Mapping[int, Outcome], cards: Sequence[str]) -> list[str]:
    """Of a run's cards in the order of its ranks those whose rank spoke of a fault; all of them where none did."""
    named = [cards[rank] for rank, one in said.items() if one.reason == "gpu_fault" and rank < len(cards)]
    return named or list(cards)


def why(label: str, found: Suspicion) -> str:
    """For who waits: what happened on the card called `label`, and how it is handed out again."""
    when = time.strftime("%H:%M", time.localtime(found.t))
    return f"GPU {label} is suspect since run {found.run} failed on it at {when} (`oelm gpus --trust {label}`)"


def _write(device: str, record: Suspicion, folder: Path | None) -> None:
    descriptor = lease.open_shared(_path(device, folder))
    try:
        lease.write_line(descriptor, record)
    finally:
        os.close(descriptor)


def _path(device: str, folder: Path | None) -> Path:
    return (folder or lease.lease_dir()) / f"{device}.suspect"
