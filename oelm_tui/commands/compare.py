"""`oelm compare` and `oelm export`: a study, or any runs, against their baseline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.report import FORMATS
from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, PresetsDir, catalogue, single
from oelm_tui.console import console, note, print_json, write_file
from oelm_tui.streams import print_document

if TYPE_CHECKING:
    from oelm_core.compare import Comparison
    from oelm_core.config import Study
    from oelm_core.config.catalogue import Catalogue

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[STUDY | RUN...]", autocompletion=completion.studies_and_runs)
]
All = Annotated[bool, typer.Option("--all", help="Every run there is.")]
Format = Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")]
Baseline = Annotated[str | None, typer.Option(metavar="RUN", help="Take this run or preset as the baseline.")]


def compare(
    ctx: typer.Context,
    names: Names = None,
    baseline: Baseline = None,
    published: Annotated[bool, typer.Option("--published", help="Audit the author's published figures too.")] = False,
    every: All = False,
    as_json: AsJson = False,
    folder: PresetsDir = None,
) -> None:
    """Compare arms with their baseline: table, verdicts, fairness."""
    from oelm_core.published.audit import with_published_audit
    from oelm_core.report.terminal import terminal_report

    found = catalogue(ctx, folder)
    if published and not names and not every:
        _print_published(found, as_json)
        return
    comparison = choose(found, names or [], every, baseline)
    if published:
        comparison = with_published_audit(comparison, found)
    if as_json:
        print_json(comparison.to_json())
    else:
        console().print(terminal_report(comparison))


def export(
    ctx: typer.Context,
    names: Names = None,
    form: Format = "markdown",
    out: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there, not here.")] = None,
    every: All = False,
    baseline: Baseline = None,
    lang: Annotated[str, typer.Option(help="en or zh: the language of the headings.")] = "en",
    table: Annotated[str, typer.Option(help="Of parquet: runs, metrics or pairs.")] = "runs",
    folder: PresetsDir = None,
) -> None:
    """Write a comparison as a document, or as data; parquet has a row a run, of all runs unless some are named."""
    from oelm_core.errors import BadInput
    from oelm_core.report import render

    found = catalogue(ctx, folder)
    if form == "parquet":
        if out is None and sys.stdout.isatty():
            raise BadInput("parquet is not for terminals; write it to a file: -o runs.parquet.")
        written: str | bytes = _rows(found, [] if every else names or [], table)
    elif table != "runs":
        raise BadInput("--table goes with --format parquet.")
    else:
        written = render(choose(found, names or [], every, baseline), form, lang)
    if out is not None:
        write_file(out, written)
        note(f"wrote {out}")
    else:
        print_document(written)


def _rows(found: Catalogue, names: list[str], table: str) -> bytes:
    from oelm_core.errors import BadInput
    from oelm_core.report.rows import TABLES, tables_of

    for one in TABLES:
        if one == table:
            return tables_of(names, found).parquet(one)
    raise BadInput(f"--table {table}: write one of {', '.join(TABLES)}.")


def choose(found: Catalogue, names: list[str], every: bool, baseline: str | None = None) -> Comparison:
    """The comparison that the arguments mean (one study, some runs, or all), beside what was published."""
    from oelm_core.published.column import with_published_column

    return with_published_column(_compared(found, names, every, baseline), found)


def _compared(found: Catalogue, names: list[str], every: bool, baseline: str | None) -> Comparison:
    from oelm_core.compare import compare_runs, compare_study
    from oelm_core.errors import BadInput, NotFound, did_you_mean
    from oelm_core.launch.launcher import find_run, list_runs  # with what Slurm knows, as `oelm runs` has it

    if every:
        return compare_runs([run for run in list_runs() if not run.is_draw], found, baseline=baseline)
    if not names:
        raise BadInput("name a study or runs to compare, for example: oelm compare demo. See: oelm presets, oelm runs.")
    if len(names) == 1:
        try:
            study = found.study(names[0])
        except NotFound as no_study:
            try:
                find_run(names[0])
            except NotFound:
                near = did_you_mean(names[0], [*found.studies, *(run.id for run in list_runs())])
                hint = near or " See: oelm presets, oelm runs."
                raise NotFound(f"no study or run {names[0]!r}.{hint}") from no_study
        else:
            return compare_study(study, list_runs(), found, baseline=baseline)
    return compare_runs([find_run(name) for name in names], found, baseline=baseline)


def print_study(study: Study, found: Catalogue) -> None:
    """The table of a study's finished runs, with its audit."""
    from oelm_core.report.terminal import terminal_report

    console().print(terminal_report(choose(found, [study.id], every=False)))


def _print_published(found: Catalogue, as_json: bool) -> None:
    from rich.console import Console

    from oelm_core.published.audit import audit_published
    from oelm_core.report.document import audit_report
    from oelm_core.report.terminal import findings_table

    with Console(stderr=True).status("checking the published figures; parameters are counted the first time"):
        findings = audit_published(found)
    if as_json:
        print_json(audit_report(findings).data)
    else:
        console().print(findings_table(findings))


apps = {"compare": single(compare), "export": single(export)}
