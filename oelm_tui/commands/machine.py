"""`oelm gpus`: the cards, who is on them, and the machine's load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import print_json

if TYPE_CHECKING:
    pass


def gpus(
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show the GPUs, who is on them, and the machine's load."""
    from oelm_core.devices import snapshot

    while True:
        now = snapshot()
        if as_json:
            print_json(now.to_json())
        else:
            if watch:
                print("\033[H\033[2J", end="")
            _print(now)
        if not watch:
            return
        try:
            time.sleep(2)
        except KeyboardInterrupt:
            return


apps = {"gpus": single(gpus)}
