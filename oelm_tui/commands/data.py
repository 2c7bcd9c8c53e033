"""`oelm data list`, `data prepare NAME` and `data tokenizer`: which text is here, tokenising it once, and by what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands.options import AsJson
from oelm_tui.console import print_json, print_table

if TYPE_CHECKING:
    from oelm_core.config import Experiment

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)
apps = {"data": app}


@app.callback()
def data() -> None:
    """List datasets, tokenise one, or make a tokenizer."""


@app.command("list")
def list_sets(as_json: AsJson = False) -> None:
    """Which datasets can be used here without a network, and how to get the others."""
    from oelm_core.data.sets import SETS, available, how_to_get

    found = [(name, known.about, *available(name)) for name, known in SETS.items()]
    if as_json:
        print_json([dict(zip(("name", "about", "here", "where"), one, strict=True)) for one in found])
        return
    print_table(
        ["DATASET", "ABOUT", "HERE", "WHERE"],
        [[name, about, "yes" if here else "no", where if here else "-"] for name, about, here, where in found],
    )
    if not all(here for _, _, here, _ in found):
        print(f"\nTo get one: {how_to_get('NAME')}.")


@app.command()
def prepare(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A dataset, or a preset whose data is meant.")],
    path: Annotated[str | None, typer.Option(help="Your own text files instead.", metavar="PATH")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Hub name or folder; gpt2 by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write.", metavar="DIR")] = None,
    workers: Annotated[int | None, typer.Option(help="Threads; all cores by default.", min=1)] = None,
) -> None:
    """Fetch a dataset and tokenise it once, so that runs start at once and without a network."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from oelm_core.data.prepare import prepare as prepare_data
    from oelm_core.data.sets import find_set

    what = name if path or find_set(name) else _preset(ctx, name)
    words = [TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[tokens]")]
    columns = (words[0], BarColumn(), words[1], TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=None, tokens="")

        def show(documents: int, tokens: int, fraction: float | None) -> None:
            shown = f"{documents:,} texts, {tokens:,} tokens"
            progress.update(task, total=fraction and 1.0, completed=fraction or 0.0, tokens=shown)

        folder = prepare_data(what, out, workers or os.cpu_count(), show, tokenizer, path)
    print(folder)


@app.command()
def tokenizer(
    text: Annotated[Path, typer.Option("--from", help="A text, or a folder with a training text.", metavar="PATH")],
    vocab: Annotated[int, typer.Option(help="Tokens, <|endoftext|> among them.", metavar="N")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.", metavar="DIR")],
) -> None:
    """Learn a byte-level BPE from your own text, for data.tokenizer: a small model wants a small vocabulary."""
    from oelm_core.data.tokenizers import make_tokenizer

    print(make_tokenizer(text, vocab, out))


def _preset(ctx: typer.Context, name: str) -> Experiment:
    """The preset whose data is meant; who wrote neither its id nor a dataset's name is told the datasets."""
    from oelm_core.data.sets import SETS
    from oelm_core.errors import NotFound, did_you_mean
    from oelm_tui.commands.options import catalogue

    found = catalogue(ctx)
    try:
        return found.experiment(name)
    except NotFound:
        near = did_you_mean(name, [*found.experiments, *SETS])
        raise NotFound(f"no dataset or preset '{name}'.{near} The datasets are {', '.join(SETS)}.") from None
