"""Kills and other faults at random, and the promises that must hold whatever was done."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oelm_core.errors import LabError
from oelm_core.launch import local
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Headline, Outcome, Result, RunRecord, RunState
from oelm_core.runs.status import FINAL, LIVE, run_status
from oelm_core.runs.store import Run, list_runs
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.lab import Lab
from tests.stand_in_worker import headline, next_value

STEPS = 60
AT_ONCE = 5
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP)
REPOSITORY = Path(__file__).resolve().parents[2]


class Monkey:
    """Keeps a few runs going, does harm at random, resumes what ended early, and remembers every broken promise."""

    def __init__(self, lab: Lab, seed: int, say: bool = False, small_disk: bool = False, resumers: int = 20) -> None:
        self.lab = lab
        self.small_disk = small_disk
        """Whether the lab is on a disk of its own that can be filled."""
        self.resumers = resumers
        self.faults: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """How runs ended, by state and reason."""
        self.errors: list[str] = []
        """What runs said that failed for no reason with a name of its own."""
        self.cut: dict[str, str] = {}
        """Runs whose newest checkpoint was cut short, and its name."""
        self.removed: list[Path] = []
        self.bystander = subprocess.Popen(["sleep", "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.dice = random.Random(seed)
        self.say = say
        self.kills: Counter[str] = Counter()
        self.resumes = 0
        self.broken: list[str] = []
        self.thaw: list[tuple[float, int, float]] = []  # (when, pid, its birth)
        self.launchers: list[subprocess.Popen[bytes]] = []
        self._seen: set[str] = set()

    def rampage(self, kills: int, with_ranks: int = 0) -> None:
        """So many kills; `with_ranks` of them in runs of two ranks."""
        while sum(self.kills.values()) < kills:
            self.shepherd()
            self._feed()
            done = sum(self.kills.values())
            self._kill_one(ranked=with_ranks > 0 and done >= kills - with_ranks)
            time.sleep(self.dice.uniform(0.0, 0.25))
        self.settle()

    def torment(self, times: int, faults: Sequence[Fault] = FAULTS, share_of_kills: float = 0.4) -> None:
        """So many faults of all kinds, each kind once before any is left to chance; a share of the rest are kills."""
        first = list(faults)
        self.dice.shuffle(first)
        misses = 0
        while sum(self.kills.values()) + sum(self.faults.values()) < times and misses < 5 * times + 50:
            misses += 1
            self.shepherd()
            self._feed()
            if not first and self.dice.random() < share_of_kills:
                self._kill_one(ranked=False)
                continue
            fault = first[0] if first else self.dice.choice(faults)
            with contextlib.suppress(LabError):  # such as a disk that is full just now
                if fault(self):
                    self.faults[fault.__name__] += 1
                    first = first[1:] if first and first[0] is fault else first
                    if self.say:
                        print(f"{sum(self.faults.values())}: {fault.__name__}", flush=True)
            time.sleep(self.dice.uniform(0.0, 0.1))
        self.settle()

    def training(self, steps: int = 1) -> RunFolder | None:
        """A run that trains, after so many steps of it; None when there is none in time."""

        def found() -> RunFolder | None:
            self._thaw(time.monotonic())
            runs = [run.folder for run in list_runs() if run.state == "running" and _ranks(run.folder) == 1]
            ready = [run for run in runs if steps <= self.lab.step(run) < STEPS - 5 and self.lab.state(run).workers]
            return self.dice.choice(ready) if ready else None

        return self.soon(found, 5.0)

    def soon(self, holds: Callable[[], Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := holds()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return value

    def kill_all_of(self, run: RunFolder) -> bool:
        """Kills everything of a run, the runner first; whether it is gone now and was not over before."""
        state = run.read(RunState)
        pids = [] if state is None else [state.pid, *(worker.pid for worker in state.workers)]
        for pid in pids:
            if pid and process.birth(pid) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.soon(lambda: not process.with_argument(f"--run-folder={run.path}"), 10.0)
        return run_status(run).state not in {*LIVE, "finished"}

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
                if run.folder.path in self.removed or not run.folder.path.is_dir():
                    continue
                self.broken.append(f"{run.id} cannot be read: {run.message}")
            elif run.state not in LIVE:
                if _ranks(run.folder) == 1:
                    self._check_nobody_trains(run.folder, run.state)
                self._check_it_is_named(run)
                if run.state != "finished":
                    self._resume(run.folder)

    def _check_it_is_named(self, run: Run) -> None:
        end = f"{run.id} {run.state} {run.attempt}"
        if end not in self._seen:
            self._seen.add(end)
            self.ends[run.state_and_reason] += 1
            if run.reason == "error":
                self.errors.append(f"{run.id}: {run.message}")
        if (run.state == "lost" and not run.message) or (run.state != "lost" and not run.reason):
            self.broken.append(f"{run.id} ended as {run.state} without a reason")
        skipped = self.cut.get(run.id)
        if skipped and run.state == "finished":
            del self.cut[run.id]
            if f"checkpoint {skipped} is skipped" not in run.folder.log.read_text(errors="replace"):
                self.broken.append(f"{run.id} says nothing of {skipped}, which was cut short")

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
            with contextlib.suppress(LabError):  # a disk that is full just now
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
        self.bystander.kill()
        self.bystander.wait()
        self.broken += [f"{path} came back" for path in self.removed if path.exists()]
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
