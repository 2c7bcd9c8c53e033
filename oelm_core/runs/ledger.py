"""The ledger: an append-only file of what was launched, how it ended and what was deleted, each line tied to the last.

`$OELM_HOME/ledger.jsonl` remembers what its folders no longer show, so that a table can say how much was tried. Every
line names the hash of the line before it: a line that was removed or changed is seen. `ledger.head` beside it holds
the hash of the last line, so that lines cut off at the end are missed too. It guards against forgetting and tidying
up; whoever means to forge it can write both files anew.

Lines are appended under a lock, in one write. Where locks do not work (some NFS mounts) two machines that write in the
same moment may name the same line before theirs: such a fork is accepted, since no removed line can look like it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oelm_core.errors import one_line
from oelm_core.home import runs_dir
from oelm_core.recipe import recorded_hash, recorded_method
from oelm_core.runs import process
from oelm_core.runs.schema import Misfit, RunRecord, decode
from oelm_core.shared_files import open_shared_alike
from oelm_core.small_files import read_small_file

EventKind = Literal["launched", "resumed", "ended", "deleted", "imported", "registered", "looked-at-test"]
NAME = "ledger.jsonl"
PATIENCE = 5.0
"""Seconds to wait for whoever writes at this moment; then it is written without the lock."""
TAIL = 1 << 16
"""Bytes at the end of the file among which the last line is looked for."""


class LedgerEvent(Struct, kw_only=True, omit_defaults=True):
    """One line: what happened, when and by whom, and what must be known of a run once its folder is gone."""

    event: EventKind
    when: float = 0.0
    who: str = ""
    """user@host"""
    run: str | None = None
    preset: str | None = None
    study: str | None = None
    config_hash: str | None = None
    method: str | None = None
    """Names the method, model and data set: presets that share it are tries at one thing."""
    seed: int | None = None
    role: str | None = None
    """Of a run of a tuning: draw or chosen."""
    state: str | None = None
    reason: str | None = None
    metric: str | None = None
    value: float | None = None
    """Of the headline metric."""
    plan: str | None = None
    """Of a registered study: its hash."""
    data: str | None = None
    """Of a look at a test set: which."""
    before: str = ""
    """Hash of the line before this one; "" for the first."""


class LedgerEnd(NamedTuple):
    """How a run stood when it ended or was deleted."""

    state: str
    reason: str | None = None
    metric: str | None = None
    value: float | None = None


class Ledger(NamedTuple):
    """What was read: the events in order, and a sentence for each place where the chain is broken."""

    path: Path
    events: list[LedgerEvent]
    breaks: list[str]
    unreadable: Sequence[str] = ()
    """Lines that are no event, each with its reason: torn, or of a kind that this version does not know."""

    def of(self, *kinds: EventKind) -> Iterator[LedgerEvent]:
        return (event for event in self.events if event.event in kinds)


def ledger_path(root: Path | None = None) -> Path:
    """Beside the folder of runs; in it, where that is not a lab's `runs`."""
    root = (root or runs_dir()).absolute()
    return (root.parent if root.name == "runs" else root) / NAME


def about_run(kind: EventKind, run_id: str, record: RunRecord, end: LedgerEnd | None = None) -> LedgerEvent:
    """An event of a run, with what its run.json says."""
    return LedgerEvent(
        event=kind,
        run=run_id,
        preset=record.preset,
        study=record.study,
        config_hash=recorded_hash(record),
        method=recorded_method(record.config),
        seed=record.seed,
        role=record.tuning.role if record.tuning else None,
        state=end.state if end else None,
        reason=end.reason if end else None,
        metric=end.metric if end else None,
        value=end.value if end else None,
    )


def append(event: LedgerEvent, root: Path | None = None) -> None:
    """Adds a line; `root` is the folder of runs. Never fails what it tells about: a trouble is one sentence."""
    path = ledger_path(root)
    event = replace(event, when=event.when or time.time(), who=event.who or f"{process.user_name()}@{process.host()}")
    try:
        _append(path, event)
    except OSError as error:
        warn(f"{path} cannot be written ({error.strerror}): what is launched or deleted now is not counted.")


@functools.lru_cache(maxsize=8)
def warn(sentence: str) -> None:
    """Once, however many runs are launched."""
    print(f"oelm: {one_line(sentence)}", file=sys.stderr)


def _append(path: Path, event: LedgerEvent) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_shared_alike(path, os.O_RDWR | os.O_APPEND)
    try:
        _lock(descriptor)
        lines, torn = _last_lines(descriptor)
        head = _head(path)
        hashes = [_hash(line) for line in lines]
        # A head that is not among the last lines: some were cut off. Naming it keeps that visible for good.
        event.before = head if head and head not in hashes else hashes[-1] if hashes else ""
        line = msgspec.json.encode(event)
        content = b"\n" * torn + line + b"\n"
        if os.write(descriptor, content) < len(content):
            raise OSError(0, "the disk is full")
        os.fsync(descriptor)
        _write_head(path, _hash(line))
    finally:
        os.close(descriptor)  # and with it the lock goes


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:  # somebody else writes
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return


def _last_lines(descriptor: int) -> tuple[list[bytes], bool]:
    """(the last lines, whether the very last was cut short by a crash)."""
    size, length = os.fstat(descriptor).st_size, TAIL
    while True:
        content = os.pread(descriptor, length, max(0, size - length))
        whole = size <= length
        lines = content.split(b"\n")
        if whole or len(lines) > 2:
            break
        length *= 2
    lines = lines if whole else lines[1:]
    torn = bool(lines[-1])
    return (lines if torn else lines[:-1]), torn


def _hash(line: bytes) -> str:
    import hashlib  # late: a waiting runner does without its library

    return hashlib.sha256(line).hexdigest()[:32]


def _head(path: Path) -> str:
    try:
        return read_small_file(path.with_suffix(".head"), follow=True).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _write_head(path: Path, value: str) -> None:
    with contextlib.suppress(OSError):  # it may lag behind: the lines themselves are there
        descriptor = open_shared_alike(path.with_suffix(".head"), os.O_WRONLY)
        try:
            os.write(descriptor, value.encode() + b"\n")  # always as long as before
        finally:
            os.close(descriptor)


def read_ledger(root: Path | None = None) -> Ledger:
    """The events of the ledger that belongs to a folder of runs; none where there is no ledger yet."""
    path = ledger_path(root)
    head = _head(path)  # first: what it names is then surely among the lines
    try:
        content = read_small_file(path, "ledger", follow=True)
    except FileNotFoundError:
        content = b""
    except OSError as error:
        return Ledger(path, [], [f"it cannot be read: {error.strerror}"])
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    events: list[LedgerEvent] = []
    breaks: list[str] = []
    unreadable: list[str] = []
    seen: set[str] = set()
    last = ""
    for number, line in enumerate(lines, 1):
        try:
            event = decode(line, LedgerEvent)
        except Misfit as misfit:  # it stays in the chain
            unreadable.append(f"unreadable: {NAME}, line {number}, {misfit}")
        else:
            events.append(event)
            if event.before != last and event.before not in seen:
                breaks.append(_place(number))
        last = _hash(line)
        seen.add(last)
    if head and head not in seen:
        breaks.append(
            f"the last line that was written is gone: line {len(lines)} was changed, or lines after it removed"
        )
    return Ledger(path, events, breaks, unreadable)


def _place(number: int) -> str:
    """Where a chain is broken, found at this line."""
    if number == 1:
        return "lines before line 1 were removed"
    return f"line {number - 1} was changed, or lines between it and line {number} were removed"
