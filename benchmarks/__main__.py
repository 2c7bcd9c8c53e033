"""`python -m benchmarks [SUBJECT ...]`: measures what we claim about speed, and writes the page in docs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import bert, card, data, estimate, gpt, loop, many_runs, ranks, scaling, screen, threads
from benchmarks.claims import ClaimSection, claim_lines, markdown, not_judged
from benchmarks.peers import NANOGPT
from oelm_core.bench.report import Effort, choose, measure
from oelm_core.errors import BadInput, LabError, Refused
from oelm_tui.commands.bench import print_sections, save_report
from oelm_tui.console import note

SUBJECTS: dict[str, Callable[[Effort], ClaimSection]] = {
    "gpt": gpt.measure,
    "threads": threads.measure,
    "bert": bert.measure,
    "data": data.measure,
    "loop": loop.measure,
    "ranks": ranks.measure,
    "card": card.measure,
    "tui": screen.measure,
    "runs": many_runs.measure,
    "scaling": scaling.measure,
    "estimate": estimate.measure,
}


def _check_files(out: Path | None) -> None:
    """Before a quarter of an hour is spent."""
    nano = os.environ.get(NANOGPT)
    if nano and not os.path.isfile(nano):
        raise BadInput(f"{NANOGPT}={nano}: no such file; write the path of nanoGPT's model.py.")
    if out is None:
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
    except OSError as error:
        raise Refused(f"--out {out}: {error.strerror}; name a file that can be written.") from error


def _measured(name: str, effort: Effort) -> ClaimSection:
    """A subject; one that fails is said, and takes nothing from the others."""
    try:
        return SUBJECTS[name](effort)
    except LabError as error:
        failed = ClaimSection(name, name)
        failed.claim(f"{name}: measured", "without an error", "an error", False, str(error))
        return failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures what we claim about speed.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(SUBJECTS)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="tiny networks: does it work here at all?")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads; all cores by default")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the findings there: .md as a page, else JSON")
    options = parser.parse_args()
    if options.threads < 1:
        parser.error("--threads: write 1 or more")
    peers = [f"{NANOGPT}=model.py"] if os.environ.get(NANOGPT) else []
    quick = ["--quick"] if options.quick else []
    command = " ".join([*peers, "python -m benchmarks", *options.subjects, *quick])
    try:
        _check_files(options.out)
        chosen = {name: partial(_measured, name) for name in choose(options.subjects, SUBJECTS)}
        report = measure(chosen, Effort(options.quick, options.threads), command, show=note)
        if options.quick:  # tiny networks show that it works; they can neither meet nor miss a claim
            not_judged(report.sections)
        save_report(report)
    except LabError as error:
        sys.exit(f"benchmarks: {error}")
    if options.out is not None:
        page = options.out.suffix == ".md"
        options.out.write_text(markdown(report) if page else json.dumps(report.as_dict(), indent=1) + "\n")
    print_sections(report.sections)
    print("\nClaims", *claim_lines(report.sections), sep="\n")


if __name__ == "__main__":
    main()
