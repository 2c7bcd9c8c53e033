"""Random kills of launchers, runners, workers and ranks, and the promises that must hold whatever was killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from oelm_core.errors import LabError
from oelm_core.launch import local
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Headline, Outcome, Result, RunRecord, RunState
from oelm_core.runs.status import FINAL, LIVE, run_status
from oelm_core.runs.store import list_runs
from tests.chaos.lab import Lab
from tests.stand_in_worker import headline, next_value

STEPS = 60
AT_ONCE = 5
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP)
REPOSITORY = Path(__file__).resolve().parents[2]


class Monkey:
    """Keeps a few runs going, kills at random, resumes what ended early, and remembers every broken promise."""

    def __init__(self, lab: Lab, seed: int, say: bool = False) -> None:
        self.lab = lab
        self.dice = random.Random(seed)
        self.say = say
        self.kills: Counter[str] = Counter()
        self.resumes = 0
        self.broken: list[str] = []
        self.thaw: list[tuple[float, int, float]] = []  # (when, pid, its birth)
        self.launchers: list[subprocess.Popen[bytes]] = []

    def rampage(self, kills: int, with_ranks: int = 0) -> None:
        """So many kills; `with_ranks` of them in runs of two ranks."""
        while sum(self.kills.values()) < kills:
            self.shepherd()
            self._feed()
            done = sum(self.kills.values())
            self._kill_one(ranked=with_ranks > 0 and done >= kills - with_ranks)
            time.sleep(self.dice.uniform(0.0, 0.25))
        self.settle()

    def settle(self, timeout: float = 240.0) -> None:
        """Lets every run come to its end and checks what must be true then."""
        deadline = time.monotonic() + timeout
        while True:
            self.shepherd()
            runs = list_runs()
            if all(run.state == "finished" for run in runs) and not self.lab.processes():
                break
            if time.monotonic() > deadline:
                left = [f"{run.id} {run.state} {run.message}" for run in runs if run.state != "finished"]
                self.broken.append(f"not over in time: {left or self.lab.processes()}")
                break
            time.sleep(0.05)
        self._check_the_end()

    def shepherd(self) -> None:
        """Wakes the frozen, checks that no state lies, resumes what ended early."""
        self._thaw(time.monotonic())
        for run in list_runs():
            if run.state == "unknown":
                self.broken.append(f"{run.id} cannot be read: {run.message}")
            elif run.state not in LIVE:
                if _ranks(run.folder) == 1:
                    self._check_nobody_trains(run.folder, run.state)
                if run.state != "finished":
                    self._resume(run.folder)

    def _check_nobody_trains(self, folder: RunFolder, state: str) -> None:
        """A run that is said to be over has no worker any more; only its runner may be on its way out."""
        for pid in process.with_argument(f"--run-folder={folder.path}"):
            if "stand_in_worker" in process.read_text(f"/proc/{pid}/cmdline"):
                self.broken.append(f"{folder.id} is {state}, yet its worker {pid} lives")

    def _resume(self, folder: RunFolder) -> None:
        with contextlib.suppress(LabError):  # a process of it may need a moment more; we come again
            local.resume(folder)
            self.resumes += 1

    def _feed(self) -> None:
        living = [run for run in list_runs() if run.state in LIVE]
        for _ in range(AT_ONCE - len(living)):
            self.lab.start(steps=STEPS, seed=self.dice.randrange(1000))

    def _kill_one(self, ranked: bool) -> None:
        target = "rank" if ranked else self.dice.choice(("launcher", "runner", "worker", "worker"))
        number = self.dice.choice(SIGNALS)
        if target == "launcher":
            self._kill_a_launcher(number)
        elif target == "rank":
            self._kill_a_rank(number)
        else:
            victims = [run.folder for run in list_runs() if run.state in LIVE]
            state = self.dice.choice(victims).read(RunState) if victims else None
            workers = [worker.pid for worker in state.workers] if state else []
            pid = state.pid if state and target == "runner" else next(iter(workers), None)
            if pid:
                self._send(pid, number, target)

    def _kill_a_launcher(self, number: signal.Signals) -> None:
        """A launcher in a process of its own, hit somewhere between its first import and its last line."""
        script = f"from tests.chaos.lab import Lab; from pathlib import Path; Lab(Path({str(self.lab.folder)!r}))"
        seed = self.dice.randrange(1000)
        launcher = subprocess.Popen(
            [sys.executable, "-c", f"{script}.start(steps={STEPS}, seed={seed})"], cwd=REPOSITORY
        )
        self.launchers.append(launcher)
        there = len(list(self.lab.root.glob("*-s*")))
        deadline = time.monotonic() + self.dice.uniform(0.3, 5.0)
        while time.monotonic() < deadline and len(list(self.lab.root.glob(".new-*"))) == 0:
            if len(list(self.lab.root.glob("*-s*"))) > there:
                break
            time.sleep(0.001)
        self._send(launcher.pid, number, "launcher")

    def _kill_a_rank(self, number: signal.Signals) -> None:
        """One of two ranks."""
        ranked = [
            run for run in list_runs() if run.preset == "stand-in" and run.state in LIVE and _ranks(run.folder) > 1
        ]
        if not ranked:
            folder = self.lab.start(steps=STEPS * 4, seed=self.dice.randrange(1000), per_run=2)
            self.lab.until(lambda: self._has_begun(folder), 120, "the ranks' first step")
            return
        state = self.dice.choice(ranked).folder.read(RunState)
        if state and state.workers:
            self._send(self.dice.choice(state.workers).pid, number, "rank")

    def _has_begun(self, folder: RunFolder) -> bool:
        self._thaw(time.monotonic())  # a frozen run may hold the core that the ranks wait for
        return self.lab.step(folder) > 0 or run_status(folder).state not in LIVE

    def _send(self, pid: int, number: signal.Signals, target: str) -> None:
        born = process.birth(pid)
        if born is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.kills[f"{target} {number.name}"] += 1
            if self.say:
                print(f"{sum(self.kills.values())}: {number.name} to {target} {pid}", flush=True)
        if number == signal.SIGSTOP:
            self.thaw.append((time.monotonic() + self.dice.uniform(0.1, 1.5), pid, born))

    def _thaw(self, now: float) -> None:
        for when, pid, born in list(self.thaw):
            if now >= when:
                self.thaw.remove((when, pid, born))
                if process.birth(pid) == born:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, self.dice.choice((signal.SIGCONT, signal.SIGCONT, signal.SIGKILL)))
        self.launchers = [launcher for launcher in self.launchers if launcher.poll() is None]

    def _check_the_end(self) -> None:
        for run in list_runs():
            folder = run.folder
            if run.state == "finished":
                result, steps = folder.read(Result), int(run.setting("train.max_steps"))
                if result is None or result.metric != final_metric(run.seed, steps):
                    self.broken.append(f"{run.id} ended at another result")
                made = len(read_metrics(folder.metrics, "train"))
                if made != steps:
                    self.broken.append(f"{run.id} has {made} training records")
            state = folder.read(RunState)
            if (state is None or state.state not in FINAL) and folder.read(Outcome) is None:
                self.broken.append(f"{run.id} has no last word")
        if self.lab.held():
            self.broken.append(f"leases still held: {self.lab.held()}")
        if self.lab.processes():
            self.broken.append(f"processes left: {self.lab.processes()}")
        waiting = [path.name for path in (self.lab.leases / "line").glob("[0-9]*")]
        alive = [name for name in waiting if _ticket_counts(self.lab, name)]
        if alive:
            self.broken.append(f"tickets left in the queue: {alive}")


def final_metric(seed: int, steps: int) -> Headline:
    """What a stand-in that was never interrupted ends with."""
    value = seed
    for step in range(1, steps + 1):
        value = next_value(value, step)
    return headline(value)


def _ranks(folder: RunFolder) -> int:
    record = folder.read(RunRecord)
    return record.per_run if record else 1


def _ticket_counts(lab: Lab, name: str) -> bool:
    """Whether others would still wait behind this ticket."""
    from oelm_core.launch import queue

    return queue.read(lab.leases / "line" / name).is_live
