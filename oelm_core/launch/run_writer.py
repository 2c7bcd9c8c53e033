"""What a runner writes about its run: state.json with its heartbeat, and the attempt; a full disk never ends it."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable

from msgspec.structs import asdict

from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, RunState, WorkerProgress

HEARTBEAT = 0.9
"""Seconds between two heartbeats of a running run; while waiting, ten times as long."""
PASSING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN)
"""Troubles of a disk that may pass."""


class RunWriter:
    """The records of one attempt, kept by the one process that may write them."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.attempt = Attempt()
        self.state = RunState(state="waiting")
        self._written: dict[str, object] | None = None
        self._last_beat = float("-inf")

    def beat(self, force: bool = False) -> None:
        """state.json, at least once a second while running; at once when something but the time changed."""
        now = time.monotonic()
        news = {**asdict(self.state), "heartbeat": None}
        gap = HEARTBEAT * 10 if self.state.state == "waiting" else HEARTBEAT
        if not force and news == self._written and now - self._last_beat < gap:
            return
        self._written, self._last_beat = news, now
        self.state.heartbeat = time.time()
        with contextlib.suppress(OSError):  # a full disk ends the worker, not the one who tells about it
            self.folder.write(self.state, durable=force)

    def take_progress(self) -> None:
        """The worker's step and total, as it last told them."""
        progress = self.folder.read(WorkerProgress)
        if progress is None:
            return
        self.state.step, self.state.total = progress.step, progress.total
        if self.state.state == "starting" and progress.step > 0:
            self.state.state = "running"

    def take_last_step(self) -> None:
        """Where the worker said it ended: its progress, told twice a second, is a few steps older."""
        said = outcomes.last_word(self.folder)
        self.state.step = max(self.state.step, said.step if said else 0)

    def insist(self, write: Callable[[], None], seconds: float = 60.0) -> None:
        """Tries for a while: a disk that is full now may have room once the worker's files are gone."""
        deadline = time.monotonic() + seconds
        while self.folder.path.is_dir():
            try:
                write()
                return
            except OSError as error:
                if error.errno not in PASSING_ERRORS or time.monotonic() > deadline:
                    print(f"cannot write the end of {self.folder.id}: {error}", file=sys.stderr)
                    return
                time.sleep(1.0)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder.path / name)
