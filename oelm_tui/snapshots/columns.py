"""metrics.jsonl as columns of numbers that only grow: compact for half a million records, drawn while they load."""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Annotated, Any, Union, cast

import msgspec

from oelm_core.runs.metrics_file import MetricsReader, parse, skim
from oelm_core.runs.schema import LAST_STEP, MetricLine
from oelm_tui.snapshots.background import give_way

CHUNK = 64 * 1024
SKIM_FROM = 8 * 1024 * 1024
"""Files larger than this are first skimmed: evenly spread pieces give the whole curve at once."""
TAIL = 16 * 1024
SKIM_PIECES, SKIM_PIECE = 160, 8 * 1024
Step = Annotated[int, msgspec.Meta(ge=-LAST_STEP, le=LAST_STEP)]
Moment = Annotated[float, msgspec.Meta(ge=-LAST_STEP, le=LAST_STEP)]
_ESCAPED = re.compile(r"[^ !#-\[\]-~]")
"""In a JSON string; beyond ASCII may be."""


class Row(msgspec.Struct, gc=False):
    """A line of the file as a decoder makes it, with a field for each column."""


class EventRow(Row, tag_field="kind", tag="event", forbid_unknown_fields=True):
    step: Step
    t: Moment
    what: str = ""
    message: str = ""


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

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Adds rows that hold a number, or not-a-number, for each column and in its order."""
        new = [array("d", map(attrgetter(field), rows)) for field in rows[0].__struct_fields__]
        for column, values in reversed([*zip(self.columns.values(), new, strict=True)]):  # the step column last
            _extend(column, values)

    def column(self, name: str) -> Sequence[float]:
        return self.columns.get(name, array("d"))


class RowDecoder:
    """Decodes lines of the kinds and keys that are known, many at once: two thirds of the time that dicts take.

    A key that is new, a null, a word where a number should be, a torn line: it decodes nothing, and leaves such lines
    to the parser that takes them one by one.
    """

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        """names: the columns of each kind, `step` and `t` first."""
        kinds = {kind: _row_type(kind, columns) for kind, columns in names.items()}
        self._kinds = {row_type: kind for kind, row_type in kinds.items()} | {EventRow: "event"}
        self._decoder: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Union[tuple(self._kinds)])  # noqa: UP007

    @classmethod
    def of(cls, tables: Mapping[str, KindColumns]) -> RowDecoder | None:
        """For these columns; None where one has a name that JSON would escape."""
        names = {kind: list(table.columns) for kind, table in tables.items()}
        return None if any(map(_ESCAPED.search, itertools.chain(*names.values()))) else cls(names)

    def decode(self, lines: bytes) -> dict[str, list[Any]] | None:
        """Rows of each kind in the order of the file; None where a line is another."""
        try:
            rows = self._decoder.decode_lines(lines)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        found: dict[str, list[Any]] = {kind: [] for kind in self._kinds.values()}
        if len(types := {*map(type, rows)}) == 1:  # as a rule: nothing to sort
            found[self._kinds[types.pop()]] = rows
        else:
            for row in rows:
                found[self._kinds[type(row)]].append(row)
        return found


def _row_type(kind: str, names: Sequence[str]) -> type[Row]:
    fields = [f"f{number}" for number in range(len(names))]  # a column's own name may be no name in Python
    step, t, *others = fields
    types: list[Any] = [(step, Step), (t, Moment), *((field, float, math.nan) for field in others)]
    named = dict(zip(fields, names, strict=True))
    made = msgspec.defstruct(
        kind, types, bases=(Row,), rename=named, tag_field="kind", tag=kind, forbid_unknown_fields=True
    )
    return cast(type[Row], made)


class Columns:
    """All kinds of one run's metrics."""

    def __init__(self) -> None:
        self.tables: dict[str, KindColumns] = {kind: KindColumns() for kind in ("train", "eval", "system")}
        self.events: list[MetricLine] = []
        self.share = 1.0
        """How much of the file is in; less than one while a large file loads."""
        self._decoder: RowDecoder | None = None

    def add(self, lines: Iterable[MetricLine]) -> None:
        self._decoder = None  # there may be columns that it does not know
        by_kind: dict[str, list[MetricLine]] = {}
        for line in lines:
            by_kind.setdefault(line.kind, []).append(line)
        self.events += by_kind.pop("event", [])
        del self.events[:-500]
        for kind, group in by_kind.items():
            if kind in self.tables:
                self.tables[kind].add(group)

    def add_lines(self, chunk: bytes) -> None:
        """Adds whole lines of the file; all at once where they have the columns that are known, else one by one."""
        rows = self._decoder.decode(chunk) if self._decoder else None
        if rows is None:
            self.add(parse(chunk.split(b"\n")))
            self._decoder = RowDecoder.of(self.tables)
            return
        self.events += [MetricLine(row.step, "event", row.t, {}, row.what, row.message) for row in rows["event"]]
        del self.events[:-500]
        for kind, table in self.tables.items():
            if rows[kind]:
                table.add_rows(rows[kind])

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
