"""Reads a file that anybody may have put there: a plain one alone, up to a size, through no link that leads elsewhere.

Beside the rooms, for presets, run folders, imports and settings are all read so.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Literal

FileKind = Literal["record", "details", "index", "metrics", "ledger", "yaml", "import", "log"]

MOST_BYTES: dict[FileKind, int] = {
    "record": 8 * 2**20,  # run.json, state.json, result.json, notes.json, calibrations, tunings, tui.json: kilobytes
    "details": 256 * 2**20,  # predictions/, losses/, test/, evaluations/: a few numbers an example
    "index": 512 * 2**20,  # runs/.index.json: less than a kilobyte a run
    "metrics": 2**30,  # metrics.jsonl: some hundred bytes a step that is logged
    "ledger": 256 * 2**20,  # ledger.jsonl: some hundred bytes a launch
    "yaml": 2**20,  # presets, slurm.yaml: a few lines
    "import": 64 * 2**20,  # timing_stats.json, config.json, results.json of the author
    "log": 512 * 2**20,  # the author's logs, read whole; logs of runs are read by the page, whatever their size
}
"""What is larger is not read, and said to be unreadable."""


def read_small_file(path: Path | str, kind: FileKind = "record", *, follow: bool = False) -> bytes:
    """The content of a plain file; OSError, with a reason for people, for anything else.

    Without `follow` neither the file nor the folder it is in may be a link: so it is for what is in a run folder, which
    others may have made. A person's own files may be links.
    """
    descriptor = open_plain_file(path, follow=follow)
    try:
        most = MOST_BYTES[kind]
        if os.fstat(descriptor).st_size > most:
            raise too_large(path, kind)
        parts = []
        while most >= 0 and (part := os.read(descriptor, min(most + 1, 2**24))):
            parts.append(part)
            most -= len(part)
        if most < 0:  # it grew while it was read
            raise too_large(path, kind)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)


def open_plain_file(path: Path | str, *, follow: bool = False) -> int:
    """A descriptor to read from. Pipes, devices and sockets are not even opened, for that may hang or do something."""
    where = os.fspath(path)
    if not follow and stat.S_ISLNK(os.lstat(os.path.dirname(where) or ".").st_mode):
        raise OSError(errno.ELOOP, "its folder is a link, which is not followed", where)
    _refuse_special(os.stat(where) if follow else os.lstat(where), where)
    # looked at again, now that nobody can put something else in its place
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(where, flags)
    try:
        _refuse_special(os.fstat(descriptor), where)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def too_large(path: Path | str, kind: FileKind) -> OSError:
    return OSError(errno.EOVERFLOW, f"it is larger than {MOST_BYTES[kind] // 2**20} MiB", os.fspath(path))


def _refuse_special(found: os.stat_result, where: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a link, which is not followed", where)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file", where)
