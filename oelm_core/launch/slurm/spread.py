"""Ranks on several nodes: one srun starts a supervisor on each, its input tells them, its output says how ranks ended.

So that nothing depends on the controller or on how fast a shared file system shows a file.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from oelm_core.launch import spawn
from oelm_core.launch.ranks import RankProcesses
from oelm_core.launch.slurm.job import NODE_PYTHON, Job, number_of
from oelm_core.launch.worker_exit import RankEnd, last_words, signal_of
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.status import RunStatus

FIRST_NODE = "OELM_MASTER_ADDR"
"""The first node's name or address, where the others do not find it by its host name."""
SUPERVISOR = "oelm_core.launch.slurm.node"
SECONDS_TO_ANSWER = 5.0
"""So long after the order to kill, srun is given up with the nodes that did not answer."""
END, KILL = "END", "KILL"
"""Orders besides the names of signals."""

# The shell outlives a supervisor that is killed or cannot be started, and says so.
_WRAPPED = '"$@" || printf \'{"node":%d,"name":"%s","gone":%d}\\n\' "$SLURM_NODEID" "$SLURMD_NODENAME" "$?"'


class NodeWord(Struct, omit_defaults=True):
    """One line from a node: that its ranks are started, that one has ended, that all have, or what is wrong there."""

    node: int
    name: str = ""
    rank: int | None = None
    code: int = 0
    at: float = 0.0
    told: bool = False
    look: str = ""
    kernel_killed: bool = False
    done: bool = False
    gone: int | None = None
    """Exit code of a supervisor that failed."""
    problem: str = ""


class Place(NamedTuple):
    """What every node is told of the run."""

    folder: RunFolder
    cwd: Path
    worker: str | None
    kind: str
    threads: int | None


