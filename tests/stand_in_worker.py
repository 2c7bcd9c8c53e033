"""A worker without torch: counts steps, checkpoints, resumes and ends exactly as the contract asks of a real one.

What it does is read from `config.train`: max_steps, and from the environment: STAND_IN_STEP (seconds a step takes),
STAND_IN_FAIL ("exit:3", "kill", "raise", "silent", "outcome:oom" at STAND_IN_FAIL_AT, of STAND_IN_FAIL_RANK or all),
STAND_IN_STUBBORN (ignore TERM), STAND_IN_PEERS (ranks meet, and fail when another is gone).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder, write_record
from oelm_core.runs.metrics_file import MetricsWriter, cut_lines
from oelm_core.runs.schema import Headline, Outcome, Result, RunRecord, WorkerProgress, decode_metric
from oelm_core.training.supervision import guard


def next_value(value: int, step: int) -> int:
    return (value * 6364136223846793005 + step) % 2**61


def headline(value: int) -> Headline:
    """The number a run ended at, as its metric."""
    return Headline("accuracy", value / 2**61, "higher")


def meet(rank: int) -> list[socket.socket]:
    """Connections between the first rank and every other, by torch's variables."""
    address, port, others = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"]) - 1
    if rank == 0:
        with socket.create_server(("", port)) as server:
            return [server.accept()[0] for _ in range(others)]
    while True:
        try:
            return [socket.create_connection((address, port))]
        except ConnectionRefusedError:  # the first rank is not up yet
            time.sleep(0.05)


def is_any_lost(peers: list[socket.socket]) -> bool:
    """Whether a peer is gone. One that says a word first, as at its own end, is no peer any more."""
    for one in select.select(peers, [], [], 0)[0]:
        if one.recv(1) == b"":
            return True
        peers.remove(one)
    return False


class Worker:
    """Sums a sequence that depends on the seed and the step alone, so a resumed run must end at the same number."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.run = folder.read(RunRecord)
        assert self.run is not None
        self.total = int(self.run.setting("train.max_steps"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.stop_with: signal.Signals | None = None
        self.step, self.value = 0, self.run.seed or 0

    def main(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._asked)
        guard(self.folder).start(lambda number: self._asked(number, None))
        try:
            return self._train()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            with contextlib.suppress(OSError):
                outcomes.write(
                    self.folder, self.rank, Outcome("failed", "disk", "the disk is full", self.step, t=time.time())
                )
            os._exit(74)

    def _train(self) -> int:
        self._restore()
        peers = meet(self.rank) if {"STAND_IN_PEERS", "MASTER_ADDR"} <= set(os.environ) else []
        metrics = MetricsWriter(self.folder.metrics) if self.rank == 0 else None
        pace = float(os.environ.get("STAND_IN_STEP", "0.02"))
        print(f"stand-in {os.getpid()} rank {self.rank} starts at step {self.step}", flush=True)
        for name in ("OELM_DEVICE", "CUDA_VISIBLE_DEVICES", "OELM_THREADS", "WORLD_SIZE"):
            print(f"{name}={os.environ.get(name)}", flush=True)
        while self.step < self.total and self.stop_with is None:
            time.sleep(pace)
            if is_any_lost(peers):
                lost = Outcome("failed", "error", "another rank is gone.", self.step, consequence=True, t=time.time())
                outcomes.write(self.folder, self.rank, lost)
                return 1
            self.step += 1
            self.value = next_value(self.value, self.step)
            self._misbehave()
            if metrics is not None:
                metrics.write("train", self.step, loss=1 / self.step)
                self._progress()
                if self.step % 5 == 0:
                    metrics.write("eval", self.step, accuracy=self.step / self.total, perplexity=2.0)
                    self._checkpoint()
        for one in peers:
            one.sendall(b"!")
        return self._end()

    def _end(self) -> int:
        finished = self.step >= self.total
        if self.rank == 0:
            self._checkpoint()
            if finished:
                self.folder.write(Result(metric=headline(self.value)))
        state, reason = ("finished", "completed") if finished else ("stopped", "signal")
        outcomes.write(self.folder, self.rank, Outcome(state, reason, step=self.step, t=time.time()))
        return 75 if self.rank == 0 and self.stop_with == signal.SIGUSR2 else 0

    def _asked(self, number: int, _: object) -> None:
        if not os.environ.get("STAND_IN_STUBBORN"):
            self.stop_with = signal.Signals(number)

    def _misbehave(self) -> None:
        how = os.environ.get("STAND_IN_FAIL", "")
        if not how or self.step != int(os.environ.get("STAND_IN_FAIL_AT", "3")):
            return
        if self.rank != int(os.environ.get("STAND_IN_FAIL_RANK", self.rank)):
            return
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise RuntimeError("the stand-in was asked to fail")
        if how == "silent":
            os._exit(0)
        if how.startswith("exit:"):
            os._exit(int(how.partition(":")[2]))
        if how.startswith("outcome:"):
            reason = how.partition(":")[2]
            outcomes.write(self.folder, self.rank, Outcome("failed", reason, "as asked", self.step, t=time.time()))
            os._exit(1)

    def _progress(self) -> None:
        self.folder.write(WorkerProgress(self.step, self.total, time.time()), durable=False)

    def _checkpoint(self) -> None:
        """Written beside, renamed, then the link swapped."""
        final = self.folder.checkpoints / f"step-{self.step}"
        draft = self.folder.checkpoints / f".step-{self.step}.{os.getpid()}"
        if not final.exists():
            draft.parent.mkdir(exist_ok=True)
            draft.mkdir()
            write_record(draft / "state.json", {"step": self.step, "value": self.value})
            os.rename(draft, final)
        link = self.folder.checkpoints / f".latest.{os.getpid()}"
        link.symlink_to(final.name)
        os.replace(link, self.folder.checkpoints / "latest")

    def _restore(self) -> None:
        made = sorted(self.folder.checkpoints.glob("step-*"), key=lambda path: int(path.name[5:]))
        for path in reversed(made):
            try:
                state = json.loads((path / "state.json").read_text())
            except ValueError:
                print(f"checkpoint {path.name} is skipped: its state.json is missing or unreadable", flush=True)
                shutil.rmtree(path)
                continue
            self.step, self.value = state["step"], state["value"]
            break
        if self.rank == 0:
            cut_lines(self.folder.metrics, self._is_kept)

    def _is_kept(self, line: bytes) -> bool:
        found = decode_metric(line)
        return found is not None and found.step <= self.step


if __name__ == "__main__":
    argument = next(part for part in sys.argv[1:] if part.startswith("--run-folder="))
    sys.exit(Worker(RunFolder(Path(argument.partition("=")[2]))).main())
