"""The processes that train one run, a rank each: told, killed and reaped on the machine that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from oelm_core.launch import worker_exit
from oelm_core.launch.ending import look, stuck_sentence
from oelm_core.launch.worker_exit import RankEnd
from oelm_core.runs import process
from oelm_core.runs.status import RunStatus


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class RankProcesses:
    """Children of this process, and whatever they left behind."""

    def __init__(self, send: Callable[[int, signal.Signals], None] = send) -> None:
        self.pids: dict[int, int] = {}
        """By rank."""
        self.ends: dict[int, RankEnd] = {}
        self.told: set[int] = set()
        """Ranks that were told to end."""
        self.looks: dict[int, str] = {}
        """What the kernel said of ranks that others gave up on."""
        self._send = send
        self._kills_before = worker_exit.kernel_kills()

    @property
    def started(self) -> bool:
        return bool(self.pids)

    @property
    def own_pids(self) -> list[int]:
        """Processes that this one started."""
        return list(self.pids.values())

    @property
    def kernel_killed(self) -> bool:
        """Whether the out-of-memory killer has struck since they were started."""
        return worker_exit.kernel_kills() > self._kills_before

    @property
    def missing(self) -> list[int]:
        """Ranks of which nobody will say how they ended."""
        return []

    def note(self, rank: int, pid: int) -> None:
        self.pids[rank] = pid

    def living(self) -> list[int]:
        return [rank for rank in self.pids if rank not in self.ends]

    def gone(self) -> bool:
        """Reaps whoever ended; true once no descendant is left."""
        ranks = {pid: rank for rank, pid in self.pids.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self._reaped(pid, os.waitstatus_to_exitcode(status), ranks.get(pid))

    def _reaped(self, pid: int, code: int, rank: int | None) -> None:
        if rank is not None:
            self.ends[rank] = RankEnd(code, time.time(), rank in self.told)

    def tell(self, number: signal.Signals) -> None:
        """Every rank is to save and end."""
        self.told.update(self.living())
        for rank in self.living():
            self._send(self.pids[rank], number)
            self._send(self.pids[rank], signal.SIGCONT)  # a frozen worker must wake to save

    def end_others(self, failed: int) -> None:
        """Without its peer a rank can neither go on nor save: each may say what it saw, and is killed later."""
        for rank in self.living():
            self.looks[rank] = look(self.pids[rank])
            if rank != failed:
                self.told.add(rank)
                self._send(self.pids[rank], signal.SIGTERM)

    def clear(self) -> None:
        """Leftovers of ranks that are gone have nothing to save."""
        self._signal_all(signal.SIGTERM)

    def kill(self) -> None:
        self._signal_all(signal.SIGKILL)

    def stuck(self) -> str:
        """Names those who live on after a kill."""
        several = len(self.pids) > 1
        names = {self.pids[rank]: f"rank {rank}" if several else "worker" for rank in self.living()}
        return stuck_sentence(process.descendants(), names)

    def trouble(self, log_tail: str) -> RunStatus | None:
        """What became of the run because of something else than its ranks; None where nothing did."""
        return None

    def _signal_all(self, number: signal.Signals) -> None:
        self.told.update(self.living())
        for pid in process.descendants():
            self._send(pid, number)
