"""Whether a published figure may stand beside a run: was it this network and recipe, and does the figure hold?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, Finding
from oelm_core.compare.model_identity import substitute
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.formatting import listed, percent
from oelm_core.published.audit import audit_published

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

_LOOSE = {"clock", "eval_every", "batching", "compile", "tokenizer", "precision", "model"}
"""Settings that do not make a result one of another recipe."""
_REFUTES_RESULT = ("true baseline", "granularity", "best and curve", "perplexity and loss")
_REFUTES_TIME = ("step time", "step time x steps", "clock")
"""Kinds of findings that break the published headline metric, or the published step time."""


def with_doubts(arms: Iterable[Arm], catalogue: Catalogue, metric: str) -> list[Arm]:
    """The arms, with what is wrong with their published figures: `refuted` {figure: why}, `differs` [how]."""
    arms = list(arms)
    told = [arm.preset for arm in arms if arm.published]
    if not told:
        return arms
    refuted: dict[str, dict[str, list[Finding]]] = {}
    for finding in audit_published(catalogue, only=told, count=False):
        figure = metric if finding.what in _REFUTES_RESULT else "step_time" if finding.what in _REFUTES_TIME else None
        for preset in finding.arms if figure and finding.grade == "breaks" else ():
            refuted.setdefault(preset.lower(), {}).setdefault(str(figure), []).append(finding)
    return [_with_doubts(arm, catalogue, refuted.get(arm.preset.lower(), {})) if arm.published else arm for arm in arms]


def _with_doubts(arm: Arm, catalogue: Catalogue, refuted: Mapping[str, Sequence[Finding]]) -> Arm:
    published = dict(arm.published or {})
    here = {
        figure: about[0].why
        for figure, findings in refuted.items()
        if (about := [f for f in findings if figure in published and _concerns(f, published[figure])])
    }
    differs = differences(arm, catalogue)
    more: dict[str, Any] = {"refuted": here} if here else {}
    more |= {"differs": differs} if differs else {}
    return dataclasses.replace(arm, published=published | more)


def _concerns(finding: Finding, value: float) -> bool:
    """Whether a finding about several figures of a run is about this one."""
    if finding.what == "granularity":
        return f"{percent(value)} (nearest" in finding.why
    if finding.what.startswith("step time"):
        return f"{value:g} s per step" in finding.why
    return True


def differences(arm: Arm, catalogue: Catalogue) -> list[str]:
    """How the run differs from the preset that the figures were published for."""
    from oelm_core.config import as_dict

    preset = next((e for name, e in catalogue.experiments.items() if name.lower() == arm.preset.lower()), None)
    if preset is None or not arm.config.get("model"):  # imported: it is the author's own run
        return []
    found = []
    other = substitute(arm.config)
    if other and other != substitute(as_dict(preset)):
        total = arm.mean("total")
        size = f" ({total:,.0f} parameters)" if total else ""
        found.append(f"network {other}{size}, not {preset.model.name}")
    theirs, ours = settings_of(as_dict(preset)), settings_of(arm.config)
    for name in LABELS:
        if name not in _LOOSE and ours[name] is not None and ours[name] != theirs[name]:
            found.append(f"{LABELS[name]} {shown(name, ours[name])}, not {shown(name, theirs[name])}")
    return found


def column_findings(arms: Sequence[Arm]) -> list[Finding]:
    """Said once for all arms that differ alike from what was published."""
    alike: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        differs = tuple((arm.published or {}).get("differs") or ())
        if differs:
            alike.setdefault(differs, []).append(arm)
    found = []
    for differs, members in alike.items():
        what = "network" if differs[0].startswith("network ") else "recipe"
        ran = listed([arm.id for arm in members])
        why = f"the published figures are of another {what} than {ran} ran with: {'; '.join(differs)}."
        presets = " ".join(dict.fromkeys(arm.preset for arm in members))
        found.append(Finding("note", "published column", tuple(arm.id for arm in members), why, f"oelm run {presets}"))
    return found
