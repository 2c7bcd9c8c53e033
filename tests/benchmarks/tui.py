"""The screen on the clock, in a real pty: first paint, idle cost, memory, logs, curves, key presses. Prints a table.

Run with: python -m tests.benchmarks.tui [--quick] [--json FILE]; `oelm bench tui` runs it too and prints its claims.
A busy machine makes wall-clock figures worse; beside them stands the processor time, which says what the program needs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.tui_load import POINTS, LiveRuns, Moving, large_log, long_line, many_points, write_runs
from tests.benchmarks.tui_terminal import ROOT, terminal

SHOWN_LINE = re.compile(rb"line (\d{9})")


def first_paint(home: Path, repeats: int) -> tuple[float, float]:
    """(wall, processor) seconds from starting Python to a run's line on the screen; the first start is dropped."""
    found = []
    for number in range(repeats + 1):
        with terminal(home) as screen:
            screen.wait_for(b"bench-")
            taken = screen.last - screen.started, screen.cpu_seconds
            screen.wait_for(b"BERT")
        if number:
            found.append(taken)
    return statistics.median(wall for wall, _ in found), statistics.median(cpu for _, cpu in found)


def eight_cards(folder: Path) -> Mapping[str, str] | None:
    """The environment of a machine with eight pretend cards; None where they cannot be built."""
    from tests import fake_nvml

    if fake_nvml.compiler() is None:
        return None
    place = folder / "nvml"
    place.mkdir()
    machine = fake_nvml.Machine(
        place, fake_nvml.build(place), *(fake_nvml.card(number, util=90 + number) for number in range(8))
    )
    return machine.environment


def idle(home: Path, seconds: float, cards: Mapping[str, str] | None) -> float:
    """Percent of a core while twenty runs move and nobody presses a key."""
    with Moving(LiveRuns(home)), terminal(home, cards) as screen:
        screen.wait_for(b"live-")
        screen.wait_for(b"BERT")
        if cards:
            screen.wait_for(b"97%")  # the eighth card
        time.sleep(5)
        before, at = screen.cpu_seconds, time.perf_counter()
        time.sleep(seconds)
        return (screen.cpu_seconds - before) / (time.perf_counter() - at) * 100


def an_hour(home: Path, seconds: float, cards: Mapping[str, str] | None) -> float:
    """Resident MB after twenty runs wrote 7,200 records each, an hour's worth at two a second, in `seconds`."""
    live = LiveRuns(home)
    with terminal(home, cards) as screen:
        screen.wait_for(b"live-")
        screen.wait_for(b"BERT")
        rounds = max(1, round(seconds * 2))
        for number in range(rounds):
            live.move(7200 // rounds)
            screen.press((b"\x1b[B", b"]", b"\x1b[A")[number % 3])  # somebody looks around meanwhile
            time.sleep(0.5)
        time.sleep(2)
        return screen.resident


def under_load(home: Path, presses: int, cards: Mapping[str, str] | None) -> tuple[float, float, float]:
    """(median, p95 of key to moved cursor, largest lag of the screen behind the log) in seconds.

    Meanwhile twenty runs move, and the log on the screen grows by 20,000 lines a second. The cursor goes between that
    run and one with half a million records, which a thread begins to read.
    """
    live = LiveRuns(home)
    many_points(live.folder(-2).path)
    with Moving(live, 20_000) as moving, terminal(home, cards) as screen:
        screen.wait_for(b"live-")
        screen.wait_for(b"BERT")
        _go_to(screen, b"live-19")
        place = screen.size
        screen.press(b"]")  # its log
        screen.wait_until(lambda drawn: SHOWN_LINE.search(drawn) is not None, place)
        time.sleep(0.5)  # what is drawn first may be the page of the last look, until the next one is read
        lags, until = [], time.perf_counter() + 5
        while time.perf_counter() < until:
            seen = [int(number) for number in SHOWN_LINE.findall(bytes(screen.output[-200_000:]))]
            lags.append(moving.behind(max(seen, default=0)))
            time.sleep(0.05)
        times = []
        for number in range(presses):
            times.append(screen.key_to_cursor(b"\x1b[B" if number % 2 == 0 else b"\x1b[A"))
            time.sleep(0.15)
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)], max(lags)


