"""The published column of a table: whether a figure may stand beside a run. Was it this recipe, and does it hold?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, sort_findings
from oelm_core.compare.settings import LABELS, settings_of, shown, substituted_model
from oelm_core.config import as_dict
from oelm_core.formatting import listed
from oelm_core.published.audit import audit_published
from oelm_core.runs.schema import setting

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue

_LOOSE = {"clock", "eval_every", "batching", "compile", "tokenizer", "precision", "model"}
"""Settings that do not make a result one of another recipe."""
_REFUTES_RESULT = ("untouched-baseline", "granularity", "best-below-curve", "perplexity-and-loss")
_REFUTES_TIME = ("step-time", "step-time-x-steps", "clock")
"""Codes of findings that break the published headline metric, or the published step time."""


def with_published_column(comparison: Comparison, catalogue: Catalogue) -> Comparison:
    """The arms with what the author reported for their presets, and what is wrong with it.

    `published` of an arm may also hold `refuted` {figure: why} and `differs` [how the run differs].
    """
    return dataclasses.replace(comparison, groups=tuple(_marked(group, catalogue) for group in comparison.groups))


def _marked(group: Group, catalogue: Catalogue) -> Group:
    presets = {name.lower(): experiment for name, experiment in catalogue.experiments.items()}
    reported = {arm.id: _reported(arm, presets.get(arm.preset.lower())) for arm in group.arms}
    audited = [arm.preset for arm in group.arms if reported[arm.id]]
    if not audited:
        return group
    findings = [f for f in audit_published(catalogue, only=audited, census=None) if f.grade == "breaks"]
    deviations = {arm.id: _deviations(arm, presets.get(arm.preset.lower())) for arm in group.arms if reported[arm.id]}
    arms = []
    for arm in group.arms:
        published = reported[arm.id]
        if published:
            about = [f for f in findings if arm.preset.lower() in map(str.lower, f.arms)]
            marks = {
                "refuted": _refuted(published, about, group.metric),
                "differs": [deviation for _, deviation in deviations[arm.id]],
            }
            arm = dataclasses.replace(arm, published=published | {key: mark for key, mark in marks.items() if mark})
        arms.append(arm)
    audit = sort_findings([*group.audit, *_column_findings(group.arms, deviations)])
    return dataclasses.replace(group, arms=tuple(arms), audit=tuple(audit))


def _reported(arm: Arm, preset: Experiment | None) -> dict[str, Any]:
    """The catalogue's word on a preset wins over the copy a run kept: figures may be corrected later."""
    if preset is None:
        kept = setting(arm.config, "published", {})
    else:
        kept = preset.published.model_dump(mode="json") if preset.published else {}
    return {key: value for key, value in kept.items() if value not in (None, [], {})}


def _refuted(published: dict[str, Any], findings: Sequence[Finding], metric: str) -> dict[str, str]:
    """Figure -> the first finding because of which it does not hold."""
    why: dict[str, str] = {}
    for finding in findings:
        figure = metric if finding.code in _REFUTES_RESULT else "step_time" if finding.code in _REFUTES_TIME else ""
        if figure in published and (finding.values is None or published[figure] in finding.values):
            why.setdefault(figure, finding.why)
    return why


def _deviations(arm: Arm, preset: Experiment | None) -> list[tuple[str, str]]:
    """(setting, how the run differs in it) from the preset that the figures were published for."""
    if preset is None or not arm.config.get("model"):  # imported: it is the author's own run
        return []
    recipe = as_dict(preset)
    theirs, ours = settings_of(recipe), settings_of(arm.config)
    found = [
        (name, f"{LABELS[name]} {shown(name, ours[name])}, not {shown(name, theirs[name])}")
        for name in LABELS
        if name not in _LOOSE and ours[name] is not None and ours[name] != theirs[name]
    ]
    other = substituted_model(arm.config)
    if other and other != substituted_model(recipe):
        total = arm.mean("total")
        size = f" ({total:,.0f} parameters)" if total else ""
        found.insert(0, ("network", f"network {other}{size}, not {preset.model.name}"))
    return found


def _column_findings(arms: Sequence[Arm], deviations: dict[str, list[tuple[str, str]]]) -> list[Finding]:
    """Said once for all arms that differ alike from what was published."""
    alike: dict[tuple[tuple[str, str], ...], list[Arm]] = {}
    for arm in arms:
        if deviations.get(arm.id):
            alike.setdefault(tuple(deviations[arm.id]), []).append(arm)
    found = []
    for differs, members in alike.items():
        what = "network" if differs[0][0] == "network" else "recipe"
        names = tuple(arm.id for arm in members)
        why = (
            f"the published figures are of another {what} than {listed(names)} ran with: "
            f"{'; '.join(deviation for _, deviation in differs)}."
        )
        presets = " ".join(dict.fromkeys(arm.preset for arm in members))
        found.append(Finding("note", "published-column", names, why, f"oelm run {presets}"))
    return found
