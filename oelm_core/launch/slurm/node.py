"""The supervisor of one node: starts its ranks, obeys the runner on the first node, and tells it how each ended.

srun starts it, and brings it the runner's lines. Its standard output is for the runner, its standard error the log.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path

import msgspec

from oelm_core import patience
from oelm_core.launch import spawn
from oelm_core.launch.ending import Ending
from oelm_core.launch.ranks import RankProcesses
from oelm_core.launch.slurm.spread import END, KILL, NodeWord

LISTEN = 5.0
"""Seconds between two looks when nothing happens."""


class Supervisor:
    """The ranks of one node, from their start to the last descendant's end."""

    def __init__(self, arguments: dict[str, str], node: int, name: str) -> None:
        self.arguments, self.node, self.name = arguments, node, name
        self.here = int(arguments["--here"])
        self.ranks = RankProcesses()
        self.ending = Ending()
        self._said: set[int] = set()
        self._rest = b""
        self._input: int | None = 0

    def run(self, wake: int) -> None:
        """`wake`: a descriptor that can be read when a signal came."""
        problem = self.start()
        if problem:
            self.say(NodeWord(self.node, self.name, problem=problem))
            return
        self.say(NodeWord(self.node, self.name))
        cleared = False
        while not self.ranks.gone():
            self.tell_ends()
            now = time.monotonic()
            if not self.ranks.living() and not cleared:
                cleared = True
                self.ending.by(now + 5.0)
                self.ranks.clear()
            if self.ending.kills(now):
                self.ranks.kill()
            self.listen(wake, 0.2 if self.ending.is_set else LISTEN)
        self.tell_ends()
        self.say(NodeWord(self.node, self.name, done=True))

    def start(self) -> str:
        """Starts every rank of this node; a sentence where that cannot be."""
        kind, threads = self.arguments["--kind"], self.arguments["--threads"]
        cards = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one not in ("", "NoDevFiles")]
        if kind == "cuda" and len(cards) < self.here:
            return (
                f"Slurm gave {len(cards)} of {self.here} cards to the step on {self.name}; set cards_by in slurm.yaml."
            )
        folder, ranks = Path(self.arguments["--run-folder"]), int(self.arguments["--nodes"]) * self.here
        environment = spawn.environment(kind, cards, int(threads) if threads else None)
        address, _, port = self.arguments["--meet"].rpartition(":")
        for local in range(self.here):
            rank = self.node * self.here + local
            variables = spawn.rank_environment(rank, ranks, int(port), local=local, here=self.here, address=address)
            spawn.spawn(
                spawn.worker_command(folder, self.arguments["--worker"] or None),
                cwd=Path(self.arguments["--cwd"]),
                environment={**environment, **variables},
                log=None,
                cores=(),
                record=partial(self.ranks.note, rank),
            )
        return ""

    def tell_ends(self) -> None:
        for rank, end in self.ranks.ends.items():
            if rank not in self._said:
                self._said.add(rank)
                look = self.ranks.looks.get(rank, "")
                self.say(NodeWord(self.node, self.name, rank, *end, look, self.ranks.kernel_killed))

    def say(self, word: NodeWord) -> None:
        os.write(1, msgspec.json.encode(word) + b"\n")

    def listen(self, wake: int, seconds: float) -> None:
        inputs = [wake] if self._input is None else [wake, self._input]
        ready, _, _ = select.select(inputs, [], [], seconds)
        if wake in ready:
            os.read(wake, 4096)
        if self._input is None or self._input not in ready:
            return
        chunk = os.read(self._input, 4096)
        if not chunk:  # srun or the runner is gone
            self._input = None
            self.ranks.tell(signal.SIGTERM)
            self.ending.by(time.monotonic() + patience.GRACE.seconds())
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self.obey(line.decode())

    def obey(self, order: str) -> None:
        word, _, which = order.partition(" ")
        if word == KILL:
            self.ending.by(time.monotonic())
        elif word == END:
            self.ranks.end_others(int(which))
            self.ending.by(time.monotonic() + patience.RANK_GRACE.seconds())
        else:
            self.ranks.tell(signal.Signals[word])


def main(argv: list[str] | None = None) -> int:
    arguments = dict(part.partition("=")[::2] for part in (sys.argv[1:] if argv is None else argv))
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for number in spawn.SIGNALS:  # they only wake us: Slurm sends its own to the ranks as well
        signal.signal(number, lambda *_: None)
    name = os.environ.get("SLURMD_NODENAME", "")
    Supervisor(arguments, int(os.environ.get("SLURM_NODEID", "0")), name).run(wake)
    return 0


if __name__ == "__main__":
    sys.exit(main())
