"""`oelm bench tui`: what the command line costs before it does anything, and the screen in a real terminal."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    for number in range(effort.rounds(7) + 1):
        for name in COMMANDS if number % 2 == 0 else reversed(COMMANDS):
            spent = _cpu_seconds(COMMANDS[name])
            if number:
                taken[name].append(spent)
    rows = [[name, seconds(statistics.median(times))] for name, times in taken.items()]
    section.tables.append(Table("Start-up", ["command", "CPU time"], rows, "In turns; the first round is dropped."))
    times = paired_ratio(taken["oelm --help"], taken["import typer"])
    section.claims.append(Claim("oelm --help against `import typer`", "at most 2x", str(times), times.value <= 2))
    section.raw["startup"] = taken
    _screen(section, effort)
    return section


def _screen(section: Section, effort: Effort) -> None:
    """The screen's own measurements live with the tests: they need a source tree."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "tests" / "benchmarks" / "tui.py").is_file():
        section.claims.append(Claim("the screen", "measured", "needs the source tree, not an installed package", None))
        return
    with tempfile.NamedTemporaryFile(suffix=".json") as told:
        command = [sys.executable, "-m", "tests.benchmarks.tui", "--json", told.name]
        ran = subprocess.run(
            [*command, *(["--quick"] if effort.quick else [])], cwd=root, capture_output=True, text=True
        )
        text = Path(told.name).read_text()
    if ran.returncode or not text:
        last = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
        section.claims.append(Claim("the screen", "measured", f"its benchmark failed: {last}", False))
        return
    found: list[dict[str, Any]] = json.loads(text)
    rows = [[row["what"].strip(), f"{row['value']:.1f} {row['unit']}"] for row in found]
    section.tables.append(Table("The screen, in a pty of its own", ["what", "found"], rows))
    section.claims += [
        Claim(
            f"screen: {row['what'].strip()}",
            f"at most {row['target']:g} {row['unit']}",
            f"{row['value']:.1f} {row['unit']}",
            bool(row["met"]),
        )
        for row in found
        if row["target"] is not None
    ]
    section.raw["screen"] = found


def _cpu_seconds(arguments: list[str]) -> float:
    """CPU time of a command and its children, in a home of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="oelm-bench-") as home:
        subprocess.run(
            [sys.executable, *arguments], capture_output=True, check=True, env={**os.environ, "OELM_HOME": home}
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
