"""The fairness audit of settings: each that differs other than what is under test, graded, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.audit_runs import audit_runs
from oelm_core.compare.comparison import Finding, Grade
from oelm_core.compare.control_presets import ControlPresets
from oelm_core.compare.settings import LABELS, SETTINGS, Config, Settings, settings_of, shown
from oelm_core.registry import is_orthonormal, models_language
from oelm_core.runs.schema import setting


def audit_pair(baseline: ArmEvidence, arm: ArmEvidence, controls: ControlPresets | None = None) -> list[Finding]:
    """Findings of an arm against its baseline. The method itself is under test; all else should be equal."""
    doubts = audit_baseline(baseline)
    scale = [] if doubts else _scale_and_rows(baseline, arm, controls)
    return [*doubts, *_differences(baseline, arm, controls), *scale, *audit_runs(baseline, arm)]


def audit_ablation(one: ArmEvidence, other: ArmEvidence, controls: ControlPresets | None = None) -> list[Finding]:
    """Findings between two arms that freeze the same weights and differ in how these start: orthonormal or noise."""
    return [*_differences(one, other, controls), *_scale_and_rows(one, other, controls)]


def is_ablation(one: Config, other: Config) -> bool:
    """One orthonormal start and one Gaussian start of the same frozen weights."""
    first, second = settings_of(one), settings_of(other)
    starts = {"orthonormal" if is_orthonormal(side["init"]) else side["init"] for side in (first, second)}
    return starts == {"orthonormal", "gaussian"} and bool(first["freeze"]) and first["freeze"] == second["freeze"]


def audit_baseline(baseline: ArmEvidence) -> list[Finding]:
    """A baseline must be untouched: known from its weights where a run checked them, else from its settings."""
    frozen, init = setting(baseline.config, "method.freeze"), setting(baseline.config, "method.init", "none")
    checked = [run for run in baseline.scored if run.qk_untouched is not None]
    touched = [run.id for run in checked if not run.qk_untouched]
    name, doubt = baseline.name, "what it is compared with is not the standard model"
    grade: Grade = "breaks"
    if frozen:
        why = f"{name} froze {' and '.join(frozen)}: {doubt}."
    elif init != "none":
        start = settings_of(baseline.config)
        lost = "overwritten by noise" if start["qk_from"] == "random" else "made orthonormal"
        was = "pretrained Q/K" if start["start"] == "pretrained" else "Q/K"
        why = f"{name} had its {was} {lost} before training (init {init}): {doubt}."
    elif touched:
        why = f"the Q/K weights of {', '.join(touched)} were not those that were loaded or drawn: {doubt}."
    elif len(checked) < len(baseline.scored):
        grade, why = "note", f"whether the Q/K of {name} were untouched is not recorded; it is taken on trust."
    else:
        return []
    again = f"oelm run {baseline.preset}" if baseline.preset else None
    return [Finding(grade, "untouched-baseline", (name,), why, again)]


def _differences(one: ArmEvidence, other: ArmEvidence, controls: ControlPresets | None) -> Iterator[Finding]:
    first, second = settings_of(one.config), settings_of(other.config)
    for name, rule in SETTINGS.items():
        a, b, grade, doubt = first[name], second[name], rule.grade, rule.doubt
        if grade is None or a is None or b is None or a == b:
            continue
        if name == "max_length" and models_language(other.config):
            grade, doubt = "breaks", "perplexities over different contexts do not compare"
        if isinstance(a, dict) and isinstance(b, dict):
            a, b = _only_different(a, b)
        why = f"{LABELS[name]} {shown(name, a)} ({one.name}) vs {shown(name, b)} ({other.name}): {doubt}."
        yield _finding(grade, name, one, other, why, controls)


def _scale_and_rows(one: ArmEvidence, other: ArmEvidence, controls: ControlPresets | None) -> Iterator[Finding]:
    """Norm and row space of Q/K at the start: what confounds orthogonality itself."""
    first, second = settings_of(one.config), settings_of(other.config)
    a, b = _norm(one, first), _norm(other, second)
    if _norms_differ(a, b):
        if isinstance(a, float) and isinstance(b, float):
            scale = f"so attention logits start {(max(a, b) / min(a, b)) ** 2:.1f}x apart"
        else:
            scale = "so attention logits start at another scale"
        why = (
            f"norm of Q/K rows at the start {shown('qk_norm', a)} ({one.name}) "
            f"vs {shown('qk_norm', b)} ({other.name}), {scale}: the gap may be scale, not orthogonality."
        )
        yield _finding("confounds", "qk_norm", one, other, why, controls)
    rows = first["qk_from"], second["qk_from"]
    if None not in rows and rows[0] != rows[1]:
        from_what = ["pretrained rows" if kind == "pretrained" else "a random draw" for kind in rows]
        why = (
            f"Q/K of {one.name} start from {from_what[0]}, those of {other.name} from {from_what[1]}: "
            "the gap may be what pretraining put there."
        )
        yield _finding("confounds", "qk_from", one, other, why, controls)


def _finding(
    grade: Grade, name: str, one: ArmEvidence, other: ArmEvidence, why: str, controls: ControlPresets | None
) -> Finding:
    """A finding about a setting, with what settles it."""
    presets = one.preset or one.name, other.preset or other.name
    first, second = one.recipe or one.config, other.recipe or other.config
    if settings_of(first)[name] == settings_of(second)[name]:
        settle: str | None = f"oelm run {' '.join(presets)}"  # the presets themselves do not differ in it
    else:
        settle = (controls or ControlPresets()).find(name, first, second, presets)
    return Finding(grade, name.replace("_", "-"), (one.name, other.name), why, settle)


def _norm(arm: ArmEvidence, settings: Settings) -> float | str | None:
    """Measured where a run recorded it, else what the settings imply."""
    measured = [run.values["qk_row_norm"] for run in arm.runs if "qk_row_norm" in run.values]
    implied: float | str | None = settings["qk_norm"]
    return sum(measured) / len(measured) if measured else implied


def _norms_differ(a: float | str | None, b: float | str | None) -> bool:
    if a is None or b is None:
        return False
    if isinstance(a, str) or isinstance(b, str):
        return a != b
    return max(a, b) > 1.1 * min(a, b)


def _only_different(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return {key: a.get(key) for key in keys}, {key: b.get(key) for key in keys}


def equal_settings(arms: Sequence[ArmEvidence]) -> tuple[str, ...]:
    """Labels of the settings that all arms share: what the reader need not worry about."""
    if len(arms) < 2:
        return ()
    first, *rest = [settings_of(arm.config) for arm in arms]
    worth_saying = (name for name, one in SETTINGS.items() if one.reassures)
    shared = [name for name in worth_saying if first[name] is not None and all(s[name] == first[name] for s in rest)]
    labels = [LABELS[name] for name in shared]
    runs = [run for arm in arms for run in arm.runs]
    recorded = {
        "data read": {run.text for run in runs},
        "host": {run.record.host for run in runs},
        "code commit": {run.record.git_commit for run in runs},
    }
    labels += [label for label, found in recorded.items() if len(found) == 1 and None not in found]
    known = not any(run.run.imported for run in runs)  # an import's seed is unknown
    if known and len({tuple(sorted(run.seed for run in arm.runs)) for arm in arms}) == 1:
        labels.append("seeds and so the order of batches")
    return tuple(labels)
