"""`oelm evaluate RUN --data PATH`: a finished run's best checkpoint on other text, kept beside the run."""

from __future__ import annotations

from typing import Annotated

import typer

from oelm_core.formatting import metric
from oelm_core.plain_text import visible
from oelm_tui.commands.options import AsJson, Settings, single
from oelm_tui.commands.runs import RunName
from oelm_tui.console import note, print_json


def evaluate(
    name: RunName,
    data: Annotated[str, typer.Option(metavar="PATH", help="A file or folder, in the formats of data.path.")],
    split: Annotated[str | None, typer.Option(help="Of a folder: test, else validation, unless said.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Score once more what was scored before.")] = False,
    device: Annotated[str, typer.Option(help="cpu, or the number of a card.")] = "cpu",
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Score a finished run's best checkpoint on other text. Each look is a line of the ledger."""
    from oelm_core.launch.later_score import score_later
    from oelm_core.launch.launcher import find_run

    run = find_run(name)
    answer = score_later(run, data, split, again=again, device=device, settings=list(settings or ()))
    assert answer.kept is not None
    score, headline = answer.kept.score, answer.kept.metric
    if as_json:
        shown = {key: getattr(score, key) for key in ("step", "source", "examples", "fingerprint", "values", "note")}
        looks = {"scored": answer.scored, "looks": answer.looks, "own_looks": answer.own_looks}
        value = {"name": headline, "value": score.values.get(headline)}
        print_json({"run": run.id, **shown, "metric": value, **looks, "file": answer.file})
        return
    print(f"{run.id}, best checkpoint (step {score.step}), on {visible(score.source)}: n = {score.examples:,}")
    names = sorted(score.values, key=lambda key: key != headline)  # the headline first
    print("  ".join(metric(key, score.values[key]) for key in names))
    if score.note:
        note(f"{score.note}.")
    if not answer.scored:
        note("it was scored on this text before, and that score is shown; --again scores it once more.")
    if answer.looks:
        times = "once" if answer.looks == 1 else f"{answer.looks} times"
        own = answer.own_looks
        by = " by this run" if own == answer.looks else f", {own} of them by this run" if own else " by other runs"
        note(f"this text was looked at {times} before{by}.")
    note(f"kept in {answer.file}")


apps = {"evaluate": single(evaluate)}
