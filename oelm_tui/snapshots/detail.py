"""The selected run's own files, read in a thread: metrics as columns, result, checks, samples, the log's end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from oelm_core.notify import notice_of
from oelm_core.runs import attempts
from oelm_core.runs.attempts import checkpoint_steps
from oelm_core.runs.evaluations import read_samples
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, Checks, Notice, Record, Result, Sample
from oelm_tui.logs.reader import LogFile
from oelm_tui.logs.search import last_trouble
from oelm_tui.snapshots.columns import Columns, ColumnsReader
from oelm_tui.snapshots.run_view import RunView

KEPT = 12
"""Runs whose columns and logs are kept open."""
SAMPLES = 200

T = TypeVar("T")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class DetailRequest:
    view: RunView
    others: tuple[RunView, ...] = ()
    """Runs whose curves are wanted beside: the baseline, and those that are marked."""


@dataclass(frozen=True)
class Detail:
    """What the run's tabs show. `columns` only grow; everything else is frozen."""

    view: RunView
    columns: Columns
    others: tuple[tuple[RunView, Columns], ...] = ()
    result: Result | None = None
    checks: Checks | None = None
    samples: tuple[Sample, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    trouble: tuple[bytes, ...] = ()
    """For a failed run: the log from a little before its traceback."""
    last_line: bytes = b""
    checkpoints: tuple[int, ...] = ()
    """Steps of those that are there."""
    notice: Notice | None = None
    """How the user's own command for its end went."""
    points: tuple[float, ...] = ()
    """Number of points and share of the files read when this was made: details with other numbers are not equal."""
    loading: bool = False
    """More of the metrics is waiting to be read: ask again at once."""


class DetailReader:
    """Used by one thread. Keeps the columns of the last few runs, so going back and forth costs nothing."""

    def __init__(self) -> None:
        self._columns: OrderedDict[Path, ColumnsReader] = OrderedDict()
        self._logs: OrderedDict[Path, LogFile] = OrderedDict()
        self._files: dict[Path, tuple[tuple[int, int, int], Any]] = {}
        self._last: Detail | None = None

    def read(self, request: DetailRequest) -> Detail | None:
        """The newest detail, or None when nothing changed since the last one for the same run."""
        view = request.view
        wanted = (view, *request.others)
        readers = [self._reader(each) for each in wanted]
        for reader in readers:
            reader.advance()
        folder = view.run.folder
        detail = Detail(
            view,
            self._reader(view).columns,
            tuple((other, self._reader(other).columns) for other in request.others),
            self._record(folder, Result),
            self._record(folder, Checks),
            self._when_changed(folder.samples, lambda: tuple(read_samples(folder.samples, SAMPLES))) or (),
            tuple(attempts.read_all(folder)),
            *self._log_end(view),
            checkpoints=self._when_changed(folder.checkpoints, lambda: checkpoint_steps(folder)) or (),
            notice=notice_of(folder) if not view.is_live else None,
            points=tuple(n for r in readers for n in (r.columns.size, r.columns.share)),
            loading=any(reader.behind for reader in readers),
        )
        if detail == self._last:
            return None
        self._last = detail
        return detail

    def _reader(self, view: RunView) -> ColumnsReader:
        path = view.run.folder.metrics
        reader = self._columns.get(path)
        if reader is None:
            reader = self._columns[path] = ColumnsReader(path)
            while len(self._columns) > KEPT:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(path)
        return reader

    def _record(self, folder: RunFolder, kind: type[R]) -> R | None:
        return self._when_changed(folder.path / kind.FILE, lambda: folder.read(kind))

    def _log_end(self, view: RunView) -> tuple[tuple[bytes, ...], bytes]:
        """(lines around the trouble, last line of the log)."""
        path = view.log
        log = self._logs.get(path)
        if log is None:
            log = self._logs[path] = LogFile(path)
            while len(self._logs) > KEPT:
                self._logs.popitem(last=False)[1].close()
        log.refresh()
        page = log.last_page(1)
        last = page.lines[-1].shown if page.lines else b""
        if view.run.state not in ("failed", "lost", "stopped"):
            return (), last
        return self._when_changed(path, lambda: _around_trouble(log)) or (), last

    def _when_changed(self, path: Path, read: Callable[[], T]) -> T | None:
        try:
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            self._files.pop(path, None)
            return None
        known = self._files.get(path)
        if known is None or known[0] != mark:
            if len(self._files) > 200:
                self._files.clear()
            known = self._files[path] = (mark, read())
        content: T = known[1]
        return content


def _around_trouble(log: LogFile, before: int = 8, most: int = 60) -> tuple[bytes, ...]:
    place = last_trouble(log)
    if place is None:
        return tuple(line.shown for line in log.last_page(20).lines)
    lines = [line.shown for line in log.page_from(place, most, -before).lines]
    return tuple(lines)
