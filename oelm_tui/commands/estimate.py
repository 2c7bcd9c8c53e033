"""`oelm estimate PRESET [--card NAME]`: what a run would take on a card, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, PresetsDir, Settings, catalogue, single
from oelm_tui.console import print_json, print_table

if TYPE_CHECKING:
    from oelm_core.forecast import ArmForecast, Forecast


def estimate(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PRESET", autocompletion=completion.presets)],
    card: Annotated[
        str, typer.Option(metavar="NAME", help="a5000, a100, h100, v100, 4090, ...; cpu; or this machine's own.")
    ] = "this",
    settings: Settings = None,
    as_json: AsJson = False,
    presets: PresetsDir = None,
) -> None:
    """Estimate step time, time to the end, memory and what several cards bring, with Q/K trained and frozen."""
    from oelm_core.config import override
    from oelm_core.forecast import forecast
    from oelm_core.launch.device_request import probe
    from oelm_core.proof.record import read_proofs
    from oelm_core.runs.store import list_runs

    experiment = override(catalogue(ctx, presets).experiment(name), settings or [])
    found = forecast(experiment, card, list_runs(), read_proofs(), lambda: probe() or [])
    if as_json:
        from dataclasses import asdict

        print_json(asdict(found))
    else:
        _print(found)


def _print(found: Forecast) -> None:
    from oelm_core.formatting import measured_time

    print(f"{found.preset} on {found.device}, {found.number_format}, {found.tokens:,} tokens a step\n")
    titles = {"own": "as the preset has it"}
    print_table(["", *(titles.get(arm.qk, f"Q/K {arm.qk}") for arm in found.arms)], [*_rows(found)])
    print()
    print(*found.known_by, sep="\n")
    if found.measured is not None:
        own = next(arm for arm in found.arms if arm.qk == found.own_qk)
        ratio = own.step_seconds / found.measured
        took = measured_time(found.measured)
        print(f"Earlier runs of it took {took} a step: the estimate is {ratio:.2f} times that.")
    print("Time to the end: without evaluations. Memory: counted, not measured.")


def _rows(found: Forecast) -> list[list[str]]:
    from oelm_core import formatting

    def row(title: str, *words: str) -> list[str]:
        return [title, *words]

    def best(arm: ArmForecast) -> str:
        if arm.best_batch is None or arm.best_tokens_per_second is None:
            return "does not fit"
        return f"{arm.best_batch} ({formatting.count(arm.best_tokens_per_second)} tokens/s)"

    arms = found.arms
    rows = [
        row("a step", *(f"{formatting.measured_time(arm.step_seconds)} (most: {arm.held_by})" for arm in arms)),
        row("to the end", *(formatting.duration(arm.seconds) if arm.seconds else "steps not known" for arm in arms)),
        row("peak memory", *(formatting.size(arm.memory) if arm.memory else "not known" for arm in arms)),
        row(f"best batch (recipe {found.own_batch})", *map(best, arms)),
    ]
    if arms[0].together:
        rows.append(row("gradients sent", *(formatting.size(arm.sent) for arm in arms)))
    for one in zip(*(arm.together for arm in arms), strict=True):
        # Examples cannot be divided: more cards than there are would have nothing to do.
        shared = [f"{part.shared_out:.0%}" if part.cards <= found.own_batch else "batch too small" for part in one]
        words = [f"{how}, {part.full_batches:.0%} with a batch each" for how, part in zip(shared, one, strict=True)]
        rows.append(row(f"efficiency of {one[0].cards} cards", *words))
    return rows


apps = {"estimate": single(estimate)}
