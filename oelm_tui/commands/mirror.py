"""`oelm mirror RUN... --to TARGET`: the curves of runs, where others look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm_tui.commands import completion
from oelm_tui.commands.options import single
from oelm_tui.console import note


def mirror(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Run ids, unambiguous beginnings of them, or @last.", autocompletion=completion.runs
        ),
    ],
    to: Annotated[list[str], typer.Option(metavar="TARGET", help="tensorboard, wandb, trackio or mlflow; repeatable.")],
    folder: Annotated[
        Path | None,
        typer.Option("-o", metavar="FOLDER", help="Into this folder, not where the target's own settings say."),
    ] = None,
) -> None:
    """Bring the curves of runs to TensorBoard, W&B, Trackio or MLflow: all that is new since the last time.

    Runs may be over or under way. Configuration, tags, the frozen share and the result travel along.
    """
    from oelm_core.errors import BadInput, LabError, Refused
    from oelm_core.launch.launcher import find_run
    from oelm_core.mirror.bridge import carry
    from oelm_core.mirror.targets import missing, target_names

    targets = target_names(to, "--to")
    if not targets:
        raise BadInput("--to none: name a target to bring the curves to.")
    for why in filter(None, map(missing, targets)):
        raise Refused(why)
    refusals: list[LabError] = []
    for run in {run.id: run for run in map(find_run, names)}.values():
        for target in targets:
            try:
                carried = carry(run.folder, target, folder)
            except LabError as error:
                refusals.append(error)
                continue

            print(f"{run.id}: {carried.points:,} new points to {target}, {carried.place}", flush=True)
    for refusal in refusals[:-1]:
        note(str(refusal))
    if refusals:
        raise refusals[-1]


apps = {"mirror": single(mirror)}
