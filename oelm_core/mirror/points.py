"""What of metrics.jsonl is new for a target: from where it was left, and after a resume no point twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from oelm_core.runs.metrics_file import parse
from oelm_core.runs.schema import MetricLine, Mirrored
from oelm_core.small_files import MOST_BYTES, open_plain_file

BITE = 2**20
"""Bytes of metrics.jsonl in one go: some thousand lines."""
LAST = 512
"""Bytes before the place where it was left that must still be the same."""


class Point(NamedTuple):
    """One line of metrics.jsonl: numbers by name (`train/loss`), or an event's words."""

    step: int
    """Of the optimiser."""
    t: float
    """As recorded, epoch seconds."""
    values: dict[str, float]
    what: str = ""
    message: str = ""


def new_points(path: Path, kept: Mirrored) -> list[Point]:
    """The next points, a bite of them; `kept` then says where they end. Nothing new, or no file yet: an empty list.

    A resume cuts the file and trains some steps again. Then it is read from its start, and a step that is past for its
    kind is left out; so are events that are not later than all before.
    """
    try:
        with open(open_plain_file(path), "rb") as file:
            if kept.offset and mark(_before(file.fileno(), kept.offset)) != kept.mark:
                kept.offset, kept.again = 0, True
            while True:
                file.seek(kept.offset)
                chunk = file.read(min(BITE, max(0, MOST_BYTES["metrics"] - kept.offset)))
                if len(chunk) == BITE and b"\n" not in chunk:
                    chunk += file.readline(BITE * 64)  # a bite holds at least one whole line
                whole = chunk.rfind(b"\n") + 1
                if not whole:
                    return []
                kept.offset += whole
                kept.mark = mark(_before(file.fileno(), kept.offset))
                lines = [
                    line for line in parse(chunk[:whole].split(b"\n")) if not (kept.again and _is_past(line, kept))
                ]
                if lines:
                    break
    except OSError:
        return []
    for line in lines:
        kept.steps[line.kind] = max(line.step, kept.steps.get(line.kind, -1))
        kept.t = max(line.t, kept.t)
    kept.points += len(lines)
    return [_point(line) for line in lines]


def _is_past(line: MetricLine, kept: Mirrored) -> bool:
    return line.t <= kept.t if line.kind == "event" else line.step <= kept.steps.get(line.kind, -1)


def _point(line: MetricLine) -> Point:
    named = {f"{line.kind}/{name}": float(value) for name, value in line.values.items()}
    return Point(line.step, line.t, named, line.what, line.message)


def _before(descriptor: int, offset: int) -> bytes:
    return os.pread(descriptor, min(LAST, offset), max(0, offset - LAST))


def mark(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
