"""`oelm demo`: the whole lab in a few minutes on a CPU, from presets to a comparison table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands.options import catalogue, single
from oelm_tui.console import note

if TYPE_CHECKING:
    from oelm_core.config import Experiment

SEED = 42


def demo(
    ctx: typer.Context,
    again: Annotated[bool, typer.Option("--again", help="Train anew even where a finished run is here.")] = False,
) -> None:
    """Train the demo study on the CPU (seed 42) and print its comparison."""
    from oelm_core.launch import launcher
    from oelm_core.launch.request import LaunchRequest
    from oelm_tui.commands.compare import print_study
    from oelm_tui.commands.run import follow_to_end

    found = catalogue(ctx)
    study = found.study("demo")
    arms = [found.experiment(arm) for arm in study.arms]
    missing = arms if again else [arm for arm in arms if not _is_done(arm)]
    if len(missing) < len(arms):
        done = len(arms) - len(missing)
        note(f"{done} of {len(arms)} demo runs are finished already; `oelm demo --again` trains anew.")
    request = LaunchRequest(study=study.id, seeds=(SEED,), device="cpu")
    wanted = {arm.id for arm in missing}
    runs = [one for one in request.requests(found, sys.argv) if one.experiment.id in wanted]
    if folders := launcher.start_all("local", runs):
        follow_to_end(folders)
    print_study(study, found)
    note("tiny models on generated text show the lab at work; they are no evidence about OELM.")


def _is_done(arm: Experiment) -> bool:
    from oelm_core.config import as_dict, config_hash
    from oelm_core.runs.store import list_runs

    wanted = config_hash(as_dict(arm))
    return any(
        run.state == "finished" and run.seed == SEED and run.config_hash == wanted and not run.imported
        for run in list_runs()
    )


apps = {"demo": single(demo)}
