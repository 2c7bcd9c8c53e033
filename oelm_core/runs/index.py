"""A cache of runs that are over (`runs/.index.json`), so that listing thousands of them costs two stats each.

It is only ever a shortcut: every entry carries the marks of the files it came from, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import write_json

SCHEMA = 1
WORTH_WRITING = 50
"""New entries from which the index is written again."""

Mark = tuple[int, int]
"""Modification time in nanoseconds and inode: changes whenever a file is replaced."""

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
    entries: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads(path.read_bytes())
        entries = content["runs"] if content.get("schema") == SCHEMA else {}
    for name, entry in entries.items():
        if isinstance(entry, dict):
            remember(root, name, entry)
    _known[str(root)] = now, set(entries)


def keep(root: Path, over: set[str], entries: Callable[[], dict[str, dict[str, Any]]]) -> None:
    """Writes the index when enough runs ended or went since it was written; `over` names those that are over now."""
    path = root / ".index.json"
    _, names = _known.get(str(root), (None, set()))
    if len(names ^ over) < WORTH_WRITING:
        return
    with contextlib.suppress(OSError):  # a read-only home is listed all the same, only slower
        write_json(path, {"schema": SCHEMA, "runs": entries()}, durable=False)
        _known[str(root)] = mark(str(path)), over
