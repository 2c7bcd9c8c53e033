"""Audit of the author's own tables: settings as run, granularity, ratios, averages, times, parameter counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.audit import Subject, audit_ablation, audit_pair, is_ablation, merged, ordered
from oelm_core.compare.comparison import Finding
from oelm_core.compare.control_presets import Controls
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.config import as_dict, merge
from oelm_core.errors import LabError
from oelm_core.formatting import relative
from oelm_core.published.figures import Figure, derived, figures_of, of, study_figures
from oelm_core.published.kept_census import kept_census
from oelm_core.published.parameters import Census, parameters
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


def audit_published(
    catalogue: Catalogue, *, only: Sequence[str] | None = None, census: Census | None = None, count: bool = True
) -> list[Finding]:
    """Findings about all published figures in the catalogue, worst first; nothing is known beforehand.

    `only`: preset ids to restrict it to. `census`: counts parameters of an experiment; the meta device's by default,
    which takes seconds the first time. `count=False` leaves parameters out.
    """
    wanted = {name.lower() for name in only} if only is not None else None
    told = [
        experiment
        for experiment in catalogue.experiments.values()
        if experiment.published and (wanted is None or experiment.id.lower() in wanted)
    ]
    claims = {study.id: study_figures(study) for study in catalogue.studies.values()}
    known = {e.id: figures_of(e, [c for group in claims.values() for c in group]) for e in told}
    values = {e.id: headline for e in told if (headline := _headline(e, known[e.id]))}
    found = _pairs(catalogue, told, known, values, claims)
    for experiment in told:
        figures = known[experiment.id]
        found += granularity(experiment, figures) + best_against_curve(experiment, figures)
        found += perplexity_and_loss(experiment, figures)
        found += times(experiment, figures, as_run_config(experiment))
    if count:
        found += _parameters(told, known, census or kept_census)
    found += _studies(catalogue, told, known, values, claims)
    return merged(ordered(_with_sources(found, told)))


def as_run_config(experiment: Experiment) -> dict[str, Any]:
    """The recipe as the author ran it: the preset's, with `published.as_run` on top."""
    config = as_dict(experiment)
    over = experiment.published.as_run if experiment.published else {}
    return merge(config, over)


def _headline(experiment: Experiment, figures: Sequence[Figure]) -> Figure | None:
    return next(iter(of(figures, experiment.metric)), None)


def _subject(experiment: Experiment) -> Subject:
    return Subject(experiment.id, as_run_config(experiment), (), experiment.id, as_dict(experiment))


def _pairs(
    catalogue: Catalogue,
    told: Sequence[Experiment],
    known: dict[str, list[Figure]],
    values: dict[str, Figure],
    claims: Mapping[str, Sequence[Figure]],
) -> list[Finding]:
    by_id = {experiment.id.lower(): experiment for experiment in told}
    controls = Controls(catalogue)
    found: list[Finding] = []
    for arm in told:
        base = by_id.get((arm.baseline or "").lower())
        if base is None:
            continue
        pair_claims = _claims_about(arm, base, known[arm.id], claims)
        quoted = of(known[arm.id], f"baseline_{arm.metric}")
        if quoted:
            found += _quoted_baselines(arm, known[arm.id], values, quoted)
        elif arm.id in values and base.id in values:
            found += audit_pair(_subject(base), _subject(arm), controls)
            found += one_seed(arm, base, values) + differences(pair_claims, arm, base, values)
        found += speed_up(pair_claims, arm, base, known, _timing_control(catalogue, arm, base))
        for place, other in enumerate(told):
            if other is not base and other is not arm:
                found += differences(_claims_about(arm, other, known[arm.id], claims), arm, other, values)
            if place > told.index(arm) and _is_published_ablation(arm, other, known, values):
                found += audit_ablation(_subject(arm), _subject(other), controls)
    return found


def _is_published_ablation(
    one: Experiment, other: Experiment, known: dict[str, list[Figure]], values: dict[str, Figure]
) -> bool:
    same = one.baseline == other.baseline and one.data.name == other.data.name and one.model.name == other.model.name
    both = one.id in values and other.id in values
    elsewhere = any(of(known[e.id], f"baseline_{e.metric}") for e in (one, other))  # measured in another series
    return same and both and not elsewhere and is_ablation(as_run_config(one), as_run_config(other))


def _timing_control(catalogue: Catalogue, arm: Experiment, base: Experiment) -> str:
    """A timing study of both arms, else both arms in turns over three seeds."""
    both = {arm.id.lower(), base.id.lower()}
    for study in catalogue.studies.values():
        if study.table == "timing" and both <= {name.lower() for name in study.arms}:
            return f"oelm study {study.id}"
    return f"oelm run {base.id} {arm.id} --seed 42 --seed 43 --seed 44"


