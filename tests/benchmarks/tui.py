"""The screen on the clock, in a real pty: first paint, idle cost, memory, logs, curves, key presses. Prints a table.

Run with: python -m tests.benchmarks.tui [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 120, 36


class Terminal:
    """`oelm` in a pty of its own; a thread keeps reading what it draws."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "OELM_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment["PYTHONPATH"] = str(ROOT)
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oelm_tui", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        os.close(slave)
        self.output = bytearray()
        self.last = self.started
        self._new = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self.master], [], [], 1.0)
                chunk = os.read(self.master, 65536) if ready else b""
            except (OSError, ValueError):
                return
            if chunk:
                with self._new:
                    self.output += chunk
                    self.last = time.perf_counter()
                    self._new.notify_all()

    def wait_for(self, text: bytes, timeout: float = 30.0, since: int = 0) -> float:
        """Seconds from now until `text` was drawn after position `since`."""
        begun = time.perf_counter()
        with self._new:
            while text not in self.output[since:]:
                if time.perf_counter() - begun > timeout:
                    raise TimeoutError(f"never drew {text!r}")
                self._new.wait(0.5)
            return self.last - begun

    def press(self, key: bytes) -> float:
        """Seconds until the first byte drawn after a key."""
        with self._new:
            place, begun = len(self.output), time.perf_counter()
            os.write(self.master, key)
            while len(self.output) == place and time.perf_counter() - begun < 5:
                self._new.wait(0.5)
            return self.last - begun

    def close(self) -> None:
        os.write(self.master, b"q")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self.master)


@contextmanager
def terminal(home: Path, *arguments: str) -> Iterator[Terminal]:
    one = Terminal(home, *arguments)
    try:
        yield one
    finally:
        one.close()


def write_runs(home: Path, count: int) -> None:
    """Finished runs of one preset, light but complete enough to list."""
    sys.path.insert(0, str(ROOT))
    from tests.run_factory import experiment, write_run

    made = write_run(home / "runs", experiment("bench-0"), number=0)
    for number in range(1, count):
        folder = home / "runs" / f"bench-{number % 40}-s{number}-20260203-{number:06d}-{number % 65536:04x}"
        folder.mkdir()
        for name in ("run.json", "state.json", "result.json"):
            content = json.loads((made.folder.path / name).read_text())
            if name == "run.json":
                content |= {"id": folder.name, "preset": f"bench-{number % 40}", "seed": number}
            (folder / name).write_text(json.dumps(content))
        shutil.copy(made.folder.metrics, folder / "metrics.jsonl")


def first_paint(home: Path, repeats: int) -> float:
    """Seconds from starting Python until a run's line is on the screen."""
    times = []
    for _ in range(repeats):
        with terminal(home) as screen:
            screen.wait_for(b"bench-")
            times.append(screen.last - screen.started)
            screen.wait_for(b"BERT")
    return statistics.median(times)


class LiveRuns(threading.Thread):
    """Twenty runs that move: state twice a second, a metrics line and a log line each time."""

    made = 0

    def __init__(self, home: Path, count: int) -> None:
        super().__init__(daemon=True)
        from oelm_core.runs import process
        from tests.run_factory import experiment, write_run

        self.folders: list[Any] = []
        me = process.me()
        for number in range(count):
            place = 5000 + number + LiveRuns.made
            run = write_run(home / "runs", experiment(f"live-{number}"), number=place, without=["result"])
            state = {
                **json.loads((run.folder.path / "state.json").read_text()),
                **me,
                "state": "running",
                "ended": None,
            }
            state |= {"state": "running", "ended": None, "total": 100_000, "workers": [], "reason": None}
            self.folders.append((run.folder, state))
            (run.folder.path / "outcome.json").unlink(missing_ok=True)
        LiveRuns.made += count
        self.going = True

    def run(self) -> None:
        from oelm_core.runs.folder import write_json

        step = 1000
        while self.going:
            for folder, state in self.folders:
                now = time.time()
                write_json(folder.path / "state.json", {**state, "step": step, "heartbeat": now})
                record = {"t": now, "step": step, "kind": "train", "loss": random.random(), "lr": 1e-3}
                record["step_time"] = 0.05
                with open(folder.metrics, "a") as file:
                    file.write(json.dumps(record) + "\n")
                with open(folder.log, "a") as file:
                    file.write(f"step {step} loss {record['loss']:.4f}\n")
            step += 10
            time.sleep(0.5)


def idle(home: Path, seconds: float) -> tuple[float, float]:
    """(percent of a core, resident MB) of the screen with twenty live runs."""
    live = LiveRuns(home, 20)
    live.start()
    with terminal(home) as screen:
        screen.wait_for(b"live-")
        time.sleep(4)
        process = psutil.Process(screen.process.pid)
        before, at = sum(process.cpu_times()[:2]), time.perf_counter()
        time.sleep(seconds)
        used = (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - at) * 100
        resident = process.memory_info().rss / 1e6
    live.going = False
    live.join()
    return used, resident