class SpreadRanks(RankProcesses):
    """The ranks of all nodes as the runner on the first one sees them."""

    def __init__(self, job: Job, ranks: int, record: Callable[[], None]) -> None:
        super().__init__()
        self.job, self.here = job, ranks // job.nodes
        self._record = record
        self._srun: int | None = None
        self._orders, self._answers = -1, -1
        self._rest = b""
        self._words: dict[int, list[NodeWord]] = {node: [] for node in range(job.nodes)}
        self._killed_at: float | None = None
        self._oom = False

    def start(self, place: Place, environment: dict[str, str], port: int) -> None:
        """`environment` is this node's: cards and pids of the others are their own."""
        told, self._orders = os.pipe()
        self._answers, said = os.pipe()
        for end in (self._orders, self._answers):
            os.set_blocking(end, False)
        of_nodes = {
            key: value for key, value in environment.items() if key not in ("CUDA_VISIBLE_DEVICES", "OELM_RUNNER_PID")
        }
        try:
            spawn.spawn(
                self.command(place, port),
                cwd=place.cwd,
                environment=of_nodes,
                log=place.folder.log,
                cores=(),
                record=self._started,
                stdin=told,
                stdout=said,
            )
        finally:
            os.close(told)
            os.close(said)

    def command(self, place: Place, port: int) -> list[str]:
        """One srun with one task on each node. They meet at a port of this one, the first."""
        python = shlex.split(os.environ.get(NODE_PYTHON, "")) or [sys.executable]
        cores = number_of("SLURM_CPUS_PER_TASK")
        settings = {
            "run-folder": place.folder.path,
            "cwd": place.cwd,
            "worker": place.worker or "",
            "kind": place.kind,
            "threads": place.threads or "",
            "nodes": self.job.nodes,
            "here": self.here,
            "meet": f"{os.environ.get(FIRST_NODE) or process.host()}:{port}",
        }
        return [
            shutil.which("srun") or "srun",
            *(f"--nodes={self.job.nodes}", f"--ntasks={self.job.nodes}", "--ntasks-per-node=1", "--mpi=none"),
            *([f"--cpus-per-task={cores}"] if cores else []),  # since 22.05 srun no longer inherits it
            *("--kill-on-bad-exit=0", "--wait=0"),  # who ends when is for the runner to say
            *("sh", "-c", _WRAPPED, "node", *python, "-m", SUPERVISOR),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def _started(self, pid: int) -> None:
        self._srun = pid
        self._record()

    # -- what the runner asks ------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        return self._srun is not None

    @property
    def own_pids(self) -> list[int]:
        return [] if self._srun is None else [self._srun]

    @property
    def kernel_killed(self) -> bool:
        return self._oom

    @property
    def missing(self) -> list[int]:
        over = [node for node, words in self._words.items() if any(_is_over(word) for word in words)]
        return [rank for rank in self._all() if rank // self.here in over and rank not in self.ends]

    def living(self) -> list[int]:
        if self._srun is None:
            return []
        missing = self.missing
        return [rank for rank in self._all() if rank not in self.ends and rank not in missing]

    def gone(self) -> bool:
        ended = super().gone()  # before the last look: what was said then is there to be read
        self._hear()
        return ended

    def tell(self, number: signal.Signals) -> None:
        self._order(number.name)

    def end_others(self, failed: int) -> None:
        self._order(f"{END} {failed}")

    def clear(self) -> None:
        """Each supervisor does."""

    def kill(self) -> None:
        now = time.monotonic()
        if self._killed_at is None:
            self._killed_at = now
            self._order(KILL)
        elif now - self._killed_at > SECONDS_TO_ANSWER:
            self._signal_all(signal.SIGKILL)  # srun: a node that is gone would keep it for ever

    def stuck(self) -> str:
        silent = ", ".join(self._name(node) for node in self._silent())
        return f"Killed, but without an answer from {silent}." if silent else super().stuck()

    def trouble(self, log_tail: str) -> RunStatus | None:
        said = [word for words in self._words.values() for word in words]
        problem = next((word.problem for word in said if word.problem), None)
        if problem:
            return RunStatus("failed", "config", problem)
        words = last_words(log_tail)
        if not said:
            return RunStatus("failed", "error", f"srun could not start the ranks{': ' + words if words else '.'}")
        for word in said:
            if word.gone is not None:
                return self._of_supervisor(word, words)
        silent = self._silent()
        if not silent:
            return None
        names = " and ".join(self._name(node) for node in silent)
        return RunStatus("stopped", "node_fail", f"{names[0].upper()}{names[1:]} did not answer any more.")

    def _of_supervisor(self, word: NodeWord, words: str) -> RunStatus:
        killed_by = signal_of(word.gone)
        if killed_by:
            return RunStatus(
                "failed", "signal", f"The supervisor of the ranks on {word.name} was killed by {killed_by}."
            )
        text = f"The ranks on {word.name} could not be started (exit code {word.gone})"
        return RunStatus("failed", "error", f"{text}{': ' + words if words else '.'}")

    # -- orders and answers --------------------------------------------------------------------------------------

    def _order(self, line: str) -> None:
        with contextlib.suppress(OSError):  # srun is gone, and the nodes hear of that
            os.write(self._orders, f"{line}\n".encode())

    def _hear(self) -> None:
        while self._answers >= 0:
            try:
                chunk = os.read(self._answers, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                os.close(self._answers)
                self._answers = -1
                return
            self.heard(chunk)

    def heard(self, chunk: bytes) -> None:
        """Takes in what the nodes said; a line may come in pieces."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):  # a module's greeting, not a word of ours
                self._take(msgspec.json.decode(line, type=NodeWord))

    def _take(self, word: NodeWord) -> None:
        if word.node not in self._words:
            return
        self._words[word.node].append(word)
        self._oom = self._oom or word.kernel_killed
        if word.rank is not None:
            self.ends[word.rank] = RankEnd(word.code, word.at, word.told)
            self.looks[word.rank] = word.look

    def _all(self) -> range:
        return range(self.job.nodes * self.here)

    def _silent(self) -> list[int]:
        return [node for node, words in self._words.items() if not any(_is_over(word) for word in words)]

    def _name(self, node: int) -> str:
        named = next((word.name for word in self._words[node] if word.name), "")
        return f"node {named}" if named else f"node number {node + 1}"


def _is_over(word: NodeWord) -> bool:
    return word.done or word.gone is not None or bool(word.problem)
