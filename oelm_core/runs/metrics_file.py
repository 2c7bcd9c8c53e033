"""metrics.jsonl: appended one whole line at a time, read in several ways by one parser; a torn tail waits."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from oelm_core.runs.schema import MetricKind, MetricLine, decode_metric, encode_metric
from oelm_core.shared_files import share_alike
from oelm_core.small_files import MOST_BYTES, open_plain_file, read_small_file, too_large


class MetricsWriter:
    """Appends records; each is a single write, so readers and crashes see whole lines or nothing."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def write(self, kind: MetricKind, step: int, **values: float) -> None:
        self._append(MetricLine(step, kind, round(time.time(), 3), values))

    def event(self, step: int, what: str, message: str) -> None:
        self._append(MetricLine(step, "event", round(time.time(), 3), {}, what, message))

    def _append(self, line: MetricLine) -> None:
        content = encode_metric(line)
        if os.write(self._file, content) < len(content):  # half a line: another behind it would be lost with it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")

    def flush_to_disk(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class NewLines(NamedTuple):
    """What was appended since the last read."""

    restarted: bool
    """The file was cut or replaced: everything read before is void, and these lines are from its start."""
    lines: list[MetricLine]


class MetricsReader:
    """Reads what was appended since last time; of the `kinds` asked for, or of all."""

    def __init__(self, path: Path, *kinds: MetricKind) -> None:
        self.path = path
        self.kinds = kinds
        self.offset = 0
        """Bytes read so far, whole lines only."""
        self._inode: int | None = None
        self.problem: str | None = None
        """Why the file was not read to its end, where it is there."""

    def read_new(self, max_bytes: int | None = None) -> NewLines:
        restarted, chunk = self.read_bytes(max_bytes)
        return NewLines(restarted, list(parse(chunk.split(b"\n"), *self.kinds)) if chunk else [])

    def read_bytes(self, max_bytes: int | None = None) -> tuple[bool, bytes]:
        """(restarted, the whole lines that were appended), not looked into."""
        try:
            with open(open_plain_file(self.path), "rb") as file:
                status = os.fstat(file.fileno())
                restarted = self._inode is not None and (status.st_ino != self._inode or status.st_size < self.offset)
                if restarted:
                    self.offset = 0
                self._inode = status.st_ino
                if status.st_size == self.offset:
                    return restarted, b""
                file.seek(self.offset)
                room = max(0, MOST_BYTES["metrics"] - self.offset)
                chunk = file.read(room if max_bytes is None else min(max_bytes, room))
                if b"\n" not in chunk:
                    chunk += file.readline(room)  # a bite holds at least one whole line
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            self.problem = None if missing else f"unreadable: {self.path.name}, {error.strerror}."
            return False, b""
        self.problem = None
        if status.st_size > MOST_BYTES["metrics"]:
            self.problem = f"unreadable: {self.path.name}, {too_large(self.path, 'metrics').strerror}."
        whole = chunk.rfind(b"\n") + 1
        self.offset += whole
        return restarted, chunk[:whole]


def parse(lines: list[bytes], *kinds: MetricKind) -> Iterator[MetricLine]:
    """The records in these lines; torn and foreign ones are passed over, lines of other kinds not even decoded."""
    marks = [f'"{kind}"'.encode() for kind in kinds]
    for line in lines:
        if marks and not any(mark in line for mark in marks):
            continue
        found = decode_metric(line) if line else None
        if found is not None and (not kinds or found.kind in kinds):
            yield found


def read_metrics(path: Path, *kinds: MetricKind) -> list[MetricLine]:
    """Every record, in the order of the file; of the `kinds` asked for, or of all."""
    return MetricsReader(path, *kinds).read_new().lines


def read_curves(path: Path, most: int) -> tuple[list[MetricLine], list[MetricLine]]:
    """(evaluations by step, training records evenly thinned to about `most` with the last one), in one read."""
    evaluations: list[bytes] = []
    train: list[bytes] = []
    for line in _whole_lines(path):
        if b'"eval"' in line:
            evaluations.append(line)
        elif b'"train"' in line:
            train.append(line)
    stride = max(1, math.ceil(len(train) / most))
    kept = train[::stride] + (train[-1:] if (len(train) - 1) % stride else [])
    return sorted(parse(evaluations, "eval"), key=lambda line: line.step), list(parse(kept, "train"))


def read_tail(path: Path, size: int, *kinds: MetricKind) -> list[MetricLine]:
    """The records in the last `size` bytes of a file of any length."""
    try:
        with open(open_plain_file(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            lines = file.read().split(b"\n")[:-1]  # what follows the last line break is still being written
    except OSError:
        return []
    return list(parse(lines, *kinds))


def skim(path: Path, pieces: int, piece: int) -> list[MetricLine]:
    """Records from `pieces` evenly spread pieces of so many bytes: the shape of a large file at once."""
    found: list[MetricLine] = []
    try:
        with open(open_plain_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for number in range(pieces):
                file.seek(number * max(0, size - piece) // (pieces - 1))
                lines = file.read(piece).split(b"\n")
                found += parse(lines[(1 if number else 0) : -1])
    except OSError:
        return []
    return found


def cut_lines(path: Path, keep: Callable[[bytes], bool]) -> None:
    """Rewrites a file of lines beside and renames it: only whole lines that `keep` wants stay."""
    if not path.is_file():
        return
    temporary = path.with_name(f".{path.name}.cut")
    with open(path, "rb") as old, open(temporary, "wb") as new:
        for line in old:
            if line.endswith(b"\n") and keep(line):
                new.write(line)
        share_alike(new.fileno(), path)
        new.flush()
        os.fsync(new.fileno())
    os.replace(temporary, path)


def _whole_lines(path: Path) -> list[bytes]:
    try:
        return read_small_file(path, "metrics").split(b"\n")[:-1]
    except OSError:
        return []