def big_log(folder: Path, size: int) -> Path:
    path = folder / "big.log"
    pattern = b"[12:00:%02d] step %07d loss 1.2345 lr 1.0e-03 83.5 ms/step\n"
    line = b"".join(pattern % (i % 60, i) for i in range(20_000))
    with open(path, "wb") as file:
        written = 0
        while written < size:
            written += file.write(line)
        file.write(b"here is the NEEDLE in it\n" + line[: len(line) // 4])
    return path


def log_times(path: Path) -> tuple[float, float, float]:
    """Seconds to the last page, to the first hit, and to the end of the count."""
    from oelm_tui.logs.reader import LogFile
    from oelm_tui.logs.search import Search

    at = time.perf_counter()
    log = LogFile(path)
    log.refresh()
    log.last_page(40)
    opened = time.perf_counter() - at
    at = time.perf_counter()
    search, first = Search(log, "needle"), 0.0
    while not search.done:
        search.step()
        if search.count and not first:
            first = time.perf_counter() - at
    return opened, first, time.perf_counter() - at


def curve_times(folder: Path, points: int) -> tuple[float, float, float, float]:
    """Seconds from opening a metrics file to its first picture, to all of it, and of later pictures; resident MB."""
    path = folder / "metrics.jsonl"
    with open(path, "w") as file:
        for step in range(points):
            record = {"t": 1e9 + step * 0.1, "step": step, "kind": "train", "loss": 5 / (1 + step / 1e4)}
            record |= {"lr": 1e-3, "grad_norm": random.random(), "step_time": 0.0837}
            record |= {"tokens_per_s": 48931.2, "tokens": step * 4096}
            file.write(json.dumps(record) + "\n")
    code = f"""
import json, time, sys, resource
from pathlib import Path
from oelm_tui.lab.columns import ColumnsReader
from oelm_tui.panels.curves import Quantity, one_curve
from oelm_tui.charts.plot import View, draw
at = time.perf_counter()
reader = ColumnsReader(Path({str(path)!r}))
def picture():
    q = Quantity("train", "loss", "loss", smooth=True)
    v = View(smoothing=0.9)
    return draw([one_curve(reader.columns, q, v, "a", "arm0", "x")], v, 110, 18)
reader.advance()
picture()
first = time.perf_counter() - at
while reader.behind:
    reader.advance()
picture()
whole = time.perf_counter() - at
times = []
for _ in range(20):
    at = time.perf_counter(); picture(); times.append(time.perf_counter() - at)
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([first, whole, sorted(times)[10], rss, len(reader.columns["train"])]))
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ}
    )
    first, whole, later, resident, count = json.loads(told.stdout)
    assert count == points, count
    return first, whole, later, resident


def key_times(home: Path, presses: int) -> tuple[float, float]:
    """(p50, p95) seconds to answer a key while twenty runs move and the shown log grows by 20,000 lines a second."""
    live = LiveRuns(home, 20)
    live.start()
    folder = live.folders[0][0]

    def grow() -> None:
        lines = b"".join(b"step %07d loss 1.2345 lr 1.0e-03 83.5 ms/step\n" % i for i in range(2000))
        with open(folder.log, "ab", buffering=0) as file:
            while live.going:
                file.write(lines)
                time.sleep(0.1)

    threading.Thread(target=grow, daemon=True).start()
    with terminal(home) as screen:
        screen.wait_for(b"live-")
        time.sleep(3)
        screen.press(b"]")  # the log tab
        time.sleep(1)
        times = []
        for number in range(presses):
            times.append(screen.press(b"\x1b[B" if number % 2 == 0 else b"\x1b[A"))
            time.sleep(0.12)
    live.going = False
    live.join()
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)]


def measure(quick: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def row(what: str, value: float, unit: str, target: float | None) -> None:
        met = None if target is None else value <= target
        rows.append({"what": what, "value": value, "unit": unit, "target": target, "met": met})
        sign = "" if met is None else "ok" if met else "MISSED"
        aim = "" if target is None else f"<= {target:g} {unit}"
        print(f"{what:<58} {value:>9.1f} {unit:<4} {aim:>12} {sign}", flush=True)

    def scratch(work: Callable[[Path], None]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="oelm-bench-"))
        try:
            work(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def small(home: Path) -> None:
        write_runs(home, 50)
        row("first useful paint, 50 runs", first_paint(home, 3) * 1000, "ms", 700)
        used, resident = idle(home, 5 if quick else 15)
        row("idle with 20 live runs", used, "%", 4)
        row("resident memory", resident, "MB", 150)
        median, late = key_times(home, 20 if quick else 60)
        row("key to answer, median, log growing 20,000 lines/s", median * 1000, "ms", None)
        row("key to answer, p95, log growing 20,000 lines/s", late * 1000, "ms", 50)

    def large(home: Path) -> None:
        write_runs(home, 300 if quick else 2000)
        row(f"first useful paint, {300 if quick else 2000} runs", first_paint(home, 2) * 1000, "ms", 1500)

    def logs(folder: Path) -> None:
        path = big_log(folder, 10**8 if quick else 10**9)
        opened, first, whole = log_times(path)
        row(f"log of {path.stat().st_size / 1e9:.1f} GB, last page", opened * 1000, "ms", 100)
        row("  search, first hit", first * 1000, "ms", 1000)
        row("  search, all counted", whole * 1000, "ms", None)

    def curves(folder: Path) -> None:
        first, whole, later, resident = curve_times(folder, 500_000)
        row("500,000 points, first picture (skimmed)", first * 1000, "ms", 300)
        row("  every point read", whole * 1000, "ms", None)
        row("  later pictures", later * 1000, "ms", 30)
        row("  resident memory", resident, "MB", None)

    for part in (logs, curves, small, large):
        scratch(part)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.quick)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
