"""`oelm run` and `oelm study`: start runs in the background, print their ids."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands.options import PresetsDir, Site, catalogue, single

if TYPE_CHECKING:
    from oelm_core.launch.request import LaunchRequest
    from oelm_core.runs.folder import RunFolder

Device = Annotated[str, typer.Option(help="auto, cpu, or the cards a run may take: 0 or 2,3.")]
PerRun = Annotated[int, typer.Option(help="Cards (or CPU processes) that one run uses together.", min=1)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
After = Annotated[str | None, typer.Option(metavar="RUN", help="Wait until this run has finished.")]
AfterAny = Annotated[bool, typer.Option("--after-any", help="With --after: start even if that run fails.")]
Follow = Annotated[bool, typer.Option("--follow", help="Show progress to the end; Ctrl-C only stops following.")]
Launcher = Annotated[str, typer.Option(help="local or slurm.")]


def run(
    ctx: typer.Context,
    presets: Annotated[list[str], typer.Argument(metavar="PRESET...")],
    device: Device = "auto",
    per_run: PerRun = 1,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; repeatable.")] = None,
    settings: Settings = None,
    after: After = None,
    after_any: AfterAny = False,
    follow: Follow = False,
    launcher: Launcher = "local",
    site: Site = None,
    folder: PresetsDir = None,
) -> None:
    """Start each preset with each seed in the background, and print one run id a line."""
    from oelm_core.launch.request import LaunchRequest

    _launch(
        ctx,
        LaunchRequest(
            presets=tuple(presets),
            seeds=tuple(seed or ()),
            settings=tuple(settings or ()),
            device=device,
            per_run=per_run,
            after=after,
            after_any=after_any,
            launcher=launcher,
            slurm=tuple(site or ()),
        ),
        folder,
        follow,
    )


def study(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STUDY")],
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 42, 43, ...", min=1)] = None,
    seed: Annotated[list[int] | None, typer.Option(help="These seeds instead; repeatable.")] = None,
    device: Device = "auto",
    per_run: PerRun = 1,
    settings: Settings = None,
    after: After = None,
    after_any: AfterAny = False,
    follow: Follow = False,
    launcher: Launcher = "local",
    site: Site = None,
    folder: PresetsDir = None,
) -> None:
    """Start every arm of a study for every seed, arms interleaved: A B A B."""
    from oelm_core.launch.request import LaunchRequest

    _launch(
        ctx,
        LaunchRequest(
            study=name,
            seeds=_seeds(seeds, seed),
            settings=tuple(settings or ()),
            device=device,
            per_run=per_run,
            after=after,
            after_any=after_any,
            launcher=launcher,
            slurm=tuple(site or ()),
        ),
        folder,
        follow,
    )


def _launch(ctx: typer.Context, request: LaunchRequest, folder: Path | None, follow: bool) -> None:
    from oelm_core.errors import BadInput

    if request.after_any and not request.after:
        raise BadInput("--after-any goes with --after RUN.")
    folders = request.start(catalogue(ctx, folder), sys.argv, lambda started: print(started.id, flush=True))
    if follow:
        follow_to_end(folders)


def _seeds(count: int | None, named: list[int] | None) -> tuple[int, ...]:
    """The seeds asked for, each once; none leaves them to the study."""
    from oelm_core.errors import BadInput

    if count and named:
        raise BadInput("--seeds and --seed do not go together; write --seeds 3, or --seed 42 --seed 43 --seed 44.")
    return tuple(range(42, 42 + count)) if count else tuple(dict.fromkeys(named or ()))


def follow_to_end(folders: list[RunFolder]) -> None:
    """Exit code 1 when a run did not finish; Ctrl-C leaves the runs going."""
    from oelm_core.errors import LabError
    from oelm_tui.console import note
    from oelm_tui.follow import follow

    try:
        ended = follow(folders)
    except KeyboardInterrupt:
        note("no longer following; the runs continue. See them with: oelm runs")
        return
    bad = [run for run in ended if run.state != "finished"]
    if bad:
        first = bad[0]
        why = first.message or first.reason or "see its log"
        raise LabError(f"{first.id} {first.state}: {why.removesuffix('.')}. Its log: oelm logs {first.id}")


apps = {"run": single(run), "study": single(study)}
