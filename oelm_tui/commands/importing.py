"""`oelm import`: output folders of the author's scripts become read-only runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm_tui.commands.options import catalogue, single
from oelm_tui.console import note


def import_folders(ctx: typer.Context, folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")]) -> None:
    """Turn output folders of the author's scripts into read-only runs; importing twice changes nothing."""
    from oelm_core.errors import BadInput
    from oelm_core.published.import_runs import import_folders as read_folders

    refusals = []
    for imported in read_folders(folders, catalogue(ctx)):
        if isinstance(imported, BadInput):
            refusals.append(imported)
            continue
        print(imported.run.id)
        for sentence in imported.notes:
            note(f"{imported.run.id}: {sentence}")
    for refusal in refusals[:-1]:
        note(str(refusal))
    if refusals:
        raise refusals[-1]


apps = {"import": single(import_folders)}
