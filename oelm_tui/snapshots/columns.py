"""metrics.jsonl as columns of numbers that only grow: compact for half a million records, drawn while they load."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import statistics
import time
from array import array
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from oelm_core.runs.metrics_file import MetricsReader, parse, skim
from oelm_core.runs.schema import LAST_STEP, MetricLine, decode_metrics
from oelm_tui.snapshots.background import give_way

CHUNK = 64 * 1024
SKIM_FROM = 8 * 1024 * 1024
"""Files larger than this are first skimmed: evenly spread pieces give the whole curve at once."""
TAIL = 16 * 1024
SKIM_PIECES, SKIM_PIECE = 160, 8 * 1024
TEXTS = {"what", "message"}
"""What an event says; no column."""


class KindColumns:
    """Records of one kind: equally long columns, not-a-number where a record lacked the key."""

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {"step": array("d"), "t": array("d")}

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def add(self, lines: Sequence[MetricLine]) -> None:
        before, values = len(self), [line.values for line in lines]
        for name in set().union(*values) - set(self.columns):
            self.columns[name] = array("d", [math.nan]) * before
        for name in self.columns.keys() - {"step", "t"}:
            try:
                column = array("d", map(itemgetter(name), values))
            except (KeyError, OverflowError):  # not in every record, or past what a float holds
                column = array("d", [_as_float(one.get(name, math.nan)) for one in values])
            _extend(self.columns[name], column)
        _extend(self.columns["t"], array("d", [line.t for line in lines]))
        # The step column last: its length is what readers in other threads go by.
        _extend(self.columns["step"], array("d", [line.step for line in lines]))

    def add_plain(self, rows: Sequence[dict[str, Any]]) -> bool:
        """Adds rows that are numbers throughout, alike in their keys; False, and nothing added, where they are not."""
        names = set(rows[0])
        if {*map(len, rows)} != {len(names)}:  # as many keys, and below each of these is looked up in each row
            return False
        try:
            steps = [*map(itemgetter("step"), rows)]
            if {*map(type, steps)} != {int} or "t" not in names or names & TEXTS:
                return False
            if max(steps) > LAST_STEP or min(steps) < -LAST_STEP:
                return False
            new = {name: array("d", map(itemgetter(name), rows)) for name in names - {"kind"}}
        except (KeyError, TypeError, OverflowError):
            return False
        before = len(self)
        for name in new.keys() - self.columns.keys():
            self.columns[name] = array("d", [math.nan]) * before
        for name in self.columns.keys() - {"step"}:
            _extend(self.columns[name], new.get(name) or array("d", [math.nan]) * len(rows))
        _extend(self.columns["step"], new["step"])
        return True

    def column(self, name: str) -> Sequence[float]:
        return self.columns.get(name, array("d"))


class Columns:
    """All kinds of one run's metrics."""

    def __init__(self) -> None:
        self.tables: dict[str, KindColumns] = {kind: KindColumns() for kind in ("train", "eval", "system")}
        self.events: list[MetricLine] = []
        self.share = 1.0
        """How much of the file is in; less than one while a large file loads."""

    def add(self, lines: Iterable[MetricLine]) -> None:
        by_kind: dict[str, list[MetricLine]] = {}
        for line in lines:
            by_kind.setdefault(line.kind, []).append(line)
        self.events += by_kind.pop("event", [])
        del self.events[:-500]
        for kind, group in by_kind.items():
            if kind in self.tables:
                self.tables[kind].add(group)

    def add_lines(self, chunk: bytes) -> None:
        """Adds whole lines of the file; all at once where they are what the worker writes, else one by one."""
        odd = b"true" in chunk or b"false" in chunk  # they would pass for numbers
        rows = None if odd else decode_metrics(chunk)
        by_kind = _by_kind(rows or [])
        plain = [kind for kind, group in by_kind.items() if kind in self.tables and self.tables[kind].add_plain(group)]
        if len(plain) < max(1, len(by_kind)):
            self.add(line for line in parse(chunk.split(b"\n")) if line.kind not in plain)

    def __getitem__(self, kind: str) -> KindColumns:
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
            self.columns.add(skim(self.path, SKIM_PIECES, SKIM_PIECE))
            self.columns.share = SKIM_PIECES * SKIM_PIECE / size
            self._loading, self.behind = Columns(), True
            return self.columns.size > 0
        target = self._loading or self.columns
        changed = False
        until = time.monotonic() + seconds
        while True:
            before = self._reader.offset
            restarted, lines = self._reader.read_bytes(CHUNK)
            if restarted:
                target = self.columns = Columns()
                self._loading, self._skimmed, changed = None, False, True
            if lines:
                target.add_lines(lines)
                changed = True
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


class MetricsTail:
    """The newest records of a metrics file of any size; what was read once is not read again."""

    def __init__(self, path: Path, kept: int = 64) -> None:
        self.lines: list[MetricLine] = []
        self._path = path
        self._kept = kept
        self._reader: MetricsReader | None = None

    def read(self) -> list[MetricLine]:
        if self._reader is None or _size(self._path) - self._reader.offset > TAIL:
            self._reader = MetricsReader(self._path)
            self._reader.offset = max(0, _size(self._path) - TAIL)  # a torn first line is no record and drops out
        restarted, new = self._reader.read_new()
        self.lines = ([] if restarted else self.lines) + new
        del self.lines[: -self._kept]
        return self.lines


SHAPE = 16
"""Values that show how a loss went."""


def shape_of_loss(path: Path) -> tuple[float, ...]:
    """At most SHAPE values of the training loss from the first record to the last: means of neighbours, finite ones."""
    pieces, piece = (2 * SHAPE, 1024) if _size(path) > 64 * 1024 else (2, 64 * 1024)
    lines = {line.step: line for line in skim(path, pieces, piece) if line.kind == "train" and "loss" in line.values}
    losses = [line.values["loss"] for _, line in sorted(lines.items()) if math.isfinite(line.values["loss"])]
    count = min(SHAPE, len(losses))
    ends = [len(losses) * number // count for number in range(count + 1)] if count else []
    return tuple(round(statistics.fmean(losses[a:b]), 6) for a, b in itertools.pairwise(ends))


def _by_kind(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    with contextlib.suppress(KeyError, TypeError):  # mostly they are all of one, and need no sorting
        if len({*map(itemgetter("kind"), rows)}) == 1:
            return {str(rows[0]["kind"]): rows}
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(str(row.get("kind")), []).append(row)
    return by_kind


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
