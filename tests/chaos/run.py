"""`make chaos`: python -m tests.chaos.run --kills 200 [--seed N] [--ranks 10]; exit code 1 when a promise broke."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from oelm_core.runs.store import list_runs
from tests.chaos.lab import open_lab
from tests.chaos.monkey import Monkey


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description="Kills at random and checks what must hold.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--ranks", type=int, default=10, help="how many of the kills hit ranks")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oelm-chaos-") as folder, open_lab(Path(folder)) as lab:
        monkey = Monkey(lab, options.seed, options.verbose)
        monkey.rampage(options.kills, options.ranks)
        runs = len(list_runs())
    for what, count in sorted(monkey.kills.items()):
        print(f"{count:5d}  {what}")
    took = time.monotonic() - started
    kills = sum(monkey.kills.values())
    print(f"{kills} kills over {runs} runs, {monkey.resumes} resumes, {took:.0f} s, seed {options.seed}")
    for broken in monkey.broken:
        print(f"BROKEN: {broken}")
    print("every promise held" if not monkey.broken else f"{len(monkey.broken)} promises broken")
    return 1 if monkey.broken else 0


if __name__ == "__main__":
    sys.exit(main())
