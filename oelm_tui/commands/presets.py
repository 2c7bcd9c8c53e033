"""`oelm presets` and `oelm presets show ID`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, PresetsDir, Settings, catalogue
from oelm_tui.console import console, print_json, print_table

if TYPE_CHECKING:
    from oelm_core.config import Experiment, Study
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.preset_card import PresetCard

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
    name: Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.presets_and_studies)],
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

        _show_experiment(override(found.named(name), settings or []), found, as_json)


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
    recommended: bool = False

    @property
    def marked_title(self) -> str:
        return f"{self.title} (recommended)" if self.recommended else self.title


def _experiment_row(one: Experiment) -> PresetRow:
    return PresetRow(
        one.id, one.title, "experiment", one.family, one.data.name, one.method.name, one.baseline, bool(one.finding)
    )


def _study_row(study: Study, found: Catalogue) -> PresetRow:
    arms = [found.experiment(arm) for arm in study.arms]
    families, sets = ([*dict.fromkeys(names)] for names in ((a.family for a in arms), (a.data.name for a in arms)))
    return PresetRow(study.id, study.title, "study", ",".join(families), ",".join(sets))


def _print_list(experiments: list[PresetRow], studies: list[PresetRow]) -> None:
    print_table(
        ["EXPERIMENT", "FAMILY", "DATA", "METHOD", "BASELINE", "TITLE"],
        [
            [row.id, row.family, row.dataset, row.method or "-", row.baseline or "-", row.marked_title]
            for row in experiments
        ],
        drop=("BASELINE", "FAMILY", "DATA", "METHOD"),
    )
    print()
    print_table(["STUDY", "DATA", "TITLE"], [[row.id, row.dataset, row.title] for row in studies])


def _show_experiment(experiment: Experiment, found: Catalogue, as_json: bool) -> None:
    if as_json:
        import msgspec

        from oelm_core.config import as_dict, config_hash
        from oelm_core.method.census import census_of

        resolved, census = as_dict(experiment), census_of(experiment)
        print_json({**resolved, "config_hash": config_hash(resolved), "parameters": msgspec.to_builtins(census)})
        return
    from oelm_core.estimate import estimate
    from oelm_core.launch.launcher import list_runs
    from oelm_core.preset_card import PresetFacts, experiment_card
    from oelm_core.published.facts import findings_about
    from oelm_core.published.parameters import count_parameters

    runs = list_runs()
    findings = findings_about(experiment.id, found) if experiment.published else []
    facts = PresetFacts(count_parameters(experiment), findings)
    _print_card(experiment_card(experiment, found, runs, estimate(experiment, runs), facts))


def _print_card(card: PresetCard) -> None:
    """The card that the screen shows, in the terminal's own colours."""
    from rich.text import Text

    from oelm_core.plain_text import visible
    from oelm_tui.render.preset_card import card_lines

    out = console()
    for line in card_lines(card, min(out.width, 120)):
        out.print(Text.assemble(*((visible(text), _STYLES.get(role, "")) for text, role in line)), soft_wrap=True)


_STYLES = {"title": "bold cyan", "label": "bold", "faint": "dim", "bad": "red", "wait": "yellow", "key": "cyan"}


def _show_study(study: Study, found: Catalogue, as_json: bool) -> None:
    if as_json:
        print_json(study.model_dump(mode="json"))
        return
    from oelm_core.launch.launcher import list_runs
    from oelm_core.preset_card import study_card

    _print_card(study_card(study, found, list_runs()))
