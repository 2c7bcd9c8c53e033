"""Files that several people write in a home that a group shares: each stays readable to all of them."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def share_alike(descriptor: int, path: Path, mode: int | None = None) -> None:
    """What replaces a file is for the same people: its mode, group and (as root) owner stay, whatever our umask.

    A new file in a folder that a group shares (setgid) is for whom the folder is for. Called before `path` is there.
    """
    with contextlib.suppress(OSError):
        mine = os.fstat(descriptor)
        try:
            before = os.lstat(path)
        except FileNotFoundError:
            mode = shared_mode(path.parent) if mode is None else mode
        else:
            if mode is None and stat.S_ISREG(before.st_mode):
                mode = stat.S_IMODE(before.st_mode) & 0o777
            if before.st_gid != mine.st_gid:
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, -1, before.st_gid)
            if before.st_uid != mine.st_uid and mine.st_uid == 0:
                os.fchown(descriptor, before.st_uid, -1)
        if mode is not None and mode != stat.S_IMODE(mine.st_mode):
            os.fchmod(descriptor, mode)


def share_weights(folder: Path) -> None:
    """safetensors makes its files for their owner alone; they become as readable as the configuration beside them."""
    mode = stat.S_IMODE((folder / "config.json").stat().st_mode)
    for file in folder.glob("*.safetensors"):
        file.chmod(mode)


def shared_mode(folder: Path) -> int | None:
    """The mode of a new file in a folder that a group shares (setgid); None elsewhere, where the umask says."""
    found = os.stat(folder).st_mode
    return found & 0o666 if found & stat.S_ISGID else None


def open_shared_alike(path: Path, flags: int) -> int:
    """Opens a file that others write too; a new one is for whom its folder is for."""
    new = not os.path.lexists(path)
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if new and (mode := shared_mode(path.parent)) is not None:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)
    return descriptor
