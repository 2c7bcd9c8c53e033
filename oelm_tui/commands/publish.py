"""`oelm publish RUN --to FOLDER`: a finished run's model as a folder that others can load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oelm_tui.commands.options import PresetsDir, catalogue, single
from oelm_tui.commands.runs import RunName
from oelm_tui.console import note


def publish(
    ctx: typer.Context,
    name: RunName,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder, or an empty one.")],
    folder: PresetsDir = None,
) -> None:
    """Write a finished run's best checkpoint for others: safetensors, config, tokenizer, model card."""
    from oelm_core.launch.launcher import find_run
    from oelm_core.launch.publish import publish as write

    answer = write(find_run(name), to, catalogue(ctx, folder))
    print(to)
    how = "from_pretrained of transformers" if answer.loader == "transformers" else "oelm_core.load_published"
    note(f"{answer.network}, step {answer.step}; it loads with {how}. Its card is {to / 'README.md'}.")


apps = {"publish": single(publish)}
