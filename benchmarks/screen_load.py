"""What the screen has to bear: many runs, runs that move, logs and metrics files of the sizes that hurt."""

from __future__ import annotations

import bisect
import random
import subprocess
import threading
import time
from pathlib import Path

from msgspec.structs import asdict, replace

from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import MetricLine, Result, RunRecord, RunState, encode_metric
from tests.run_factory import experiment, write_run

LIVE = 20
POINTS = 500_000


def write_runs(home: Path, count: int) -> None:
    """Finished runs of forty presets, light but complete enough to list."""
    made = write_run(home / "runs", experiment("bench-0"), number=0).folder
    run = made.read(RunRecord)
    assert run
    for number in range(1, count):
        preset = f"bench-{number % 40}"
        folder = RunFolder(home / "runs" / f"{preset}-s{number}-20260203-{number:06d}-{number % 65536:04x}")
        folder.path.mkdir()
        folder.write(replace(run, id=folder.id, preset=preset, seed=number), durable=False)
        for name in (RunState.FILE, Result.FILE, made.metrics.name):
            (folder.path / name).hardlink_to(made.path / name)  # nobody writes into them


class LiveRuns:
    """Twenty runs, each with a process that carries its folder; `move` takes each a few records further."""

    def __init__(self, home: Path) -> None:
        self._runs: list[tuple[RunFolder, RunState]] = []
        self._runners: list[subprocess.Popen[bytes]] = []
        """They live until this end of their input is gone."""
        self._step = POINTS
        running = {"state": "running", "ended": None, "total": 1_000_000, "reason": None}
        for number in range(LIVE):
            run = write_run(home / "runs", experiment(f"live-{number}"), number=5000 + number, without=["result"])
            state = run.folder.read(RunState)
            assert state
            command = ["sh", "-c", "read _", f"--run-folder={run.folder.path}"]
            self._runners.append(subprocess.Popen(command, stdin=subprocess.PIPE))
            runner = {**asdict(process.me()), **asdict(process.identity(self._runners[-1].pid))}
            self._runs.append((run.folder, replace(state, **running, **runner)))
        self.move(1)

    def folder(self, place: int) -> RunFolder:
        return self._runs[place][0]

    def move(self, records: int) -> None:
        for folder, state in self._runs:
            now = time.time()
            lines = [self._record(now, self._step + number) for number in range(records)]
            with open(folder.metrics, "ab") as metrics:
                metrics.writelines(encode_metric(line) for line in lines)
            with open(folder.log, "a") as log:
                log.writelines(f"step {line.step} loss {line.values['loss']:.4f}\n" for line in lines)
            folder.write(replace(state, step=self._step + records, heartbeat=now), durable=False)
        self._step += records

    def _record(self, now: float, step: int) -> MetricLine:
        return MetricLine(step, "train", now, {"loss": random.random(), "lr": 1e-3, "step_time": 0.05})


class Moving:
    """While it is entered: the runs move twice a second, and the newest one's log grows by `rate` lines a second."""

    def __init__(self, live: LiveRuns, rate: int = 0) -> None:
        self._ends: list[int] = []
        self._times: list[float] = []
        """Of each write to the log: the number of the line after it, and when it was done."""
        self._live, self._rate = live, rate
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._move, daemon=True)]
        if rate:
            self._threads.append(threading.Thread(target=self._grow, daemon=True))

    def __enter__(self) -> Moving:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _move(self) -> None:
        while not self._over.wait(0.5):
            self._live.move(1)

    def _grow(self) -> None:
        began, written = time.perf_counter(), 0
        with open(self._live.folder(-1).log, "ab", buffering=0) as file:
            while not self._over.wait(0.05):
                due = int((time.perf_counter() - began) * self._rate)
                file.write(b"".join(b"line %09d loss 1.2345 lr 1.0e-03\n" % n for n in range(written, due)))
                self._times.append(time.perf_counter())
                self._ends.append(due)
                written = due

    def behind(self, shown: int) -> float:
        """Seconds that the first line after number `shown` has been in the log; by the clock, for writing may pause."""
        first = bisect.bisect_right(self._ends, shown + 1)
        return time.perf_counter() - self._times[first] if first < len(self._ends) else 0.0


def large_log(folder: Path, size: int) -> Path:
    """Lines of a usual log, with one word to search for at its end."""
    path = folder / "large.log"
    pattern = b"[12:00:%02d] step %07d loss 1.2345 lr 1.0e-03 83.5 ms/step\n"
    lines = b"".join(pattern % (i % 60, i) for i in range(20_000))
    with open(path, "wb") as file:
        written = 0
        while written < size:
            written += file.write(lines)
        file.write(b"here is the NEEDLE in it\n" + lines[: len(lines) // 4])
    return path


def long_line(folder: Path, size: int) -> Path:
    path = folder / "long.log"
    path.write_bytes(b"before it\n" + b"x needle " * (size // 9) + b"\nafter it\n")
    return path


def many_points(folder: Path) -> Path:
    path = folder / "metrics.jsonl"
    with open(path, "w") as file:
        file.writelines(  # as json.dumps would, in a fifth of the time
            f'{{"t": {1e9 + step * 0.1}, "step": {step}, "kind": "train", "loss": {5 / (1 + step / 1e4)}, "lr": 0.001,'
            f' "grad_norm": {random.random()}, "step_time": 0.08, "tokens_per_s": 48931.2, "tokens": {step * 4096}}}\n'
            for step in range(POINTS)
        )
    return path
