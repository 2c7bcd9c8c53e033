"""`oelm run` and `oelm study`: start runs in the background, print their ids."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands.options import PresetsDir, Site, catalogue, single

if TYPE_CHECKING:
    from oelm_core.runs.folder import RunFolder

Device = Annotated[str, typer.Option(help="auto, cpu, or the cards a run may take: 0 or 2,3.")]
PerRun = Annotated[int, typer.Option(help="Cards (or CPU processes) that one run uses together.", min=1)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
After = Annotated[str | None, typer.Option(metavar="RUN", help="Wait until this run has finished.")]
AfterAny = Annotated[bool, typer.Option("--after-any", help="With --after: go on even if that run fails.")]
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
    from oelm_core.config import override
    from oelm_core.launch.launcher import check_launcher, start

    check_launcher(launcher, site or ())
    found = catalogue(ctx, folder)
    experiments = [override(found.named(name), settings or []) for name in presets]
    waits_for = _after(after, after_any)
    folders = []
    for experiment in experiments:
        for number in dict.fromkeys(seed or [experiment.seed]):  # a seed given twice would be the same run twice
            started = start(
                launcher,
                experiment,
                site=site or (),
                seed=number,
                device=device,
                per_run=per_run,
                after=waits_for,
                after_any=after_any,
                command=sys.argv,
            )
            print(started.id, flush=True)
            folders.append(started)
    if follow:
        follow_to_end(folders)


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
    from oelm_core.config import override
    from oelm_core.launch.launcher import check_launcher, start_study

    check_launcher(launcher, site or ())
    found = catalogue(ctx, folder)
    chosen = found.study(name)
    folders = start_study(
        launcher,
        chosen.id,
        [override(found.experiment(arm), settings or []) for arm in chosen.arms],
        _seeds(seeds, seed) or chosen.seeds,
        site=site or (),
        device=device,
        per_run=per_run,
        pause=chosen.pause,
        after=_after(after, after_any),
        after_any=after_any,
        command=sys.argv,
        started=lambda started: print(started.id, flush=True),
    )
    if follow:
        follow_to_end(folders)


def _seeds(count: int | None, named: list[int] | None) -> list[int]:
    """The seeds asked for, each once; none leaves them to the study."""
    from oelm_core.errors import BadInput

    if count and named:
        raise BadInput("--seeds and --seed do not go together; write --seeds 3, or --seed 42 --seed 43 --seed 44.")
    return [42 + i for i in range(count)] if count else list(dict.fromkeys(named or []))


def _after(name: str | None, whatever: bool) -> str | None:
    from oelm_core.errors import BadInput
    from oelm_core.runs.store import find_run

    if whatever and not name:
        raise BadInput("--after-any goes with --after RUN.")
    return find_run(name).id if name else None


def follow_to_end(folders: list[RunFolder]) -> None:
    """Exit code 1 when a run did not finish; Ctrl-C leaves the runs going."""
    from oelm_core.errors import LabError
    from oelm_tui.console import note
    from oelm_tui.follow import follow

    try:
        ended = follow(folders)
    except KeyboardInterrupt:
        note("no longer following; the runs go on. See them with: oelm runs")
        return
    bad = [run for run in ended if run.state != "finished"]
    if bad:
        first = bad[0]
        why = first.message or first.reason or "see its log"
        raise LabError(f"{first.id} {first.state}: {why.removesuffix('.')}. Its log: oelm logs {first.id}")


apps = {"run": single(run), "study": single(study)}
