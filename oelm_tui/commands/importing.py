"""`oelm import`: output folders of the author's scripts become read-only runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm_tui.commands.options import catalogue, single


def import_folders(ctx: typer.Context, folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")]) -> None:
    """Turn output folders of the author's scripts into read-only runs; importing twice changes nothing."""
    from oelm_core.importing import import_folder

    found = catalogue(ctx)
    for folder in folders:
        imported = import_folder(folder, found)
        print(imported.id)


apps = {"import": single(import_folders)}