def _claims_about(
    arm: Experiment, reference: Experiment, own: Sequence[Figure], claims: Mapping[str, Sequence[Figure]]
) -> list[Figure]:
    """Claims that compare `arm` with `reference`: by name, or unnamed ones of the arm against its baseline."""
    pair = (arm.id.lower(), reference.id.lower())
    named = [
        c for c in [*own, *(c for group in claims.values() for c in group)] if tuple(map(str.lower, c.arms)) == pair
    ]
    unnamed = [c for c in own if not c.arms] if (arm.baseline or "").lower() == reference.id.lower() else []
    unique = {(c.what, c.value): c for c in [*unnamed, *named]}
    return list(unique.values())


def _quoted_baselines(
    arm: Experiment, figures: Sequence[Figure], values: dict[str, Figure], quoted: Sequence[Figure]
) -> list[Finding]:
    """An arm compared with quoted baseline figures: which pair of recipes does a claimed gap really compare?"""
    ours = values.get(arm.id)
    if ours is None:
        return []
    own = merge(as_run_config(arm), ours.settings or {})
    gaps = [(base, derived("gap", lambda a, b: a / b - 1, ours, base)) for base in quoted]
    found = []
    for claim in of(figures, "relative_delta"):
        matching = [(base, gap) for base, gap in gaps if gap.agrees(claim)]
        if not matching:
            nearest_base, nearest = min(gaps, key=lambda pair: abs(pair[1].value - claim.value))
            why = (
                f"gap given as {relative(claim.value)}, but {ours.value:g} against {nearest_base.value:g} "
                f"make {relative(nearest.value)}."
            )
            found.append(Finding("breaks", "ratio", (arm.id,), why, None, claim.source))
            continue
        base = matching[0][0]
        changed = _differing(own, merge(as_run_config(arm), base.settings or {}))
        if not changed:
            continue
        fair = [g for b, g in gaps if not _differing(own, merge(as_run_config(arm), b.settings or {}))]
        instead = f" The pair with equal settings makes {relative(fair[0].value)}." if fair else ""
        said = "; ".join(f"{LABELS[name]} {shown(name, a)} vs {shown(name, b)}" for name, a, b in changed)
        why = (
            f"{relative(claim.value)} compares {ours.value:g} with {base.value:g}, two recipes ({said}): "
            f"the gap is not the method's alone.{instead}"
        )
        found.append(Finding("confounds", "paired recipes", (arm.id,), why, None, claim.source))
    return found


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    first, second = settings_of(one), settings_of(other)
    return [(name, first[name], second[name]) for name in first if first[name] != second[name]]


def _studies(
    catalogue: Catalogue,
    told: Sequence[Experiment],
    known: dict[str, list[Figure]],
    values: dict[str, Figure],
    claims: Mapping[str, Sequence[Figure]],
) -> list[Finding]:
    by_id = {experiment.id.lower(): experiment for experiment in told}
    found: list[Finding] = []
    for study in catalogue.studies.values():
        arms = [by_id[arm.lower()] for arm in study.arms if arm.lower() in by_id]
        pairs = [(arm, by_id[arm.baseline.lower()]) for arm in arms if arm.baseline and arm.baseline.lower() in by_id]
        found += averages(study.id, claims[study.id], pairs, values)
        if of(claims[study.id], "step_time_run"):
            for arm, base in pairs:
                found += timing_runs(arm, base, claims[study.id], known)
    return found


def _parameters(told: Sequence[Experiment], known: dict[str, list[Figure]], census: Census) -> list[Finding]:
    about = ("total", "trainable", "frozen", "frozen_share", "saved_share", "checkpoint_mib")
    affected = [experiment for experiment in told if of(known[experiment.id], *about)]
    if not affected:
        return []
    counted: dict[str, Mapping[str, Any]] = {}
    found: list[Finding] = []
    for experiment in affected:
        try:
            counted[experiment.id] = census(experiment)
        except (ImportError, LabError) as error:
            why = f"its parameters could not be counted here ({error}); the published counts are unchecked."
            found.append(Finding("note", "parameters", (experiment.id,), why))
    for experiment in affected:
        if experiment.id in counted:
            shares = _shares_of_others(experiment, affected, counted)
            found += parameters(experiment, known[experiment.id], counted[experiment.id], shares)
    return found


def _shares_of_others(
    experiment: Experiment, affected: Sequence[Experiment], counted: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    return {
        other.model.name: counted[other.id]["frozen"] / counted[other.id]["total"]
        for other in affected
        if other.id in counted and other.model.name != experiment.model.name and counted[other.id]["frozen"]
    }


def _with_sources(findings: Sequence[Finding], told: Sequence[Experiment]) -> list[Finding]:
    """A finding about settings cites the documents of its arms; one about a baseline says how surely it is known."""
    source = {experiment.id: experiment.published.source for experiment in told if experiment.published}
    notes = {experiment.id: experiment.published.as_run_note for experiment in told if experiment.published}
    filled = []
    for finding in findings:
        cited = finding.source or ", ".join(dict.fromkeys(source[arm] for arm in finding.arms if arm in source))
        known = notes.get(finding.arms[0], "") if finding.what == "true baseline" else ""
        why = f"{finding.why} {known}".strip()
        filled.append(Finding(finding.grade, finding.what, finding.arms, why, finding.settle_with, cited or None))
    return filled
