"""`oelm bench tui`: what the command line costs before it does anything."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from oelm_core.bench.claims import Claim, Effort, Section, Table, seconds
from oelm_core.bench.statistics import paired_ratio

COMMANDS = {
    "import typer": ["-c", "import typer"],
    "oelm --help": ["-m", "oelm_tui", "--help"],
    "oelm presets": ["-m", "oelm_tui", "presets"],
    "oelm runs": ["-m", "oelm_tui", "runs"],
}


def measure(effort: Effort) -> Section:
    section = Section("tui", "The command line and the screen")
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(effort.rounds(10) + 1):
        for name in COMMANDS if number % 2 == 0 else reversed(COMMANDS):
            spent = _cpu_seconds(COMMANDS[name])
            if number:
                taken[name].append(spent)
    rows = [[name, seconds(statistics.median(times))] for name, times in taken.items()]
    section.tables.append(Table("Start-up", ["command", "CPU time"], rows, "In turns; the first round is dropped."))
    times = paired_ratio(taken["oelm --help"], taken["import typer"])
    section.claims.append(Claim("oelm --help against `import typer`", "at most 2x", str(times), times.value <= 2))
    section.raw["startup"] = taken
    return section


def _cpu_seconds(arguments: list[str]) -> float:
    """CPU time of a command and its children."""
    before = os.times()
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent or time.perf_counter() - began
