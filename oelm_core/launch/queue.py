"""The waiting line: runs that want devices take them in the order they came, all they need or none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from oelm_core.errors import Refused
from oelm_core.launch import lease
from oelm_core.runs import process

SECONDS_FOR_A_RUNNER = 10.0
"""A ticket the launcher drew counts for so long without a runner behind it."""


class Ticket(NamedTuple):
    """One run's place in the line."""

    path: Path
    run: str
    asked: str
    """As asked for on the command line: auto, cpu, or 2,3."""
    needs: int
    """How many devices it needs."""
    allowed: tuple[str, ...] | None
    """Devices it may take, in order of preference; None until its runner has looked at the machine."""
    cards: int
    """How many it would need if it got cards ..."""
    cores: int
    """... and how many if it got processor cores."""
    beside: str | None
    """Folder of the run on whose devices it wants to run, if any."""


def line_dir() -> Path:
    return lease.shared_folder(lease.lease_dir() / "line")


def draw(run: str, asked: str, cards: int, cores: int, beside: str | None = None, at: float | None = None) -> Path:
    """A new ticket; its name orders the line. It counts seconds since boot, so setting the clock cannot jump it."""
    now = process.since_boot()
    path = line_dir() / f"{int((now if at is None else at) * 1e6):018d}-{os.urandom(2).hex()}-{run}"
    content = {"run": run, "asked": asked, "cards": cards, "cores": cores, "beside": beside}
    _write(path, {**content, "boot_id": process.boot_id(), "drawn": round(now, 2)})
    return path


def stand(ticket: Path, **known: Any) -> None:
    """The runner takes its stand: from now on the ticket is as alive as this process. `known` fills in its fields."""
    me = process.me()
    content = {**lease.read_record(ticket), **known}
    _write(ticket, {**content, **{key: me[key] for key in ("boot_id", "boot_time", "pid", "started")}})
    announce()


def leave(ticket: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(ticket)
    announce()


def ahead_of(ticket: Path) -> list[Ticket]:
    """Live tickets before this one, first come first; this one is the last of the list."""
    tickets = []
    for name in sorted(os.listdir(ticket.parent)):
        if name.startswith(".") or name > ticket.name:
            continue
        path = ticket.parent / name
        record = lease.read_record(path)
        if path == ticket or is_live(record):
            if path == ticket or not process.is_frozen(record.get("pid") or 0):
                tickets.append(_parse(path, record))  # a frozen runner must not hold up the whole line
        elif record:
            with contextlib.suppress(OSError):  # the sticky folder lets us tidy up our own only
                os.unlink(path)
    return tickets


def shares(tickets: list[Ticket], free: list[str]) -> dict[Path, list[str] | None]:
    """Who may take what of the free devices, in order; None where it is not enough yet.

    What an earlier run could use but cannot start with is kept for it, so that a run wanting two devices is not
    overtaken for ever by runs wanting one.
    """
    left = list(free)
    granted: dict[Path, list[str] | None] = {}
    for ticket in tickets:
        usable = [device for device in ticket.allowed or () if device in left]
        enough = len(usable) >= ticket.needs
        taken = usable[: ticket.needs] if enough else usable
        left = [device for device in left if device not in taken]
        granted[ticket.path] = taken if enough else None
    return granted


def announce() -> None:
    """Tells those who wait that something changed."""
    with contextlib.suppress(Exception):
        descriptor = lease.open_shared(lease.lease_dir() / "changed")
        os.utime(descriptor)
        os.close(descriptor)


def last_change() -> int:
    """A mark that moves with every announcement."""
    try:
        return os.stat(lease.lease_dir() / "changed").st_mtime_ns
    except OSError:
        return 0


def is_live(record: dict[str, Any]) -> bool:
    """Whether a ticket still stands for somebody: a living runner, or one that may yet come up."""
    if record.get("boot_id") != process.boot_id():
        return False
    if record.get("pid") is None:
        return bool(process.since_boot() - float(record.get("drawn", 0)) < SECONDS_FOR_A_RUNNER)
    return process.is_alive(record["pid"], record.get("started"), record.get("boot_time"))


def _parse(path: Path, record: dict[str, Any]) -> Ticket:
    allowed = record.get("allowed")
    return Ticket(
        path=path,
        run=str(record.get("run")),
        asked=str(record.get("asked")),
        needs=int(record.get("needs", 1)),
        allowed=None if allowed is None else tuple(map(str, allowed)),
        cards=int(record.get("cards", 1)),
        cores=int(record.get("cores", 1)),
        beside=record.get("beside"),
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            lease.write_record(descriptor, content)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except OSError as error:
        raise Refused(f"cannot stand in line in {path.parent}: {error.strerror}.") from None
