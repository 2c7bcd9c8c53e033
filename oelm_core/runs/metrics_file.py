"""metrics.jsonl: appended one whole line at a time, read incrementally, torn tails left for the next read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class MetricsWriter:
    """Appends records; each is a single write, so readers and crashes see whole lines or nothing."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, step: int, **values: Any) -> None:
        record = {"t": round(time.time(), 3), "step": step, "kind": kind, **values}
        os.write(self._file, json.dumps(record, ensure_ascii=False).encode() + b"\n")

    def flush_to_disk(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class MetricsReader:
    """Reads what was appended since last time. A file that shrank (a resume cut it) is read again from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Bytes read so far, whole lines only."""
        self._inode: int | None = None

    def read_new(self, max_bytes: int | None = None) -> tuple[bool, list[dict[str, Any]]]:
        """(started over?, new records)."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                restarted = self._inode is not None and (status.st_ino != self._inode or status.st_size < self.offset)
                if restarted:
                    self.offset = 0
                self._inode = status.st_ino
                file.seek(self.offset)
                chunk = file.read() if max_bytes is None else file.read(max_bytes)
                if b"\n" not in chunk:
                    chunk += file.readline()  # a bite holds at least one whole line
        except OSError:
            return False, []
        whole = chunk.rfind(b"\n") + 1
        self.offset += whole
        return restarted, list(_parse(chunk[:whole]))


def read_metrics(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    _, records = MetricsReader(path).read_new()
    return [record for record in records if kind is None or record["kind"] == kind]


def _parse(chunk: bytes) -> Iterator[dict[str, Any]]:
    for line in chunk.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a torn or foreign line: skipped, the rest still counts
        if isinstance(record, dict) and "step" in record and "kind" in record:
            yield record
