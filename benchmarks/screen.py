"""The command line and the screen on the clock, in a real pty: start-up, first paint, idle cost, memory, key presses.

A busy machine makes wall-clock figures worse; beside them stands the processor time, which says what the program needs.
"""

from __future__ import annotations

import gc
import json
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.claims import ClaimSection, SpeedClaim
from benchmarks.screen_load import POINTS, LiveRuns, Moving, large_log, long_line, many_points, write_runs
from benchmarks.screen_terminal import ROOT, TimedTerminal, terminal
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.turns import Ratio, over_rounds, paired_ratio
from oelm_core.formatting import measured_time
from tests import fake_nvml

COMMANDS = {
    "import typer": ["-c", "import typer"],
    "oelm --help": ["-m", "oelm_tui", "--help"],
    "oelm presets": ["-m", "oelm_tui", "presets"],
    "oelm runs": ["-m", "oelm_tui", "runs"],
}
APART = 4 / 3
"""What one look and another came out apart at most, on the shared machine this was built on."""
SHOWN_LINE = re.compile(rb"line (?:\x1b\[[\d;]*m)*(\d{9})")  # numbers have a colour


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("tui", "The command line and the screen")
    _start_up(section, effort)
    gc.freeze()  # the clock reads in threads of this process: no collection may walk through torch meanwhile
    try:
        found = screen_figures(effort.quick)
    except Exception as error:
        section.claim("the screen", "measured", f"its benchmark failed: {type(error).__name__}: {error}", False)
        return section
    rows = [[one.what, one.text] for one in found]
    section.tables.append(BenchTable("The screen, in a pty of its own", ["what", "found"], rows))
    for one in found:
        what, target = f"screen: {one.what}", f"at most {one.target:g} {one.unit}" if one.target else ""
        if one.target and len(one.looks) > 1:
            section.claim_ratio(what, target, one.found, at_most=one.target)
        elif one.target:
            _claim_one_look(section, what, target, one)
    section.raw["screen"] = [asdict(one) for one in found]
    return section


def _claim_one_look(section: ClaimSection, what: str, target: str, one: ScreenFigure) -> None:
    """Met or short only where another look could not have said otherwise."""
    look, at_most = one.looks[0], one.target or math.inf
    sure = look * APART <= at_most or look > at_most * APART
    why = f"it rests on {one.rests_on}, and another would come out up to a third away."
    section.claims.append(SpeedClaim(what, target, one.text, look <= at_most if sure else None, why, not sure))


