"""Audit of the author's own tables: settings as run, granularity, ratios, averages, times, parameter counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.audit import audit_ablation, audit_pair, is_ablation
from oelm_core.compare.comparison import Comparison, Finding, sort_findings
from oelm_core.compare.control_presets import ControlPresets
from oelm_core.compare.settings import LABELS, Config, settings_of, shown
from oelm_core.config import as_dict, merge
from oelm_core.errors import LabError
from oelm_core.formatting import relative
from oelm_core.method.facts import Count
from oelm_core.published.figures import Figure, cited, claim_figure, derived, figures_of, named
from oelm_core.published.parameters import ABOUT, count_parameters, parameters
from oelm_core.published.results import (
    averages,
    best_against_curve,
    differences,
    granularity,
    one_seed,
    perplexity_and_loss,
)
from oelm_core.published.times import speed_up, times, timing_runs

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue


@dataclass(frozen=True)
class PublishedTables:
    """Everything the author reported, as figures."""

    catalogue: Catalogue
    experiments: list[Experiment]
    """Those with published figures."""
    figures: dict[str, list[Figure]]
    """By preset."""
    results: dict[str, Figure]
    """By preset: its headline metric, where it was published."""
    study_claims: dict[str, list[Figure]]
    """By study."""

    def find(self, name: str | None) -> Experiment | None:
        return next((one for one in self.experiments if one.id.lower() == (name or "").lower()), None)

    def claims_about(self, arm: Experiment, reference: Experiment) -> list[Figure]:
        """Claims that compare `arm` with `reference`: by name, or unnamed ones of the arm against its baseline."""
        own, pair = self.figures[arm.id], (arm.id.lower(), reference.id.lower())
        unnamed = [c for c in own if not c.arms] if self.find(arm.baseline) is reference else []
        every = [*own, *(claim for claims in self.study_claims.values() for claim in claims)]
        about_pair = [claim for claim in every if tuple(map(str.lower, claim.arms)) == pair]
        return list({(claim.what, claim.value): claim for claim in [*unnamed, *about_pair]}.values())


CountParameters = Callable[["Experiment"], Count]


def audit_published(
    catalogue: Catalogue, *, only: Sequence[str] | None = None, census: CountParameters | None = count_parameters
) -> list[Finding]:
    """Findings about all published figures in the catalogue, worst first; nothing is known beforehand.

    `only`: preset ids to restrict it to. `census=None` leaves parameters out.
    """
    tables = _read_tables(catalogue, only)
    found = [*_pairs(tables)]
    for experiment in tables.experiments:
        figures = tables.figures[experiment.id]
        for check in (granularity, best_against_curve, perplexity_and_loss):
            found += check(experiment, figures)
        found += times(experiment, figures, as_run_config(experiment))
    if census is not None:
        found += _parameters(tables, census)
    found += _studies(tables)
    return sort_findings(_with_sources(found, tables.experiments))


def with_published_audit(comparison: Comparison, catalogue: Catalogue) -> Comparison:
    """The comparison with the audit of what the author published about its presets."""
    presets = [arm.preset for group in comparison.groups for arm in group.arms]
    return dataclasses.replace(comparison, published=tuple(audit_published(catalogue, only=presets)))


def as_run_config(experiment: Experiment) -> Config:
    """The recipe as the author ran it: the preset's, with `published.as_run` on top."""
    return merge(as_dict(experiment), experiment.published.as_run if experiment.published else {})


def _read_tables(catalogue: Catalogue, only: Sequence[str] | None) -> PublishedTables:
    wanted = {name.lower() for name in only} if only is not None else None
    experiments = [
        experiment
        for experiment in catalogue.experiments.values()
        if experiment.published and (wanted is None or experiment.id.lower() in wanted)
    ]
    claims = {study.id: [claim_figure(claim) for claim in study.claims] for study in catalogue.studies.values()}
    every = [claim for group in claims.values() for claim in group]
    figures = {experiment.id: figures_of(experiment, every) for experiment in experiments}
    results = {one.id: found[0] for one in experiments if (found := named(figures[one.id], one.metric))}
    return PublishedTables(catalogue, experiments, figures, results, claims)


def _arm(experiment: Experiment) -> ArmEvidence:
    return ArmEvidence(experiment.id, as_run_config(experiment), (), experiment.id, as_dict(experiment))


def _pairs(tables: PublishedTables) -> Iterator[Finding]:
    controls = ControlPresets(tables.catalogue)
    for place, arm in enumerate(tables.experiments):
        base = tables.find(arm.baseline)
        if base is None:
            continue
        claims = tables.claims_about(arm, base)
        if _quoted_baselines(arm, tables):
            yield from _paired_recipes(arm, tables)
        elif arm.id in tables.results and base.id in tables.results:
            yield from audit_pair(_arm(base), _arm(arm), controls)
            yield from one_seed(arm, base, tables.results)
            yield from differences(claims, arm, base, tables.results)
        yield from speed_up(claims, arm, base, tables.figures, _timing_control(tables.catalogue, arm, base))
        for other_place, other in enumerate(tables.experiments):
            if other is not base and other is not arm:
                yield from differences(tables.claims_about(arm, other), arm, other, tables.results)
            if other_place > place and _is_published_ablation(arm, other, tables):
                yield from audit_ablation(_arm(arm), _arm(other), controls)


