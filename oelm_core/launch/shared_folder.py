"""A folder that every user of a machine writes in: made so, or refused with whose it is and who can change it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from oelm_core.errors import Refused
from oelm_core.runs import process

OPEN = 0o1777
"""Everybody writes, nobody tidies up for others: as /tmp."""
REMEDY = "or everybody who shares these devices sets OELM_LEASES to one folder that all may write in (mode 1777)"
_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "fuse.sshfs", "fuse.glusterfs")


def shared_folder(path: Path) -> Path:
    """The folder, made if it is not there. Refused where this user cannot take part: there is no other place to go to,
    for two users with a place each would train on one card."""
    try:
        if not os.path.lexists(path):
            _make(path)
        found = os.lstat(path)
    except OSError as error:
        raise Refused(f"cannot use {path} for device leases: {error.strerror}; set OELM_LEASES.") from None
    whose = process.name_of(found.st_uid)
    if not stat.S_ISDIR(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a file"
        raise Refused(
            f"{path} is {what} of {whose}, not a folder, so nobody's devices can be told from another's: "
            f"{whose} or an administrator removes it, {REMEDY}."
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(
            f"{path} belongs to {whose}, who keeps others out (mode {stat.S_IMODE(found.st_mode):o}): "
            f"{whose} or an administrator opens it with `chmod 1777 {path}`, {REMEDY}."
        )
    return path


def _make(path: Path) -> None:
    """Open to all from its first moment: made beside, opened, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    draft.mkdir()
    try:
        draft.chmod(OPEN)  # mkdir's mode passes through the umask
        with contextlib.suppress(OSError):  # another user was quicker; the mode is theirs to set
            os.rename(draft, path)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(draft)


def lock_problem(folder: Path) -> str | None:
    """Why locks in a folder cannot be trusted, tried with a file of our own; None where they hold."""
    path = folder / f".lock-{os.getpid()}-{os.urandom(4).hex()}"
    one = two = None
    try:
        one = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        two = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return "a lock there keeps nobody out"
    except OSError as error:
        return without_locks(error) or f"{error.strerror}"
    finally:
        for descriptor in (one, two):
            if descriptor is not None:
                os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)


def check_locks(folder: Path) -> None:
    """Refuses a folder in which two runs could take one card."""
    problem = lock_problem(folder)
    if problem is not None:
        raise Refused(no_locks(folder, problem))


def no_locks(folder: Path, problem: str) -> str:
    return (
        f"{folder} cannot keep two runs off one card: {problem}. "
        "Set OELM_LEASES to a folder on a disk of this machine, the same for all users."
    )


def without_locks(error: OSError) -> str | None:
    """What a file system without locks, or a server that forgot the file, says; None for any other trouble."""
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return f"its file system has no locks ({error.strerror})"
    return "its server lost the file (stale handle)" if error.errno == errno.ESTALE else None


def network_of(path: Path) -> str | None:
    """The kind of network file system a path is on; None on a disk of this machine, or where nobody says."""
    mounts = [line.split() for line in process.read_text("/proc/self/mounts").splitlines()]
    real = os.path.realpath(path)
    under = [(len(at), kind) for _, at, kind, *_ in mounts if real == at or real.startswith(at.rstrip("/") + "/")]
    kind = max(under, default=(0, ""))[1]
    return kind if kind.startswith(_NETWORK) else None
