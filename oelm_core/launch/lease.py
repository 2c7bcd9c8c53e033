"""One lease per device, on node-local disk: free only when unlocked and everybody written in it is dead."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from oelm_core.errors import Refused
from oelm_core.launch.shared_folder import no_locks, shared_folder, without_locks
from oelm_core.runs import process
from oelm_core.runs.schema import Misfit, Worker, convert, decode, encode
from oelm_core.small_files import MOST_BYTES, open_plain_file

S = TypeVar("S")


def lease_dir() -> Path:
    """Shared by all users of this machine, sticky like /tmp: `$OELM_LEASES`, else /tmp/oelm-leases."""
    return shared_folder(Path(os.environ.get("OELM_LEASES") or "/tmp/oelm-leases"))


def open_shared(path: Path) -> int:
    """Opens a file any user may write, making it if need be.

    Opened first without O_CREAT: in a sticky folder the kernel refuses O_CREAT on a file of somebody else.
    """
    for _ in range(3):
        for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL):
            try:
                descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except (FileNotFoundError, FileExistsError):
                continue
            except OSError as error:
                whose = f"it belongs to {owner}, who" if (owner := _owner(path)) else "its owner"
                raise Refused(
                    f"cannot open {path}: {error.strerror}; {whose} must allow everybody to write (chmod 666)."
                ) from None
            if flags & os.O_CREAT:
                os.fchmod(descriptor, 0o666)
            return descriptor
    raise Refused(f"cannot make {path}: it appears and disappears.")


def read_line(path: Path, kind: type[S]) -> S | None:
    """The first line of a shared file; None where there is none. What follows it is a longer, older record.

    A key that does not fit counts as missing: the others still tell who lives.
    """
    try:
        with open(open_plain_file(path), "rb") as file:
            return _parsed(file.readline(MOST_BYTES["record"]), kind)
    except OSError:
        return None


def _parsed(line: bytes, kind: type[S]) -> S | None:
    try:
        content = decode(line, dict[str, Any])
        while True:
            try:
                return convert(content, kind)
            except Misfit as misfit:
                key = re.split(r"[.[]", misfit.key)[0]
                if key not in content:
                    raise
                del content[key]
    except Misfit:
        return None


def _owner(path: Path) -> str | None:
    try:
        return process.name_of(os.lstat(path).st_uid)
    except OSError:
        return None


def write_line(descriptor: int, record: Any) -> None:
    """Replaces the record in place (a sticky folder forbids renaming over another user's file): one write, then cut."""
    line = encode(record) + b"\n"
    os.pwrite(descriptor, line, 0)
    os.ftruncate(descriptor, len(line))


class LeaseRecord(Struct):
    """What a lease file says: who holds the device, or since when nobody does (in seconds since boot)."""

    boot_id: str | None = None
    boot_time: float | None = None
    host: str | None = None
    run: str | None = None
    user: str | None = None
    since: float | None = None
    pids: list[Worker] = []
    """Every process that uses the device, the runner first."""
    released: float | None = None

    @property
    def is_held(self) -> bool:
        if self.boot_id != process.boot_id():
            return False
        return any(process.is_alive(one.pid, one.started, self.boot_time) for one in self.pids)

    @property
    def may_be_hidden(self) -> bool:
        """Whether a process of it is there that this user is not shown (/proc with hidepid)."""
        return self.boot_id == process.boot_id() and any(process.is_hidden(one.pid) for one in self.pids)

    @property
    def holder_name(self) -> str | None:
        """Whose run it is: by whom the processes are, for the record says only what its writer was told."""
        for one in self.pids:
            if process.is_alive(one.pid, one.started, self.boot_time) and (name := process.owner(one.pid)):
                return name
        return self.user


class Lease:
    """A device held by this process until released, or until the last of its recorded processes is dead."""

    def __init__(self, device: str, path: Path, descriptor: int, record: LeaseRecord, previous: LeaseRecord) -> None:
        self.device = device
        self.path = path
        self.descriptor = descriptor
        self.previous = previous
        """The record of whoever held it before."""
        self._record = record

    def record(self, workers: list[Worker]) -> None:
        """Writes down every process that uses the device; the runner is always among them."""
        runner = self._record.pids[0]
        pids = [runner, *(one for one in workers if one.pid != runner.pid)]
        if pids != self._record.pids:
            self._record.pids = pids
            with contextlib.suppress(OSError):  # a full disk must not end the run; the lock still holds
                write_line(self.descriptor, self._record)

    def refresh(self) -> None:
        """Keeps the file young, so that no cleaner of /tmp takes it for forgotten."""
        with contextlib.suppress(OSError):
            os.utime(self.descriptor)

    def release(self) -> None:
        over = LeaseRecord(boot_id=process.boot_id(), released=round(process.since_boot(), 2), run=self._record.run)
        with contextlib.suppress(OSError):
            write_line(self.descriptor, over)
        with contextlib.suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # not only close: the worker may have inherited it
            os.close(self.descriptor)


def take(device: str, run: str, folder: Path | None = None) -> Lease | None:
    """The lease of a device, or None while somebody has it."""
    path = lease_path(device, folder)
    descriptor = open_shared(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # from the locked file itself: what cannot be read is no free device
        before = _parsed(os.pread(descriptor, 1 << 20, 0).partition(b"\n")[0], LeaseRecord) or LeaseRecord()
        same_file = os.fstat(descriptor).st_ino == os.stat(path).st_ino
        if not same_file or before.is_held:
            os.close(descriptor)
            return None
        me = process.me()
        record = LeaseRecord(
            boot_id=me.boot_id,
            boot_time=me.boot_time,
            host=me.host,
            run=run,
            user=process.user_name(),
            since=round(process.since_boot(), 2),
            pids=[process.identity(os.getpid())],
        )
        write_line(descriptor, record)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.ENOENT):
            return None
        problem = without_locks(error)
        raise Refused(
            no_locks(path.parent, problem) if problem else f"cannot write {path}: {error.strerror}."
        ) from None
    return Lease(device, path, descriptor, record, before)


def holder(device: str, folder: Path | None = None) -> LeaseRecord | None:
    """Who holds a device, judged without touching its lock where its processes can be seen; None when nobody does."""
    path = lease_path(device, folder)
    record = read_line(path, LeaseRecord)
    if record is None or record.is_held:
        return record
    return record if record.may_be_hidden and _is_locked(path) else None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def lease_path(device: str, folder: Path | None = None) -> Path:
    return (folder or lease_dir()) / f"{device}.lease"
