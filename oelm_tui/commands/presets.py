"""`oelm presets` and `oelm presets show ID`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from oelm_tui.commands.options import AsJson, PresetsDir, Settings, catalogue
from oelm_tui.console import console, print_json, print_table

if TYPE_CHECKING:
    from oelm_core.config import Experiment, Study
    from oelm_core.config.catalogue import Catalogue

app = typer.Typer(rich_markup_mode=None, add_completion=False)
apps = {"presets": app}


@app.callback(invoke_without_command=True)
def presets(ctx: typer.Context, as_json: AsJson = False, presets: PresetsDir = None) -> None:
    """List the experiments and studies."""
    ctx.obj = presets or ctx.find_root().obj
    if ctx.invoked_subcommand:
        return
    found = catalogue(ctx, presets, warn=True)
    experiments = [_experiment_row(experiment) for experiment in in_reading_order(found)]
    studies = [_study_row(study, found) for study in found.studies.values()]
    if as_json:
        print_json([row._asdict() for row in (*experiments, *studies)])
    else:
        _print_list(experiments, studies)


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID")],
    as_json: AsJson = False,
    settings: Settings = None,
    presets: PresetsDir = None,
) -> None:
    """Explain one preset: recipe, parameters, published result."""
    found = catalogue(ctx, presets or (ctx.parent.obj if ctx.parent else None))
    if any(name.lower() == known.lower() for known in found.studies):
        _show_study(found.study(name), found, as_json)
    else:
        from oelm_core.config import override

        _show_experiment(override(found.named(name), settings or []), as_json)


def in_reading_order(found: Catalogue) -> list[Experiment]:
    """The demo first, then BERT and GPT; arms beside their baseline, published ones before the controls."""
    experiments = list(found.experiments.values())
    reported = {e.data.name for e in experiments if e.published}

    def place(experiment: Experiment) -> tuple[object, ...]:
        group = experiment.baseline or experiment.id
        return (
            not experiment.id.startswith("demo-"),
            experiment.family,
            experiment.data.name not in reported,
            experiment.data.name,
            found.experiment(group).published is None,
            group,
            not experiment.is_baseline,
            experiment.published is None,
        )

    return sorted(experiments, key=place)


class PresetRow(NamedTuple):
    """A line of the list, with the keys of its JSON."""

    id: str
    title: str
    kind: str
    family: str
    dataset: str
    method: str | None = None
    baseline: str | None = None


def _experiment_row(one: Experiment) -> PresetRow:
    return PresetRow(one.id, one.title, "experiment", one.family, one.data.name, one.method.name, one.baseline)


def _study_row(study: Study, found: Catalogue) -> PresetRow:
    arms = [found.experiment(arm) for arm in study.arms]
    families, sets = ([*dict.fromkeys(names)] for names in ((a.family for a in arms), (a.data.name for a in arms)))
    return PresetRow(study.id, study.title, "study", ",".join(families), ",".join(sets))


def _print_list(experiments: list[PresetRow], studies: list[PresetRow]) -> None:
    print_table(
        ["EXPERIMENT", "FAMILY", "DATA", "METHOD", "BASELINE", "TITLE"],
        [[row.id, row.family, row.dataset, row.method or "-", row.baseline or "-", row.title] for row in experiments],
        drop=("BASELINE", "FAMILY", "DATA", "METHOD"),
    )
    print()
    print_table(["STUDY", "DATA", "TITLE"], [[row.id, row.dataset, row.title] for row in studies])


def _show_experiment(experiment: Experiment, as_json: bool) -> None:
    from oelm_core.config import as_dict, config_hash
    from oelm_core.formatting import size
    from oelm_core.method.census import census_of

    resolved, census = as_dict(experiment), census_of(experiment)
    if as_json:
        import msgspec

        print_json({**resolved, "config_hash": config_hash(resolved), "parameters": msgspec.to_builtins(census)})
        return
    _print_title(experiment)
    if experiment.about:
        console().print(experiment.about, markup=False)
    print()
    _print_rows({"family": experiment.family, "baseline": experiment.baseline})
    for section in ("model", "data", "method", "train", "target"):
        _print_section(section, resolved[section])
    counts = {"total": census.total, "trainable": census.trainable, "frozen": census.frozen}
    _print_section("parameters", {**counts, "checkpoint": size(census.bytes.checkpoint if census.bytes else None)})
    _print_section("published", resolved["published"])
    print(f"\nStart it with: oelm run {experiment.id}")


def _print_title(preset: Experiment | Study) -> None:
    from rich.text import Text

    console().print(Text.assemble((preset.id, "bold"), f"  {preset.title}"))


def _print_section(name: str, values: dict[str, Any] | None) -> None:
    _print_rows({f"{name}.{key}": value for key, value in (values or {}).items()})


def _print_rows(values: dict[str, Any]) -> None:
    """A row for each value that is set; one whose parts are all unset has nothing to show. Zero is a value."""
    for key, value in values.items():
        if value is not None and value is not False and (shown := _shown(value)):
            print(f"{key:<28} {shown}")


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | list | dict):
        return str(value)
    if isinstance(value, dict):
        return "  ".join(f"{key} {_shown(inner)}" for key, inner in value.items() if inner not in (None, 0, False))
    if isinstance(value, list):
        return f"{len(value)}" if value and isinstance(value[0], dict) else ", ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if value >= 10_000 else str(value)


def _show_study(study: Study, found: Catalogue, as_json: bool) -> None:
    if as_json:
        print_json(study.model_dump(mode="json"))
        return
    _print_title(study)
    print(study.question + "\n")
    arms = [found.experiment(arm) for arm in study.arms]
    print_table(
        ["ARM", "METHOD", "BASELINE", "LR", "TITLE"],
        [[arm.id, arm.method.name, arm.baseline or "-", f"{arm.train.lr:g}", arm.title] for arm in arms],
        drop=("BASELINE", "LR"),
    )
    print(f"\nseeds {', '.join(map(str, study.seeds))}\nStart it with: oelm study {study.id}")
