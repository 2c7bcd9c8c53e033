"""Options that several commands share, and the catalogue they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oelm_tui.console import note

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

Site = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm", metavar="KEY=VALUE", help="Change a setting of slurm.yaml, such as time=2:00:00; repeatable."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PresetsDir = Annotated[Path | None, typer.Option("--presets", metavar="DIR", help="A folder of your own presets.")]


def catalogue(ctx: typer.Context, presets: Path | None = None, *, warn: bool = False) -> Catalogue:
    """The presets; `warn` says on stderr which of them are broken."""
    from oelm_core.config.catalogue import load_catalogue

    found = load_catalogue(presets or ctx.find_root().obj)
    if warn:
        for warning in found.warnings:
            note(f"skipped {warning}")
    return found


def single(command: Any) -> typer.Typer:
    """A Typer app that is one command."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command)
    return app
