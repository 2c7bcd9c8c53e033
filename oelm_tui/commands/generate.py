"""`oelm generate RUN... --prompt TEXT`: what the language models of runs write, as it comes."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Annotated

import typer

from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import note, print_json

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...", help="Run ids, unambiguous beginnings of them, or @last.", autocompletion=completion.runs
    ),
]


def generate(
    names: Names,
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    length: Annotated[int | None, typer.Option(help="Tokens to write at most; 100 where there is room.", min=1)] = None,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; more is wilder.", min=0)] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw among so many likeliest tokens; 0: among all.", min=0)] = 50,
    seed: Annotated[int, typer.Option(help="Of the draws; the same for every run.")] = 42,
    device: Annotated[str, typer.Option(help="cpu, or the number of a card.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Continue a text with the best checkpoint of runs, one after the other."""
    from oelm_core.launch.generate import Sampling
    from oelm_core.launch.generate import generate as pieces_of
    from oelm_core.launch.launcher import find_run

    runs = [find_run(name) for name in dict.fromkeys(names)]
    sampling = Sampling(length, temperature, top_k, seed)
    written: list[dict[str, str | int]] = []
    with closing(pieces_of(runs, prompt, sampling, device)) as pieces:  # Ctrl-C ends the process too
        for piece in pieces:
            if piece.step is not None:
                written.append({"run": piece.run, "step": piece.step, "prompt": prompt, "text": ""})
                if not as_json:
                    if len(written) > 1:
                        print("\n")
                    if len(runs) > 1:
                        print(f"{piece.run}, step {piece.step}:")
                if piece.note:
                    note(f"{piece.run}: {piece.note}.")
                continue
            if not as_json:
                print(_shown(piece.text), end="", flush=True)
            written[-1]["text"] = f"{written[-1]['text']}{piece.text}"
    if as_json:
        print_json(written)
    else:
        print()


def _shown(text: str) -> str:
    from oelm_core.plain_text import visible

    return "".join(part if part in "\n\t" else visible(part) for part in re.split(r"([\n\t])", text))


apps = {"generate": single(generate)}