def _is_published_ablation(one: Experiment, other: Experiment, tables: PublishedTables) -> bool:
    same = one.baseline == other.baseline and one.data.name == other.data.name and one.model.name == other.model.name
    both = one.id in tables.results and other.id in tables.results
    elsewhere = _quoted_baselines(one, tables) or _quoted_baselines(other, tables)  # measured in another series
    return same and both and not elsewhere and is_ablation(as_run_config(one), as_run_config(other))


def _timing_control(catalogue: Catalogue, arm: Experiment, base: Experiment) -> str:
    """A timing study of both arms, else both arms in turns over three seeds."""
    both = {arm.id.lower(), base.id.lower()}
    for study in catalogue.studies.values():
        if study.table == "timing" and both <= {name.lower() for name in study.arms}:
            return f"oelm study {study.id}"
    return f"oelm run {base.id} {arm.id} --seed 42 --seed 43 --seed 44"


def _quoted_baselines(arm: Experiment, tables: PublishedTables) -> list[Figure]:
    """Baseline figures that the author quotes with an arm, from another series than the baseline preset's."""
    return named(tables.figures[arm.id], f"baseline_{arm.metric}")


def _paired_recipes(arm: Experiment, tables: PublishedTables) -> Iterator[Finding]:
    """An arm compared with quoted baseline figures: which pair of recipes does a claimed gap really compare?"""
    ours = tables.results.get(arm.id)
    if ours is None:
        return
    recipe = as_run_config(arm)
    own = merge(recipe, ours.settings)
    quoted = _quoted_baselines(arm, tables)
    gaps = [(base, derived("gap", lambda a, b: a / b - 1, ours, base)) for base in quoted]
    changes = {base.value: _differing(own, merge(recipe, base.settings)) for base in quoted}
    for claim in named(tables.figures[arm.id], "relative_delta"):
        matching = [base for base, gap in gaps if gap.agrees(claim)]
        if not matching:
            base, nearest = min(gaps, key=lambda pair: abs(pair[1].value - claim.value))
            why = (
                f"gap given as {relative(claim.value)}, but {ours.value:g} against {base.value:g} "
                f"make {relative(nearest.value)}."
            )
            yield cited("breaks", "ratio", (arm.id,), why, claim)
            continue
        base = matching[0]
        if not changes[base.value]:
            continue
        fair = [gap for other, gap in gaps if not changes[other.value]]
        instead = f" The pair with equal settings makes {relative(fair[0].value)}." if fair else ""
        each = "; ".join(f"{LABELS[name]} {shown(name, a)} vs {shown(name, b)}" for name, a, b in changes[base.value])
        why = (
            f"{relative(claim.value)} compares {ours.value:g} with {base.value:g}, two recipes ({each}): "
            f"the gap is not the method's alone.{instead}"
        )
        yield cited("confounds", "paired-recipes", (arm.id,), why, claim)


def _differing(one: Config, other: Config) -> list[tuple[str, Any, Any]]:
    first, second = settings_of(one), settings_of(other)
    return [(name, first[name], second[name]) for name in first if first[name] != second[name]]


def _studies(tables: PublishedTables) -> Iterator[Finding]:
    for study in tables.catalogue.studies.values():
        claims = tables.study_claims[study.id]
        arms = [arm for name in study.arms if (arm := tables.find(name))]
        pairs = [(arm, base) for arm in arms if (base := tables.find(arm.baseline))]
        yield from averages(study.id, claims, pairs, tables.results)
        if named(claims, "step_time_run"):
            for arm, base in pairs:
                yield from timing_runs(arm, base, claims, tables.figures)


def _parameters(tables: PublishedTables, census: CountParameters) -> Iterator[Finding]:
    affected = [experiment for experiment in tables.experiments if named(tables.figures[experiment.id], *ABOUT)]
    counted: dict[str, Count] = {}
    for experiment in affected:
        try:
            counted[experiment.id] = census(experiment)
        except (ImportError, LabError) as error:
            why = f"its parameters could not be counted here ({error}); the published counts are unchecked."
            yield Finding("note", "parameters", (experiment.id,), why)
    for experiment in affected:
        if experiment.id in counted:
            others = [other for other in affected if other.model.name != experiment.model.name]
            shares = {
                other.model.name: counts.frozen / counts.total
                for other in others
                if (counts := counted.get(other.id)) and counts.frozen
            }
            yield from parameters(experiment, tables.figures[experiment.id], counted[experiment.id], shares)


def _with_sources(findings: Sequence[Finding], experiments: Sequence[Experiment]) -> list[Finding]:
    """A finding about settings cites the documents of its arms; one about a baseline says how surely it is known."""
    published = {experiment.id: experiment.published for experiment in experiments if experiment.published}
    filled = []
    for finding in findings:
        about = [published[arm] for arm in finding.arms if arm in published]
        source = finding.source or ", ".join(dict.fromkeys(one.source for one in about)) or None
        how_sure = about[0].as_run_note if finding.code == "untouched-baseline" and about else ""
        filled.append(dataclasses.replace(finding, why=f"{finding.why} {how_sure}".strip(), source=source))
    return filled
