"""Options that several commands share, each defined once, and the catalogue they lead to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from oelm_tui.console import notes

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.launch.request import LaunchRequest

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PresetsDir = Annotated[Path | None, typer.Option("--presets", metavar="DIR", help="A folder of your own presets.")]
Seed = Annotated[list[int] | None, typer.Option(help="A seed; repeatable.")]
Seeds = Annotated[
    str | None, typer.Option(metavar="N | A-B | A,B", help="So many seeds (3: 42, 43, 44), or these: 42-44 or 42,77.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Slurm = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Change a setting of slurm.yaml, such as time=2:00:00; repeatable."),
]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat every two seconds until Ctrl-C.")]


@dataclass(frozen=True)
class LaunchOptions:
    """The options of every command that starts runs; `with_launch_options` puts them on its command line."""

    device: Annotated[str, typer.Option(help="auto, cpu, or the cards a run may take: 0 or 2,3.")] = "auto"
    per_run: Annotated[int, typer.Option(help="Cards (or CPU processes) that one run uses together.", min=1)] = 1
    nodes: Annotated[int | None, typer.Option(help="Nodes of one run, each with --per-run cards; Slurm only.")] = None
    settings: Settings = None
    after: Annotated[str | None, typer.Option(metavar="RUN", help="Wait until this run has finished.")] = None
    after_any: Annotated[bool, typer.Option("--after-any", help="With --after: start even if that run fails.")] = False
    follow: Annotated[bool, typer.Option("--follow", help="Show progress to the end; Ctrl-C only stops following.")] = (
        False
    )
    launcher: Annotated[str, typer.Option(help="local or slurm.")] = "local"
    slurm: Slurm = None
    report_to: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET", help="Curves go there too: tensorboard, wandb, trackio, mlflow; repeatable."),
    ] = None
    folder: PresetsDir = None

    def request(self, seeds: Sequence[int], presets: Sequence[str] = (), study: str | None = None) -> LaunchRequest:
        from oelm_core.errors import BadInput
        from oelm_core.launch.request import LaunchRequest

        if self.after_any and not self.after:
            raise BadInput("--after-any goes with --after RUN.")
        return LaunchRequest(
            presets=tuple(presets),
            study=study,
            seeds=tuple(dict.fromkeys(seeds)),
            settings=tuple(self.settings or ()),
            device=self.device,
            per_run=self.per_run,
            nodes=self.nodes,
            after=self.after,
            after_any=self.after_any,
            launcher=self.launcher,
            slurm=tuple(self.slurm or ()),
            report_to=None if self.report_to is None else tuple(self.report_to),
        )


def chosen_seeds(seeds: str | None, seed: Sequence[int] | None) -> tuple[int, ...]:
    """What --seeds and --seed ask for; none means the preset's own, or the study's list."""
    from oelm_core.config.seeds import parse_seeds
    from oelm_core.errors import BadInput

    if seeds is not None and seed:
        raise BadInput("--seeds and --seed do not go together; write --seeds 3, or --seed 42 --seed 43 --seed 44.")
    return tuple(seed or ()) if seeds is None else parse_seeds(seeds)


def with_launch_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose parameter `options` is LaunchOptions, with each of them as an option of its own."""
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "options"]
    types = get_type_hints(LaunchOptions, include_extras=True)
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=types[one.name])
        for one in fields(LaunchOptions)
    ]

    @functools.wraps(command)
    def launch(**values: Any) -> None:
        options = LaunchOptions(**{one.name: values.pop(one.name) for one in shared})
        command(**values, options=options)

    launch.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]  # what typer reads
    launch.__annotations__ = {one.name: one.annotation for one in (*own, *shared)}
    return launch


def catalogue(ctx: typer.Context, presets: Path | None = None, *, warn: bool = False) -> Catalogue:
    """The presets; `warn` says on stderr which of them are broken."""
    from oelm_core.config.catalogue import load_catalogue

    found = load_catalogue(presets or ctx.find_root().obj)
    if warn:
        notes([f"skipped {warning}" for warning in found.warnings], "oelm presets show ID says what is wrong with one")
    return found


def single(command: Callable[..., None]) -> typer.Typer:
    """A Typer app that is one command."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command)
    return app