def _go_to(screen: Any, name: bytes) -> None:
    """Filters down to one run, so that it is the selected one, and back."""
    screen.press(b"/")
    time.sleep(0.5)
    screen.press(b'"' + name + b'"\r')
    time.sleep(1.5)
    place = screen.size
    screen.press(b"\x1b")
    screen.wait_for(b"live-", place)
    time.sleep(1.0)


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


def curve_times(path: Path) -> tuple[float, float, float]:
    """Seconds from opening a metrics file to its first picture, to all of it, and of later pictures; own process."""
    code = f"""
import json, time
from pathlib import Path
from oelm_tui.snapshots.columns import ColumnsReader
from oelm_tui.panels.curves import Quantity, one_curve
from oelm_tui.charts.plot import View, draw
at = time.perf_counter()
reader = ColumnsReader(Path({str(path)!r}))
def picture():
    view = View(smoothing=0.9)
    quantity = Quantity("train", "loss", "loss", smooth=True)
    return draw([one_curve(reader.columns, quantity, view, "a", "arm0", "x")], view, 110, 18)
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
print(json.dumps([first, whole, sorted(times)[10], len(reader.columns["train"])]))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    first, whole, later, count = json.loads(told.stdout)
    assert count == POINTS, count
    return first, whole, later


class Findings:
    """Rows of the table, printed as they come: what, value, unit, the most it may be, whether that was kept."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, value: float, unit: str, target: float | None = None) -> None:
        met = None if target is None else value <= target
        self.rows.append({"what": what, "value": value, "unit": unit, "target": target, "met": met})
        sign = "" if met is None else "ok" if met else "MISSED"
        aim = "" if target is None else f"<= {target:g} {unit}"
        print(f"{what:<62} {value:>9.1f} {unit:<4} {aim:>12} {sign}", flush=True)


def measure(quick: bool) -> list[dict[str, Any]]:
    found = Findings()

    def small(home: Path) -> None:
        write_runs(home, 50)
        wall, cpu = first_paint(home, 1 if quick else 3)
        found.add("first useful paint, 50 runs", wall * 1000, "ms", 700)
        found.add("  of which processor time", cpu * 1000, "ms")
        cards = eight_cards(home)
        which = "8 cards" if cards else "no card (no compiler)"
        found.add(f"idle with 20 live runs, {which}", idle(home, 5 if quick else 12, cards), "%", 4)

    def busy(home: Path) -> None:
        write_runs(home, 50)
        median, late, lag = under_load(home, 20 if quick else 60, eight_cards(home))
        found.add("screen behind a log growing 20,000 lines/s, at most", lag * 1000, "ms", 1000)
        found.add("key to moved cursor meanwhile, median", median * 1000, "ms")
        found.add("key to moved cursor meanwhile, p95", late * 1000, "ms", 50)

    def hour(home: Path) -> None:
        write_runs(home, 50)
        found.add(
            "memory after an hour's worth of events", an_hour(home, 5 if quick else 8, eight_cards(home)), "MB", 150
        )

    def large(home: Path) -> None:
        count = 300 if quick else 2000
        write_runs(home, count)
        wall, cpu = first_paint(home, 1 if quick else 2)
        found.add(f"first useful paint, {count:,} runs", wall * 1000, "ms", 1500)
        found.add("  of which processor time", cpu * 1000, "ms")

    def logs(folder: Path) -> None:
        path = large_log(folder, 10**8 if quick else 10**9)
        opened, first, whole = log_times(path)
        found.add(f"log of {path.stat().st_size / 1e9:.1f} GB, last page", opened * 1000, "ms", 100)
        found.add("  search, first hit", first * 1000, "ms", 1000)
        found.add("  search, all counted", whole * 1000, "ms")
        path.unlink()
        opened, _, whole = log_times(long_line(folder, 10**8))
        found.add("log with a line of 100 MB, last page", opened * 1000, "ms", 100)
        found.add("  search, all counted", whole * 1000, "ms")

    def curves(folder: Path) -> None:
        first, whole, later = curve_times(many_points(folder))
        found.add("500,000 points, first picture (skimmed)", first * 1000, "ms", 300)
        found.add("  every point read", whole * 1000, "ms")
        found.add("  later pictures", later * 1000, "ms", 30)

    for part in (logs, curves, small, busy, hour, large):
        _in_scratch(part)
    return found.rows


def _in_scratch(work: Callable[[Path], None]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="oelm-bench-"))
    try:
        work(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.chdir(ROOT)
    rows = measure(options.quick)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
