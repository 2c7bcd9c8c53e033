"""`oelm run`, `oelm study` and `oelm demo`: start runs in the background, and follow them on demand."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.formatting import metric
from oelm_tui.commands import completion
from oelm_tui.commands.options import LaunchOptions, Seed, Seeds, catalogue, chosen_seeds, single, with_launch_options
from oelm_tui.commands.several_cards import say_what_cards_bring
from oelm_tui.console import note
from oelm_tui.streams import say

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.launch.request import LaunchRequest
    from oelm_core.runs.folder import RunFolder
    from oelm_core.runs.store import Run

DEMO_SEED = 42


@with_launch_options
def run(
    ctx: typer.Context,
    presets: Annotated[list[str], typer.Argument(metavar="PRESET...", autocompletion=completion.presets)],
    options: LaunchOptions,
    seeds: Seeds = None,
    seed: Seed = None,
) -> None:
    """Start each preset with each seed in the background, and print one run id a line."""
    _launch(ctx, options.request(chosen_seeds(seeds, seed), presets), options)


@with_launch_options
def study(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=completion.studies)],
    options: LaunchOptions,
    seeds: Seeds = None,
    seed: Seed = None,
) -> None:
    """Start every arm of a study for every seed, arms interleaved: A B A B."""
    _launch(ctx, options.request(chosen_seeds(seeds, seed), study=name), options)


def demo(
    ctx: typer.Context,
    again: Annotated[bool, typer.Option("--again", help="Train anew even where a finished run is here.")] = False,
) -> None:
    """Train the demo study on the CPU (seed 42) and print its comparison."""
    from oelm_core.launch import launcher
    from oelm_core.launch.request import LaunchRequest
    from oelm_tui.commands.compare import print_study

    found = catalogue(ctx)
    study = found.study("demo")
    request = LaunchRequest(study=study.id, seeds=(DEMO_SEED,), device="cpu")
    requests = request.requests(found, sys.argv)
    missing = [one for one in requests if again or not _is_done(one.experiment)]
    if len(missing) < len(requests):
        done = len(requests) - len(missing)
        note(f"{done} of {len(requests)} demo runs are finished already; `oelm demo --again` trains anew.")
    if missing:
        request.register(found)
        follow_to_end(launcher.start_all("local", missing))
    print_study(study, found)
    note("tiny models on generated text show the lab at work; they are no evidence about OELM.")


def _is_done(arm: Experiment) -> bool:
    from oelm_core.config import as_dict, config_hash
    from oelm_core.runs.store import list_runs

    wanted = config_hash(as_dict(arm))
    return any(
        run.state == "finished"
        and run.seed == DEMO_SEED
        and run.config_hash == wanted
        and not (run.imported or run.tuning)
        for run in list_runs()
    )


def _launch(ctx: typer.Context, request: LaunchRequest, options: LaunchOptions) -> None:
    presets = catalogue(ctx, options.folder)
    request.requests(presets, sys.argv)  # what cannot start is refused before anything is said
    say_what_cards_bring(request, request.experiments(presets))
    _say_what_is_missing(request)
    folders = request.start(presets, sys.argv, lambda started: say(started.id))
    if options.follow:
        follow_to_end(folders)


def _say_what_is_missing(request: LaunchRequest) -> None:
    """Of `report_to:` in the settings; what the command line names is refused without."""
    from oelm_core.mirror.targets import missing

    for target in request.reports_to():
        why = missing(target)
        if why is not None:
            note(f"{why} Until then no curves go there; later they can: oelm mirror RUN --to {target}")


def follow_to_end(folders: Sequence[RunFolder]) -> None:
    """Exit code 1 when a run did not finish; Ctrl-C leaves the runs going."""
    from oelm_core.errors import LabError

    try:
        ended = _follow(folders)
    except KeyboardInterrupt:
        note("no longer following; the runs continue. See them with: oelm runs")
        raise
    bad = [run for run in ended if run.state != "finished"]
    if bad:
        first = bad[0]
        why = first.message or first.reason or "see its log"
        raise LabError(f"{first.id} {first.state}: {why.removesuffix('.')}. Its log: oelm logs {first.id}")


def _follow(folders: Sequence[RunFolder]) -> list[Run]:
    """Waits until every run has ended, with progress bars on stderr, and returns the runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from oelm_core.launch.launcher import read_run

    columns = (
        TextColumn("{task.fields[state]:<9}", markup=False),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[metric]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        tasks = {
            one.id: progress.add_task(one.id.rsplit("-", 3)[0], total=None, state="queued", metric="")
            for one in folders
        }
        while True:
            runs = [read_run(folder) for folder in folders]
            for run in runs:
                why = run.message or run.reason if run.state in ("failed", "waiting") else ""
                progress.update(
                    tasks[run.id],
                    completed=run.step,
                    total=run.total,
                    state=run.state,
                    metric=why or metric(run.metric_name, run.metric_value),
                )
            if all(run.is_over for run in runs):
                return runs
            time.sleep(0.3)


apps = {"run": single(run), "study": single(study), "demo": single(demo)}
