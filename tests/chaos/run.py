"""`make chaos`: python -m tests.chaos.run --faults 200 [--kills 10 --ranks 10]; exit code 1 when a promise broke."""

from __future__ import annotations

import argparse
import sys
import time

from oelm_core.runs.store import list_runs
from tests.chaos.faults import small_disk
from tests.chaos.lab import open_lab
from tests.chaos.monkey import Monkey


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description="Kills at random and checks what must hold.")
    parser.add_argument("--faults", type=int, default=200, help="faults of all kinds, kills among them")
    parser.add_argument("--kills", type=int, default=0, help="kills alone, after the faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--ranks", type=int, default=10, help="how many of the kills hit ranks")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    with small_disk() as (folder, own_disk), open_lab(folder) as lab:
        monkey = Monkey(lab, options.seed, options.verbose, own_disk)
        if options.faults:
            monkey.torment(options.faults)
        if options.kills:
            monkey.rampage(sum(monkey.kills.values()) + options.kills, options.ranks)
        runs = len(list_runs())
    for what, count in sorted((monkey.kills + monkey.faults).items()):
        print(f"{count:5d}  {what}")
    print("ends: " + ", ".join(f"{count} {how}" for how, count in sorted(monkey.ends.items())))
    for error in monkey.errors:
        print(f"  an error, {error}")
    took = time.monotonic() - started
    done, disk = sum((monkey.kills + monkey.faults).values()), "a small disk" if own_disk else "limits"
    print(f"{done} faults over {runs} runs ({disk}), {monkey.resumes} resumes, {took:.0f} s, seed {options.seed}")
    for broken in monkey.broken:
        print(f"BROKEN: {broken}")
    print("every promise held" if not monkey.broken else f"{len(monkey.broken)} promises broken")
    return 1 if monkey.broken else 0


if __name__ == "__main__":
    sys.exit(main())
