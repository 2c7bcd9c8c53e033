"""Commands over thousands of runs: CPU time and memory of each, and how they grow with the number of runs.

A study of some hundred runs is compared on runs that kept what they predicted, as trained ones do.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.claims import ClaimSection
from benchmarks.scaling import slope
from benchmarks.screen_load import write_runs
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.turns import ENOUGH, Ratio, over_rounds
from oelm_core.formatting import count, measured_time
from oelm_core.runs.store import INDEX
from tests.run_factory import FROZEN, experiment, predictions_with, write_run

LISTED = {
    "oelm runs": ["runs"],
    "oelm runs --json": ["runs", "--json"],
    "oelm export --all": ["export", "--all", "--format", "csv"],
}
COMMAND = """
import sys
from oelm_tui import cli
try:
    cli.main()
finally:
    print(open("/proc/self/status").read(), file=sys.stderr)
"""
"""oelm, and at its end what memory it had at most: what the system counts for children begins with the parent's."""
LIBRARIES = "import msgspec, numpy, pydantic, rich.table, typer"
"""What comparing cannot do without."""
MOST = 1.0
"""Seconds that `oelm runs` of ten thousand may take when nothing changed."""
MOST_OF_SIX = 0.8
LEAST_COST, LEAST_ORDER = 0.001, 0.01
"""The least that a cost and an order of growth are taken for."""
NOISE = 0.15
"""What an order of growth may be above 1."""


@dataclass(frozen=True)
class Cost:
    """Of one command: CPU seconds of each call, and megabytes at most."""

    calls: list[float]
    memory: float

    @property
    def found(self) -> Ratio:
        return over_rounds(self.calls, " s")

    @property
    def seconds(self) -> float:
        return self.found.value

    @property
    def text(self) -> str:
        return f"{measured_time(self.seconds)}, {self.memory:.0f} MB"


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("runs", "Thousands of runs")
    sizes = (30, 300) if effort.quick else (2_500, 10_000)
    empty, *listed = (_listed(size, effort.rounds(2 * ENOUGH)) for size in (0, *sizes))
    found = dict(zip(sizes, listed, strict=True))
    rows = [[name, *(found[size][name].text for size in sizes)] for name in found[sizes[0]]]
    note = "CPU time of the whole command, with starting Python; the median where it was called more than once."
    section.tables.append(BenchTable("Listing and exporting", ["command", *map(count, sizes)], rows, note))
    section.claim_ratio(
        f"oelm runs, {count(sizes[-1])} runs, nothing changed",
        f"at most {MOST:g} s of CPU time",
        found[sizes[-1]]["oelm runs"].found,
        at_most=MOST,
    )
    for name in found[sizes[0]]:
        costs = {size: found[size][name] for size in sizes}
        _growth(section, f"{name} against the number of runs", costs, empty[name].seconds)
    _compare(section, effort)
    section.raw["listed"] = {
        size: {name: asdict(cost) for name, cost in costs.items()} for size, costs in found.items()
    }
    return section


def _listed(size: int, rounds: int) -> dict[str, Cost]:
    with _Home() as home:
        write_runs(home.path, size)
        first = "oelm runs, the first time"
        costs = {first: _together(home.cost_anew(LISTED["oelm runs"]) for _ in range(rounds // 2))}
        for name, arguments in LISTED.items():
            costs[name] = home.cost(arguments, 3 if name == "oelm export --all" else rounds)  # 10 s each
    return costs


def _together(costs: Iterable[Cost]) -> Cost:
    calls, memory = zip(*((one.calls[0], one.memory) for one in costs), strict=True)
    return Cost([*calls], max(memory))


def _compare(section: ClaimSection, effort: Effort) -> None:
    sizes = (6, 20) if effort.quick else (6, 60, 500)
    found = {}
    for size in sizes:
        with _Home() as home:
            _write_study(home.path / "runs", size)
            found[size] = home.cost(["compare", "--all"], effort.rounds(2 * ENOUGH))
    rows = [[count(size), *cost.text.split(", ")] for size, cost in found.items()]
    section.tables.append(BenchTable("oelm compare of two arms", ["runs", "CPU time", "memory"], rows))
    with _Home() as home:
        libraries = home.cost_of(LIBRARIES, [], effort.rounds(ENOUGH)).seconds
    section.claim_ratio(
        "oelm compare, 6 runs",
        f"at most {MOST_OF_SIX:g} s of CPU time",
        found[sizes[0]].found,
        at_most=MOST_OF_SIX,
        why=f"loading the libraries alone takes {measured_time(libraries)} of it ({LIBRARIES.partition(' ')[2]}).",
    )
    if len(sizes) > 2:
        more = {size - sizes[0]: found[size] for size in sizes[1:]}
        _growth(section, f"oelm compare, {sizes[1]} to {sizes[-1]} runs", more, found[sizes[0]].seconds)
    section.raw["compare"] = {size: asdict(cost) for size, cost in found.items()}


def _growth(section: ClaimSection, what: str, costs: dict[int, Cost], without: float) -> None:
    """Of one command: an order of growth for each call of it among few runs and one among many, without what it takes
    to start, which would hide the growth."""
    calls = zip(*(cost.calls for cost in costs.values()), strict=True)
    orders = [slope([*costs], [max(one - without, LEAST_COST) for one in seconds]) for seconds in calls]
    order = over_rounds([max(one, LEAST_ORDER) for one in orders], unit="")
    section.claim_ratio(what, f"order at most 1 (+ {NOISE:g} for noise)", order, at_most=1 + NOISE)


def _write_study(root: Path, size: int) -> None:
    """A baseline and an arm with half of the runs each, a seed a pair."""
    arms = experiment("pair-baseline"), experiment("pair-oelm", method=FROZEN, baseline="pair-baseline")
    labels = [place % 2 for place in range(400)]
    for number in range(size):
        wrong = random.Random(number).sample(range(400), 30 + 10 * (number % 2))
        guesses = predictions_with(labels, wrong)
        write_run(root, arms[number % 2], seed=number // 2, number=number, labels=labels, predictions=guesses)


class _Home:
    """A lab of its own, while it is entered."""

    def __enter__(self) -> _Home:
        self.path = Path(tempfile.mkdtemp(prefix="oelm-bench-"))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def cost(self, arguments: list[str], calls: int = 1) -> Cost:
        """Of so many calls of oelm."""
        return self.cost_of(COMMAND, arguments, calls)

    def cost_anew(self, arguments: list[str]) -> Cost:
        """Of a call that finds nothing kept by those before."""
        (self.path / "runs" / INDEX).unlink(missing_ok=True)
        return self.cost(arguments)

    def cost_of(self, program: str, arguments: list[str], calls: int) -> Cost:
        spent, memory = zip(*(self._call(program, arguments) for _ in range(calls)), strict=True)
        return Cost([*spent], max(memory))

    def _call(self, program: str, arguments: list[str]) -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "OELM_HOME": str(self.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise RuntimeError(f"oelm {' '.join(arguments)} ended with {ended.returncode}: {ended.stderr[:200]}")
        most = re.findall(r"VmHWM:\s+(\d+) kB", ended.stderr)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return spent, int(most[-1]) / 1024 if most else float("nan")
