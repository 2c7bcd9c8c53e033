"""`oelm bench`: how fast training is on this machine. Prints tables; every figure goes into a JSON file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from oelm_core.bench.report import SUBJECTS, BenchReport, BenchSection, Effort, S, measure_here
from oelm_core.errors import Refused
from oelm_core.home import home
from oelm_core.runs.folder import write_record
from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import note, print_json, print_table


def bench(
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar=f"[{'|'.join([*SUBJECTS, 'all'])}]...", help="What to measure.")
    ] = None,
    as_json: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny networks: does it work here at all?")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads per variant; all cores by default.")] = None,
) -> None:
    """Measure how fast training is on this machine, and which settings pay here.

    gpt and bert: a training step, and where its time goes. loop: the worker around it, precision, compiling.
    """
    command = " ".join(["oelm bench", *(subjects or ["all"]), *(["--quick"] if quick else [])])
    report = measure_here(subjects or [], Effort(quick, threads or os.cpu_count() or 1), command, show=note)
    if quick:
        note("quick: tiny networks and two rounds; these figures show that it works, nothing else")
    save_report(report)
    if as_json:
        print_json(report.as_dict())
    else:
        print_sections(report.sections)


def save_report(report: BenchReport[S]) -> None:
    """Every figure, in a file of the lab's home."""
    path = home() / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, report.as_dict())
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}.") from None
    note(f"every figure is in {path}")


def print_sections(sections: Sequence[BenchSection]) -> None:
    for section in sections:
        print(f"\n{section.title}")
        for table in section.tables:
            print(f"\n{table.title}")
            if table.rows:
                print_table(table.columns, table.rows)
            if table.note:
                print(table.note)


apps = {"bench": single(bench)}