def _start_up(section: ClaimSection, effort: Effort) -> None:
    """What the command line costs before it does anything."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(effort.rounds(7) + 1):
        for name in COMMANDS if number % 2 == 0 else reversed(COMMANDS):
            spent = _cpu_seconds(COMMANDS[name])
            if number:
                times[name].append(spent)
    rows = [[name, measured_time(statistics.median(spent))] for name, spent in times.items()]
    note = "In turns; the first round is dropped."
    section.tables.append(BenchTable("Start-up", ["command", "CPU time"], rows, note))
    against = paired_ratio(times["oelm --help"], times["import typer"])
    section.claim_ratio("oelm --help against `import typer`", "at most 2x", against, at_most=2.0)
    section.raw["startup"] = times


def _cpu_seconds(arguments: list[str]) -> float:
    """CPU time of a command and its children, in a home of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="oelm-bench-") as home:
        subprocess.run(
            [sys.executable, *arguments], capture_output=True, check=True, env={**os.environ, "OELM_HOME": home}
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass(frozen=True)
class ScreenFigure:
    """What was measured, once or several times, and the most it may be."""

    what: str
    looks: list[float]
    unit: str
    target: float | None
    rests_on: str
    """Said where there was one look."""

    @property
    def found(self) -> Ratio:
        return over_rounds(self.looks, f" {self.unit}")

    @property
    def text(self) -> str:
        return str(self.found) if len(self.looks) > 1 else f"{self.looks[0]:.4g} {self.unit}, {self.rests_on}"


def screen_figures(quick: bool) -> list[ScreenFigure]:
    found: list[ScreenFigure] = []
    several = 1 if quick else 6

    def add(what: str, looks: list[float], unit: str, target: float | None = None, rests_on: str = "one look") -> None:
        scale = 1000 if unit == "ms" else 100 if unit == "%" else 1
        found.append(ScreenFigure(what, [scale * one for one in looks], unit, target, rests_on))

    def painted(home: Path, count: int, target: float) -> None:
        walls, cpus = first_paint(home, several)
        add(f"first useful paint, {count:,} runs", walls, "ms", target)
        add("of which processor time", cpus, "ms")

    def small(home: Path) -> None:
        write_runs(home, 50)
        painted(home, 50, 500)
        cards = eight_cards(home)
        which = "8 cards" if cards else "no card (no compiler)"
        add(f"idle with 20 live runs, {which}", idle(home, 2, several, cards), "%", 4)

    def busy(home: Path) -> None:
        write_runs(home, 50)
        presses = 20 if quick else 60
        times, lag, work = under_load(home, presses, eight_cards(home))
        keys = f"{presses} keys"
        add("screen behind a log growing 20,000 lines/s, at most", [lag], "ms", 1000, "looks over 5 s")
        add("key to moved cursor meanwhile, median", [statistics.median(times)], "ms", rests_on=keys)
        add("key to moved cursor meanwhile, p95", [late(times)], "ms", 30, keys)
        add("of the processor's time meanwhile, keys and log", [work], "%")

    def hour(home: Path) -> None:
        write_runs(home, 50)
        add("memory after an hour's worth of events", [an_hour(home, 5 if quick else 8, eight_cards(home))], "MB", 150)

    def filtered(home: Path, count: int, target: float) -> None:
        times = reading_times("filter", home)
        add(f"work of a key in the filter, {count:,} runs", times, "ms", target)
        add(f"work of a key in the filter, {count:,} runs, p95", [late(times)], "ms", rests_on=f"{len(times)} keys")

    def large(home: Path) -> None:
        count = 300 if quick else 2_000
        write_runs(home, count)
        filtered(home, count, 16)

    def larger(home: Path) -> None:
        count = 1000 if quick else 10_000
        write_runs(home, count)
        first, again = (reading_times("runs", home / "runs") for _ in range(2))
        add(f"list of {count:,} runs, the first time", first[:1], "s", 6)
        add(f"list of {count:,} runs, with the index", again[:1], "s", 0.8)
        add("memory for it", again[1:], "MB", 150)
        painted(home, count, 1500)
        filtered(home, count, 50)

    def logs(folder: Path) -> None:
        path = large_log(folder, 10**8 if quick else 10**9)
        opened, first, whole = reading_times("log", path)
        add(f"log of {path.stat().st_size / 1e9:.1f} GB, last page", [opened], "ms", 100)
        add("search, first hit", [first], "ms", 1000)
        add("search, all counted", [whole], "ms")
        path.unlink()
        opened, _, whole = reading_times("log", long_line(folder, 10**8))
        add("log with a line of 100 MB, last page", [opened], "ms", 100)
        add("search, all counted", [whole], "ms")

    def curves(folder: Path) -> None:
        path = many_points(folder)
        firsts, wholes, laters, counts = zip(*(reading_times("curve", path) for _ in range(several)), strict=True)
        assert {*counts} == {POINTS}, counts
        add(f"{POINTS:,} points, first picture (skimmed)", [*firsts], "ms", 300)
        add(f"{POINTS:,} points, every one read", [*wholes], "ms", 1000)
        add("later pictures", [*laters], "ms", 30, "median of 20")

    for part in (logs, curves, small, busy, hour, large, larger):
        _in_scratch(part)
    return found


def late(times: list[float]) -> float:
    """The 95th of a hundred."""
    return sorted(times)[int(len(times) * 0.95)]


def _in_scratch(work: Callable[[Path], None]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="oelm-bench-"))
    try:
        work(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reading_times(kind: str, path: Path) -> list[float]:
    """What benchmarks.screen_reading, or screen_filter, finds in a process of its own."""
    program = ["screen_filter"] if kind == "filter" else ["screen_reading", kind]
    command = [sys.executable, "-m", f"benchmarks.{program[0]}", *program[1:], str(path)]
    times: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    return times


def first_paint(home: Path, repeats: int) -> tuple[list[float], list[float]]:
    """(wall, processor) seconds from starting Python to a run's line on the screen; the first start is dropped."""
    walls, cpus = [], []
    for number in range(repeats + 1):
        with terminal(home) as screen:
            screen.wait_for(b"bench-")
            wall, cpu = screen.last - screen.started, screen.cpu_seconds
            screen.wait_for(b"BERT")
        if number:
            walls.append(wall)
            cpus.append(cpu)
    return walls, cpus


def eight_cards(folder: Path) -> Mapping[str, str] | None:
    """The environment of a machine with eight pretend cards; None where they cannot be built."""
    if fake_nvml.compiler() is None:
        return None
    place = folder / "nvml"
    place.mkdir()
    machine = fake_nvml.Machine(
        place, fake_nvml.build(place), *(fake_nvml.card(number, util=90 + number) for number in range(8))
    )
    return machine.environment


def idle(home: Path, seconds: float, times: int, cards: Mapping[str, str] | None) -> list[float]:
    """Shares of a core, each over so many seconds, while twenty runs move and nobody presses a key."""
    found = []
    with Moving(LiveRuns(home)), terminal(home, cards) as screen:
        screen.wait_for(b"live-")
        screen.wait_for(b"BERT")
        if cards:
            screen.wait_for(b"97%")  # the eighth card
        time.sleep(5)
        for _ in range(times):
            before, at = screen.cpu_seconds, time.perf_counter()
            time.sleep(seconds)
            found.append((screen.cpu_seconds - before) / (time.perf_counter() - at))
    return found


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


def under_load(home: Path, presses: int, cards: Mapping[str, str] | None) -> tuple[list[float], float, float]:
    """(each key to the moved cursor, largest lag of the screen behind the log) in seconds, share of a core.

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
        times, spent, at = [], screen.cpu_seconds, time.perf_counter()
        for number in range(presses):
            times.append(screen.key_to_cursor(b"\x1b[B" if number % 2 == 0 else b"\x1b[A"))
            time.sleep(0.15)
        share = (screen.cpu_seconds - spent) / (time.perf_counter() - at)
    return times, max(lags), share


def _go_to(screen: TimedTerminal, name: bytes) -> None:
    """Filters down to one run, so that it is the selected one, and back."""
    screen.press(b"/")
    time.sleep(0.5)
    screen.press(b'"' + name + b'"\r')
    time.sleep(1.5)
    place = screen.size
    screen.press(b"\x1b")
    screen.wait_for(b"live-", place)
    time.sleep(1.0)
