"""Carries a run's points to a target: once, or as long as the run goes on. It only reads what training writes.

What is new is read from metrics.jsonl, handed to the target, and only then written down in the run's `mirror/`: a
bridge that dies, or a network that does, is caught up with by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from oelm_core.errors import LabError, Refused, first_line, refusing
from oelm_core.mirror import targets
from oelm_core.mirror.card import RunCard, card_of, digest, end_of
from oelm_core.mirror.points import Point, mark, new_points
from oelm_core.runs.folder import RunFolder, read_record, write_record
from oelm_core.runs.schema import Mirrored
from oelm_core.runs.store import Run, read_run

LOOK_EVERY = 1.0
"""Seconds between two looks at a run that goes on."""
PATIENCE = 600.0
"""Seconds that a target may stay away once the run is over."""
LONGEST_PAUSE = 300.0


class Trouble(LabError):
    """A target did not take what it was given; nothing is lost, and the next turn brings it again."""


class Busy(Refused):
    """Another bridge is at it."""


class Carried(NamedTuple):
    """What was brought to a target."""

    points: int
    place: str
    """A folder or an address."""


class Bridge:
    """From one run to one target, which is opened when there is something for it and stays open until `close`."""

    def __init__(self, folder: RunFolder, name: str, where: Path | None = None) -> None:
        self.folder, self.name = folder, name
        self.target = targets.make(name, where, home_of(folder))
        self.file = _file(folder, name, self.target.place)
        self.kept = self._read()
        self.brought = 0
        self._is_open = False

    def turn(self, run: Run) -> None:
        """Brings what is new by now, and how the run ended where it has. Trouble when the target does not take it."""
        card, end = card_of(run, self.folder), end_of(run, self.folder)
        with self._troubled():
            points = self._look()
            if not points and not self.kept.points and end is None:
                return  # it waits, or has only started
            if not points and digest(card) == self.kept.card and (end is None or digest(end) == self.kept.end):
                return
            self._open(card)
            if digest(card) != self.kept.card:
                self.target.tell(card, self.kept)
                self.kept.card = digest(card)
            while points := self._look():
                self.target.write(points, self.draft)
                self.brought += len(points)
                self.kept = self.draft
                self._keep()
            if end is not None and digest(end) != self.kept.end:
                self.target.end(end, self.kept)
                self.kept.end = digest(end)
            self.kept.problem = None
            self._keep()

    def close(self) -> None:
        """Ends what was opened; only now is it certain that all of it is there."""
        if self._is_open:
            self._is_open = False
            with self._troubled():
                self.target.close()
                write_record(self.file, self.kept)

    def _look(self) -> list[Point]:
        self.draft = replace(self.kept, steps=dict(self.kept.steps))
        return new_points(self.folder.metrics, self.draft)

    def _open(self, card: RunCard) -> None:
        if self._is_open:
            return
        self._is_open = True
        if not self.target.open(card, self.kept):  # what was there before is there no longer: all of it again
            found = self.kept
            self.kept = Mirrored(target=found.target, place=found.place, run=found.run, size=found.size)

    def _keep(self) -> None:
        if not self.target.keeps_at_close:
            write_record(self.file, self.kept, durable=False)

    def _read(self) -> Mirrored:
        kept = read_record(self.file, Mirrored)
        fresh = Mirrored(target=self.name, place=self.target.place)
        return kept if kept is not None and self.target.is_there(kept) else fresh

    @contextlib.contextmanager
    def _troubled(self) -> Iterator[None]:
        try:
            yield
        except LabError:
            raise
        except Exception as error:  # another library's, whatever it was; training goes on
            title = targets.TARGETS[self.name].title
            words = f"{title} did not take it: {type(error).__name__}: {first_line(error)}."
            if self._is_open:
                with contextlib.suppress(Exception):
                    self.target.close()
            kept = self._read()  # what is certain
            kept.problem = words
            with contextlib.suppress(OSError):
                write_record(self.file, kept)
            raise Trouble(words) from error


def carry(folder: RunFolder, target: str, where: Path | None = None) -> Carried:
    """Brings all that a run has by now. Trouble, or Busy while another bridge is at it."""
    bridge = Bridge(folder, target, where)
    with _alone(bridge):
        bridge.turn(read_run(folder))
        bridge.close()
    return Carried(bridge.brought, bridge.target.place)


def follow(folder: RunFolder, target: str, *, rest: Callable[[float], None] = time.sleep) -> str | None:
    """Carries until the run is over and all of it is there; a sentence where it gives up.

    While it waits for a target that was in trouble, another may try: `oelm mirror`.
    """
    failures, over_since = 0, None
    while folder.path.is_dir():  # else it was deleted
        bridge = Bridge(folder, target)
        try:
            with _alone(bridge):
                _stay(bridge, rest)
            return None
        except Busy:  # that of the attempt before is at its last points, or has seen that the run goes on
            rest(LOOK_EVERY)
            continue
        except Trouble as error:
            problem = str(error)
        failures = 1 if bridge.brought else failures + 1
        over_since = (over_since or time.monotonic()) if read_run(folder).is_over else None
        if over_since is not None and time.monotonic() - over_since > PATIENCE:
            return f"{problem} It catches up with: oelm mirror {folder.id} --to {target}"
        rest(min(LOOK_EVERY * 2 ** min(failures, 10), LONGEST_PAUSE))
    return None


def _stay(bridge: Bridge, rest: Callable[[float], None]) -> None:
    """Carries until the run is over."""
    while bridge.folder.path.is_dir():
        run = read_run(bridge.folder)
        bridge.turn(run)
        if run.is_over:
            bridge.close()
            return
        rest(LOOK_EVERY)


def home_of(folder: RunFolder) -> Path:
    return folder.path.absolute().parent.parent


def records(folder: RunFolder) -> list[Mirrored]:
    """Where a run's curves went, and how far."""
    found = [read_record(file, Mirrored) for file in sorted((folder.path / "mirror").glob("*.json"))]
    return [one for one in found if one is not None]


def _file(folder: RunFolder, target: str, place: str) -> Path:
    inside = folder.path / "mirror"
    with refusing(f"cannot write in {folder.path}"):
        if inside.is_symlink():
            raise Refused(f"{inside} is a link, which is not followed.")
        inside.mkdir(exist_ok=True)
    return inside / f"{target}-{mark(place.encode())[:8]}.json"


@contextlib.contextmanager
def _alone(bridge: Bridge) -> Iterator[None]:
    """Of two bridges to one place, one works."""
    path = bridge.file.with_suffix(".lock")
    with refusing(f"cannot write {path}"):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "?"
            raise Busy(f"process {who} is bringing {bridge.folder.id} to {bridge.name} at this moment.") from None
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
