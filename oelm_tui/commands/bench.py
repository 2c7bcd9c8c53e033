"""`oelm bench`: the honest clock. Prints a table of claims; writes JSON and the page in docs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oelm_core.runs.folder import home
from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import note, print_json, print_table

if TYPE_CHECKING:
    from oelm_core.bench.claims import Section


def bench(
    subjects: Annotated[
        list[str] | None, typer.Argument(metavar="[gpt|bert|data|loop|tui|scaling|all]...", help="What to measure.")
    ] = None,
    as_json: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny networks: does it work here at all?")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads for every variant; all cores else.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the findings there: .md as a page, else JSON.")
    ] = None,
) -> None:
    """Measure speed and memory here, against what researchers use; every claim is one line."""
    from oelm_core.bench.run import measure

    command = " ".join(["oelm bench", *(subjects or ["all"]), *(["--quick"] if quick else [])])
    report, sections = measure(subjects or [], quick=quick, threads=threads, command=command, show=note)
    kept = home() / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    for place in (kept, *([out] if out is not None else [])):
        _write(place, report, sections)
    note(f"every figure is in {kept}")
    if as_json:
        print_json(report)
        return
    for section in sections:
        print(f"\n{section.title}")
        for table in section.tables:
            print(f"\n{table.title}")
            print_table(table.columns, table.rows)
            if table.note:
                print(table.note)
    print("\nClaims")
    for claim in (claim for section in sections for claim in section.claims):
        print(f"{claim.verdict:<13}{claim.what}: {claim.found}  (to reach: {claim.target})")
        if claim.met is False and claim.why:
            print(f"{'':<13}{claim.why}")


def _write(out: Path, report: dict[str, Any], sections: list[Section]) -> None:
    import json

    from oelm_core.bench.tables import markdown
    from oelm_core.errors import Refused

    text = markdown(report, sections) if out.suffix == ".md" else json.dumps(report, indent=1) + "\n"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write {out}: {error.strerror or error}.") from None


apps = {"bench": single(bench)}
