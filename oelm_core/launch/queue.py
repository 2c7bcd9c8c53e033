"""The queue: runs that want devices take them in the order they came, all they need or none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec import Struct, field

from oelm_core.errors import refusing
from oelm_core.launch import lease
from oelm_core.launch.shared_folder import check_locks, shared_folder
from oelm_core.runs import process
from oelm_core.runs.folder import replace_file
from oelm_core.runs.schema import encode

SECONDS_FOR_A_RUNNER = 10.0
"""A ticket the launcher drew counts for so long without a runner behind it."""


class Ticket(Struct):
    """One run's place in the queue, as its file says. The name of the file orders the queue."""

    run: str = ""
    requested: str = field(name="asked", default="auto")
    """As asked for on the command line: auto, cpu, or 2,3."""
    cards: int = 1
    """How many devices it needs if it gets cards ..."""
    cores: int = 1
    """... and how many if it gets processor cores."""
    beside: str | None = None
    """Folder of the run on whose devices it wants to run, if any."""
    needs: int = 1
    allowed: tuple[str, ...] | None = None
    """Devices it may take, in order of preference; None until its runner has looked at the machine."""
    boot_id: str | None = None
    boot_time: float | None = None
    drawn: float = 0.0
    """When the launcher drew it, in seconds since boot."""
    pid: int | None = None
    started: float | None = None

    @property
    def is_live(self) -> bool:
        """Whether it still stands for somebody: a living runner, or one that may yet come up."""
        if self.boot_id != process.boot_id():
            return False
        if self.pid is None:
            return process.since_boot() - self.drawn < SECONDS_FOR_A_RUNNER
        return process.is_alive(self.pid, self.started, self.boot_time)


def queue_dir() -> Path:
    return shared_folder(lease.lease_dir() / "line")


def draw(run: str, requested: str, cards: int, cores: int, beside: str | None = None, at: float | None = None) -> Path:
    """A new ticket; its name orders the queue. It counts seconds since boot, so setting the clock cannot jump it."""
    check_locks(lease.lease_dir())
    now = process.since_boot()
    path = queue_dir() / f"{int((now if at is None else at) * 1e6):018d}-{os.urandom(2).hex()}-{run}"
    _write(path, Ticket(run, requested, cards, cores, beside, boot_id=process.boot_id(), drawn=round(now, 2)))
    return path


def read(ticket: Path) -> Ticket:
    return lease.read_line(ticket, Ticket) or Ticket()


def join(path: Path, ticket: Ticket) -> None:
    """The runner takes its place: from now on the ticket is as alive as this process."""
    me = process.me()
    ticket.boot_id, ticket.boot_time, ticket.pid, ticket.started = me.boot_id, me.boot_time, me.pid, me.started
    _write(path, ticket)
    announce()


def leave(ticket: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(ticket)
    announce()


def ahead_of(ticket: Path) -> dict[Path, Ticket]:
    """Live tickets before this one, first come first; this one is the last."""
    found: dict[Path, Ticket] = {}
    for name in sorted(os.listdir(ticket.parent)):
        if name.startswith(".") or name > ticket.name:
            continue
        path = ticket.parent / name
        record = lease.read_line(path, Ticket)
        if path == ticket:
            found[path] = record or Ticket()
        elif record is None:
            continue
        elif not record.is_live:
            with contextlib.suppress(OSError):  # the sticky folder lets us tidy up our own only
                os.unlink(path)
        elif not process.is_frozen(record.pid or 0):  # a frozen runner must not hold up the whole queue
            found[path] = record
    return found


def shares(tickets: dict[Path, Ticket], free: list[str]) -> dict[Path, list[str] | None]:
    """Who may take what of the free devices, in order; None where it is not enough yet.

    What an earlier run could use but cannot start with is kept for it, so that a run wanting two devices is not
    overtaken for ever by runs wanting one.
    """
    left = list(free)
    granted: dict[Path, list[str] | None] = {}
    for path, ticket in tickets.items():
        usable = [device for device in ticket.allowed or () if device in left]
        enough = len(usable) >= ticket.needs
        taken = usable[: ticket.needs] if enough else usable
        left = [device for device in left if device not in taken]
        granted[path] = taken if enough else None
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


def _write(path: Path, ticket: Ticket) -> None:
    with refusing(f"cannot queue in {path.parent}"):
        replace_file(path, encode(ticket) + b"\n", durable=False, mode=0o644)  # all who wait read it
