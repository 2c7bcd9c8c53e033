"""metrics.jsonl as columns of numbers that only grow: compact for half a million records, drawn while they load."""

from __future__ import annotations

import bisect
import json
import math
import os
import time
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oelm_core.runs.metrics_file import MetricsReader
from oelm_tui.snapshots.key_priority import give_way

CHUNK = 64 * 1024
SKIM_FROM = 8 * 1024 * 1024
"""Files larger than this are first skimmed: evenly spread pieces give the whole curve at once."""
TAIL = 16 * 1024
SKIM_PIECES, SKIM_PIECE = 160, 8 * 1024
_NOT_NUMBERS = frozenset({"kind", "what", "message"})


class Table:
    """Records of one kind: equally long columns, not-a-number where a record lacked the key."""

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {"step": array("d"), "t": array("d")}

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        before = len(self)
        for name in {key for record in records for key in record} - _NOT_NUMBERS - set(self.columns):
            self.columns[name] = array("d", [math.nan]) * before
        # The step column last: its length is what readers in other threads go by.
        for name in sorted(self.columns, key=lambda name: name == "step"):
            values = array("d", [_number(record.get(name)) for record in records])
            _extend(self.columns[name], values)

    def column(self, name: str) -> Sequence[float]:
        return self.columns.get(name, array("d"))


class Columns:
    """All kinds of one run's metrics. `generation` changes when the file was cut and everything started over."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {kind: Table() for kind in ("train", "eval", "system")}
        self.events: list[dict[str, Any]] = []
        self.share = 1.0
        """How much of the file is in; less than one while a large file loads."""

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            by_kind.setdefault(str(record["kind"]), []).append(record)
        self.events += by_kind.pop("event", [])
        del self.events[:-500]
        for kind, group in by_kind.items():
            if kind in self.tables:
                self.tables[kind].add(group)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, kind: str) -> Table:
        return self.tables[kind]

    @property
    def size(self) -> int:
        return sum(len(table) for table in self.tables.values())

    def xs(self, kind: str, x: str) -> Sequence[float]:
        """The column to draw against: step, seconds since the first record, or tokens seen."""
        table = self.tables[kind]
        if x == "time":
            first = min((t.columns["t"][0] for t in self.tables.values() if len(t)), default=0.0)
            return array("d", [t - first for t in table.columns["t"]])
        if x == "tokens" and "tokens" not in table:
            train = self.tables["train"]
            steps, tokens = train.column("step"), train.column("tokens")
            return array("d", [_at_step(steps, tokens, step) for step in table.columns["step"]])
        return table.column(x)


class ColumnsReader:
    """Keeps the columns of one metrics file up to date. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = Columns()
        self._reader = MetricsReader(path)
        self._read = 0
        self._skimmed = False
        self._loading: Columns | None = None
        """The exact columns, until they are whole and take the skimmed ones' place."""
        self.behind = False
        """More of the file was waiting when `advance` ran out of time."""

    def advance(self, seconds: float = 0.05) -> bool:
        """Reads for about so long; True when there is something new to draw. `columns.share` tells how far it is."""
        size = _size(self.path)
        if size > SKIM_FROM and not self._skimmed and not self._read:
            self._skimmed = True
            self.columns.add(_skim(self.path, size))
            self.columns.share = SKIM_PIECES * SKIM_PIECE / size
            self._loading, self.behind = Columns(), True
            return self.columns.size > 0
        target = self._loading or self.columns
        changed = False
        until = time.monotonic() + seconds
        while True:
            before = self._reader.offset
            restarted, records = self._reader.read_new(CHUNK)
            if restarted:
                target = self.columns = Columns()
                self._loading, self._skimmed, changed = None, False, True
            target.add(records)
            changed = changed or bool(records)
            self._read = self._reader.offset
            if self._read == before or time.monotonic() > until:
                self.behind = self._read != before
                break
            give_way()
        if self._loading is None:
            return changed
        if self.behind:
            self.columns.share = min(0.99, self._read / size)
        else:
            self.columns, self._loading = self._loading, None
        return True


def _skim(path: Path, size: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    try:
        with open(path, "rb") as file:
            for piece in range(SKIM_PIECES):
                file.seek(piece * (size - SKIM_PIECE) // (SKIM_PIECES - 1))
                lines = file.read(SKIM_PIECE).split(b"\n")[(1 if piece else 0) : -1]
                records += _records(lines)
    except OSError:
        return []
    return records


def _records(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "step" in record and "kind" in record:
            found.append(record)
    return found


class Tail:
    """The newest records of a metrics file of any size; what was read once is not read again."""

    def __init__(self, kept: int = 64) -> None:
        self.records: list[dict[str, Any]] = []
        self._kept = kept
        self._offset = 0
        self._inode = 0

    def read(self, path: Path) -> list[dict[str, Any]]:
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self.records, self._inode, self._offset = [], status.st_ino, max(0, status.st_size - TAIL)
                start = max(self._offset, status.st_size - TAIL)
                file.seek(start)
                chunk = file.read()
        except OSError:
            return self.records
        whole = chunk.rfind(b"\n") + 1
        lines = chunk[:whole].split(b"\n")
        self.records = (self.records + _records(lines))[-self._kept :]  # a torn first line is no JSON and drops out
        self._offset = start + whole
        return self.records


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return {"Infinity": math.inf, "-Infinity": -math.inf}.get(str(value), math.nan)


def _extend(column: array[float], values: array[float]) -> None:
    """Another thread may be copying the column this instant, and an array lent out cannot grow: wait for it."""
    while True:
        try:
            column.extend(values)
            return
        except BufferError:
            time.sleep(0.0005)


def _at_step(steps: Sequence[float], values: Sequence[float], step: float) -> float:
    place = bisect.bisect_right(steps, step) - 1
    return values[place] if 0 <= place < len(values) else 0.0
