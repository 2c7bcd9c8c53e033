"""The published column of a table: whether a figure may stand beside a run. Was it this recipe, and does it hold?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, sort_findings
from oelm_core.compare.config_values import is_imported
from oelm_core.compare.settings import SETTINGS, settings_of, shown, substituted_model
from oelm_core.config import as_dict
from oelm_core.formatting import listed
from oelm_core.published.audit import audit_published
from oelm_core.runs.schema import setting

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue

_REFUTES_RESULT = ("untouched-baseline", "granularity", "best-below-curve", "perplexity-and-loss")
_REFUTES_TIME = ("step-time", "step-time-x-steps", "clock")
"""Codes of findings that break the published headline metric, or the published step time."""
Deviations = tuple[tuple[str, str], ...]
"""(setting, how it differs), each."""


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
    arms: list[Arm] = []
    alike: dict[Deviations, list[Arm]] = {}
    for arm in group.arms:
        published = reported[arm.id]
        if published:
            deviations = _deviations(arm, presets.get(arm.preset.lower()))
            about = [f for f in findings if arm.preset.lower() in map(str.lower, f.arms)]
            marks = {
                "refuted": _refuted(published, about, group.metric),
                "differs": [how for _, how in deviations],
            }
            arm = dataclasses.replace(arm, published=published | {key: mark for key, mark in marks.items() if mark})
            if deviations:
                alike.setdefault(deviations, []).append(arm)
        arms.append(arm)
    audit = sort_findings([*group.audit, *(_column_finding(*members) for members in alike.items())])
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


def _deviations(arm: Arm, preset: Experiment | None) -> Deviations:
    """How the run differs from the preset that the figures were published for."""
    if preset is None or is_imported(arm.config):  # the author's own run
        return ()
    recipe = as_dict(preset)
    theirs, ours = settings_of(recipe), arm.settings
    found = []
    other = substituted_model(arm.config)
    if other and other != substituted_model(recipe):
        total = arm.mean("total")
        size = f" ({total:,.0f} parameters)" if total else ""
        found.append(("network", f"network {other}{size}, not {preset.model.name}"))
    trained, expected = arm.mean("train_examples"), preset.data.train_examples
    if trained and expected and abs(trained - expected) > 0.01 * expected:
        found.append(("data_part", f"{trained:,.0f} training examples, not {expected:,}"))
        ours["data_part"] = None  # said
    for name, one in SETTINGS.items():
        if one.of_recipe and ours[name] is not None and ours[name] != theirs[name]:
            found.append((name, f"{one.label} {shown(name, ours[name])}, not {shown(name, theirs[name])}"))
    return tuple(found)


def _column_finding(deviations: Deviations, arms: Sequence[Arm]) -> Finding:
    """Said once for all arms that differ alike from what was published."""
    what = "network" if deviations[0][0] == "network" else "recipe"
    names = tuple(arm.id for arm in arms)
    how = "; ".join(how for _, how in deviations)
    why = f"the published figures are of another {what} than {listed(names)} ran with: {how}."
    presets = " ".join(dict.fromkeys(arm.preset for arm in arms))
    return Finding("note", "published-column", names, why, f"oelm run {presets}")
