"""A cache of runs that are over (`runs/.index.json`), so that listing thousands of them costs two stats each.

It is only ever a shortcut: every entry carries the marks of the files it came from, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from oelm_core.runs.folder import read_record, replace_file
from oelm_core.runs.schema import encode

SCHEMA = 1
WORTH_WRITING = 50
"""New entries from which the index is written again."""

Mark = tuple[int, int]
"""Modification time in nanoseconds and inode: changes whenever a file is replaced."""


class _Index(Struct):
    schema: int
    runs: dict[str, dict[str, Any]]
    """By run id: the fields of a `Run`, and the marks of the files they came from."""


_known: dict[str, tuple[Mark | None, set[str]]] = {}


def mark(path: str) -> Mark | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def recall(root: Path, remember: Callable[[Path, str, dict[str, Any]], None]) -> None:
    """Hands every entry to `remember(root, name, entry)`, unless this process has read the same index already."""
    path = root / ".index.json"
    now = mark(str(path))
    if str(root) in _known and _known[str(root)][0] == now:
        return
    kept = read_record(path, _Index)
    entries = kept.runs if kept is not None and kept.schema == SCHEMA else {}
    for name, entry in entries.items():
        remember(root, name, entry)
    _known[str(root)] = now, set(entries)


def keep(root: Path, over: set[str], entries: Callable[[], dict[str, dict[str, Any]]]) -> None:
    """Writes the index when enough runs ended or went since it was written; `over` names those that are over now."""
    path = root / ".index.json"
    _, names = _known.get(str(root), (None, set()))
    if len(names ^ over) < WORTH_WRITING:
        return
    with contextlib.suppress(OSError):  # a read-only home is listed all the same, only slower
        replace_file(path, encode(_Index(SCHEMA, entries())), durable=False)
        _known[str(root)] = mark(str(path)), over
