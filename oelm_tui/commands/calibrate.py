"""`oelm calibrate`: compare a preset with itself, and keep what it shows for the tables of its recipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_core.formatting import gap, listed, metric_value, percent, points, relative, whole
from oelm_core.plain_text import visible
from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, PresetsDir, Seeds, catalogue, single
from oelm_tui.console import console, note, print_json, print_table

if TYPE_CHECKING:
    from oelm_core.compare.self_comparison import SelfComparison
    from oelm_core.config import Experiment
    from oelm_core.runs.folder import RunFolder

BASES = {"test": "on test", "cross-fitted": "validation, cross-fitted", "best": "best validation"}


def calibrate(
    ctx: typer.Context,
    preset: Annotated[str, typer.Argument(metavar="PRESET", autocompletion=completion.presets)],
    seeds: Seeds = None,
    metric: Annotated[str | None, typer.Option(help="Another metric than the preset's own.")] = None,
    device: Annotated[str, typer.Option(help="For runs that are missing: auto, cpu, or cards: 0 or 2,3.")] = "auto",
    as_json: AsJson = False,
    folder: PresetsDir = None,
) -> None:
    """Compare a preset with itself over all splits of its seeds: false alarms, spread, and what it could detect.

    --seeds first starts those that are missing, in the background, and follows them.
    """
    from oelm_core.compare.self_comparison import compare_with_itself, own_runs
    from oelm_core.config import as_dict, config_hash
    from oelm_core.launch.launcher import list_runs
    from oelm_core.runs import process
    from oelm_core.study.calibration import calibration_path, save_calibration

    experiment = catalogue(ctx, folder).named(preset)
    recipe = config_hash(as_dict(experiment))
    if seeds:
        _run_missing_seeds(experiment, recipe, seeds, device)
    evidence, notes = own_runs(recipe, list_runs())
    found = compare_with_itself(experiment.id, evidence, metric, notes)
    record = found.record(process.host())
    if as_json:
        print_json(_as_json(found))
    else:
        show(found)
    path = calibration_path(record, evidence[0].metric)
    save_calibration(record, path)
    note(f"kept in {path}; tables with this recipe name it, and borrow its spread.")


def _run_missing_seeds(experiment: Experiment, recipe: str, wanted: str, device: str) -> None:
    """Starts the seeds that are missing and follows them to their end."""
    from oelm_core.compare.self_comparison import FEWEST, missing_seeds
    from oelm_core.config.seeds import parse_seeds
    from oelm_core.errors import BadInput
    from oelm_core.launch import launcher
    from oelm_core.launch.request import LaunchRequest, RunRequest
    from oelm_tui.commands.run import follow_to_end

    seeds = parse_seeds(wanted)
    if len(seeds) < FEWEST:
        raise BadInput(f"--seeds {wanted}: to compare a preset with itself takes at least {FEWEST} seeds.")
    missing, under_way = missing_seeds(recipe, launcher.list_runs(), seeds)
    folders: list[RunFolder] = [run.folder for run in under_way]
    if under_way:
        names = listed([str(run.seed) for run in under_way])
        note(f"{experiment.id} with seed{'s' if len(under_way) > 1 else ''} {names} is under way already.")
    if missing:
        names = listed([str(seed) for seed in missing])
        note(
            f"starting {experiment.id} with seed{'s' if len(missing) > 1 else ''} {names}; Ctrl-C leaves them running."
        )
        places, command = LaunchRequest().reports_to(), tuple(sys.argv)
        requests = [RunRequest(experiment, seed, device, command=command, report_to=places) for seed in missing]
        folders += launcher.start_all("local", requests)
    try:
        if folders:
            follow_to_end(folders)
    except KeyboardInterrupt:
        note(f"the same command goes on from here: oelm calibrate {experiment.id} --seeds {wanted}")
        raise


def show(found: SelfComparison) -> None:
    """The table, and what to make of it."""
    spread = found.sample.variance**0.5
    low, high = (metric_value(found.metric, value) for value in (min(found.values), max(found.values)))
    size = gap(found.metric, spread).lstrip("+")
    over = f", {whole(found.examples)} {found.unit}" if found.unit else ", without examples"
    out = console()
    basis = f"{found.metric} ({BASES[found.basis]}){over}"
    out.print(visible(f"{found.preset} compared with itself: {basis}"), markup=False)
    out.print(f"{len(found.seeds)} seeds ({_seeds(found.seeds)}): {low} to {high}, standard deviation {size}\n")
    rows = [
        [
            str(one.seeds),
            whole(one.looked_at)
            if one.looked_at == one.possible
            else f"{whole(one.looked_at)} of {whole(one.possible)}",
            percent(one.rate, 1),
            _range(one.by_chance),
            _size(found.metric, one.detects),
            _size(found.metric, one.detects_calibrated),
        ]
        for one in found.sizes
    ]
    rows.append(["all", whole(found.looked_at), percent(found.rate, 1), _range(found.by_chance), "", ""])
    columns = ["SEEDS A SIDE", "SPLITS", "FALSE ALARMS", "BY CHANCE", "DETECTS", "WITH THIS CALIBRATION"]
    print_table(columns, rows, right=columns)
    out.print(
        "\nFalse alarms: splits in which the preset differs from itself at p < 0.05; 5 % would be right.\n"
        "By chance: splits overlap, so the rate is rough; with as many seeds, 95 of 100 labs see one in this range.\n"
        "Detects: the gap found in four of five cases, by so many seeds alone or with the spread borrowed from here;\n"
        "examples on which two methods truly differ come on top."
    )
    for sentence in found.notes:
        note(sentence)


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0] * 100:.1f} to {bounds[1] * 100:.1f} %"


def _size(metric: str, value: float) -> str:
    from oelm_core.metric import metric_named

    return (points(value) if metric_named(metric).is_share else relative(value)).lstrip("+")


def _seeds(seeds: tuple[int, ...]) -> str:
    """
    >>> _seeds((42, 43, 44)), _seeds((1, 7))
    ('42-44', '1, 7')
    """
    unbroken = seeds == tuple(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if unbroken else ", ".join(map(str, seeds))


def _as_json(found: SelfComparison) -> dict[str, object]:
    return {
        "preset": found.preset,
        "config_hash": found.config_hash,
        "metric": found.metric,
        "basis": found.basis,
        "examples": found.examples,
        "unit": found.unit,
        "seeds": list(found.seeds),
        "scores": list(found.values),
        "spread": found.sample.variance**0.5,
        "false_alarms": found.rate,
        "by_chance": list(found.by_chance),
        "sides": [
            {
                "seeds": one.seeds,
                "splits": one.looked_at,
                "possible": one.possible,
                "false_alarms": one.rate,
                "by_chance": list(one.by_chance),
                "detects": one.detects,
                "detects_calibrated": one.detects_calibrated,
            }
            for one in found.sizes
        ],
        "notes": list(found.notes),
    }


apps = {"calibrate": single(calibrate)}
