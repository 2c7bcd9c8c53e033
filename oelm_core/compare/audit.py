"""The fairness audit of settings: each that differs other than what is under test, graded, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.audit_kept import audit_collapse, audit_kept
from oelm_core.compare.audit_runs import (
    audit_best_of_many,
    audit_machine_load,
    audit_resumed,
    audit_runs,
    audit_seed_count,
    of_one_kind,
)
from oelm_core.compare.comparison import Finding, Grade
from oelm_core.compare.control_presets import ControlPresets
from oelm_core.compare.item_scores import Basis
from oelm_core.compare.settings import SETTINGS, Config, Settings, is_untouched, settings_of, shown
from oelm_core.formatting import listed
from oelm_core.registry import is_orthonormal, method_name, models_language
from oelm_core.runs.schema import setting

MILDER: dict[Grade, Grade] = {"breaks": "confounds", "confounds": "note"}
"""Grade of a difference -> that of not knowing whether there is one."""


def audit_pair(
    baseline: ArmEvidence, arm: ArmEvidence, controls: ControlPresets | None = None, basis: Basis = "best"
) -> list[Finding]:
    """Findings of an arm against its baseline. The method itself is under test; all else should be equal.

    `basis`: where the table's numbers come from. A validation that chose the checkpoint flatters only as "best".
    """
    doubts = audit_baseline(baseline, controls)
    scale = [] if doubts else _scale_and_rows(baseline, arm, controls)
    settings = _differences(baseline, arm, controls, basis)
    chosen = [*audit_best_of_many(baseline, arm)] if basis == "best" else []
    return [*doubts, *settings, *scale, *audit_runs(baseline, arm), *chosen, *audit_collapse(baseline, arm, basis)]


def audit_ablation(
    one: ArmEvidence, other: ArmEvidence, controls: ControlPresets | None = None, basis: Basis = "best"
) -> list[Finding]:
    """Findings between two arms that freeze the same weights and differ in how these start: orthonormal or noise."""
    return [*_differences(one, other, controls, basis), *_scale_and_rows(one, other, controls)]


def audit_table(arms: Sequence[ArmEvidence]) -> list[Finding]:
    """What is said once for a whole table, or about an arm by itself."""
    own = [finding for arm in arms for finding in audit_kept(arm)]
    return [*own, *audit_unknown(arms), *audit_resumed(arms), *audit_machine_load(arms), *audit_seed_count(arms)]


def is_ablation(one: Config, other: Config) -> bool:
    """One orthonormal start and one Gaussian start of the same frozen weights."""
    first, second = ({name: SETTINGS[name].read(side) for name in ("init", "freeze")} for side in (one, other))
    starts = {"orthonormal" if is_orthonormal(side["init"]) else side["init"] for side in (first, second)}
    return starts == {"orthonormal", "gaussian"} and bool(first["freeze"]) and first["freeze"] == second["freeze"]


def settings_done(arm: ArmEvidence) -> Settings:
    """An arm's settings as its runs recorded them, where they did; else as its configuration says."""
    done = [e for e in arm.scored if e.run.state == "finished"]
    recorded: dict[str, list[Any]] = {
        "duration": [f"{steps:,} steps" for e in done if (steps := e.steps)],
        "effective_batch": [e.result.effective_batch for e in done if e.result.effective_batch],
        "precision": [e.result.precision for e in done if e.result.precision],
    }
    each = {name: list(dict.fromkeys(values)) for name, values in recorded.items() if len(values) == len(done) > 0}
    known = {name: values[0] if len(values) == 1 else " / ".join(map(str, values)) for name, values in each.items()}
    return settings_of(arm.config) | known


# -- the baseline ------------------------------------------------------------------------------------------------------


def audit_baseline(baseline: ArmEvidence, controls: ControlPresets | None = None) -> list[Finding]:
    """A baseline must be untouched: known from its weights where a run checked them, else from its settings."""
    config, name, doubt = baseline.config, baseline.name, "what it is compared with is not the standard model"
    frozen, init = setting(config, "method.freeze"), setting(config, "method.init", "none")
    settings = settings_of(config)
    checked = [run for run in baseline.scored if run.qk_untouched is not None]
    touched = [run.id for run in checked if not run.qk_untouched]
    grade: Grade = "breaks"
    if frozen:
        why = f"{name} froze {' and '.join(frozen)}: {doubt}."
    elif init != "none":
        lost = "overwritten by noise" if settings["qk_from"] == "random" else "made orthonormal"
        was = "pretrained Q/K" if settings["start"] == "pretrained" else "Q/K"
        why = f"{name} had its {was} {lost} before training (init {init}): {doubt}."
    elif settings["peer"]:
        kind = method_name(str(setting(config, "method.peer.kind", "a peer method")))
        why = f"{name} trained with {kind}, most of its weights frozen: {doubt}."
    elif settings["extras"] not in (None, "none"):
        why = f"{name} learnt extra attention parameters ({settings['extras']}): {doubt}."
    elif touched:
        why = f"the Q/K weights of {', '.join(touched)} were not those that were loaded or drawn: {doubt}."
    elif len(checked) < len(baseline.scored):
        grade, why = "note", f"whether the Q/K of {name} were untouched is not recorded; it is taken on trust."
    else:
        return []
    return [Finding(grade, "untouched-baseline", (name,), why, _untouched(baseline, controls or ControlPresets()))]


def _untouched(baseline: ArmEvidence, controls: ControlPresets) -> str | None:
    """What would be an untouched baseline: the preset itself where only this run of it was touched, else another."""
    recipe = baseline.recipe or controls.recipe_of(baseline.preset) or baseline.config
    if baseline.preset and (is_untouched(recipe) or not setting(recipe, "method.init")):
        return f"oelm run {baseline.preset}"
    return controls.untouched(baseline.config)


# -- settings that differ ----------------------------------------------------------------------------------------------


def _differences(
    one: ArmEvidence, other: ArmEvidence, controls: ControlPresets | None, basis: Basis
) -> Iterator[Finding]:
    first, second = settings_done(one), settings_done(other)
    same_text = len(texts := {e.text for e in (*one.scored, *other.scored)}) == 1 and None not in texts
    alone = _is_only_difference(first, second)
    for name, rule in SETTINGS.items():
        a, b, grade, doubt = first[name], second[name], rule.grade, rule.doubt
        if isinstance(a, dict) and isinstance(b, dict):
            a, b = _only_different(a, b)
        if grade is None or a is None or b is None or a == b or name in alone:
            continue
        if rule.proof == "text" and same_text:
            continue  # the same tokens and labels, by whatever names
        if name == "max_length" and models_language(other.config):
            grade, doubt = "breaks", "perplexities over different contexts do not compare"
        if name == "eval_every" and basis != "best":
            grade, doubt = "note", "one arm chose its checkpoint from more of them"
        if name == "test" and basis != "test":
            grade, doubt = "note", "the table rests on validation"
        why = f"{rule.label} {shown(name, a)} ({one.name}) vs {shown(name, b)} ({other.name}): {doubt}."
        yield _finding(grade, name, one, other, why, controls)


def _is_only_difference(first: Settings, second: Settings) -> tuple[str, ...]:
    """Per-layer rates or extras, where they are all that an arm does to attention: then they are under test."""
    method = ("init", "freeze", "layers", "unfreeze", "peer")
    return ("rates", "extras") if all(first[name] == second[name] for name in method) else ()


def _only_different(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without what is equal, or said by one side only."""
    keys = [key for key in a if key in b and a[key] != b[key]]
    return {key: a[key] for key in keys}, {key: b[key] for key in keys}


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
    if SETTINGS[name].read(first) == SETTINGS[name].read(second):
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


# -- what is not known, and what is equal ------------------------------------------------------------------------------


def audit_unknown(arms: Sequence[ArmEvidence]) -> Iterator[Finding]:
    """What runs did not record, said once for a whole table and grade: unknown is not equal."""
    for grade, milder in MILDER.items():
        missing = {arm.name: found for arm in arms if arm.scored and (found := _unknown(arm, grade))}
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, found in missing.items():
            alike.setdefault(found, []).append(name)
        if alike:
            each = "; ".join(f"{listed(found)} of {listed(names)}" for found, names in alike.items())
            yield Finding(milder, "unknown", tuple(missing), f"not recorded, so not known to be equal: {each}.")


def _unknown(arm: ArmEvidence, grade: Grade) -> tuple[str, ...]:
    """Labels of what an arm's runs did not record, of those whose difference would have this grade."""
    recorded = {
        "text": all(e.text is not None for e in arm.scored),
        "weights": all(e.weights is not None for e in arm.scored),
    }
    settings = settings_done(arm)
    labels = [
        one.label
        for name, one in SETTINGS.items()
        if one.grade == grade and settings[name] is None and not (one.proof and recorded[one.proof])
    ]
    if grade == "breaks":
        labels += [] if recorded["text"] else ["the text that was read"]
        labels += [] if recorded["weights"] else ["the weights it started from"]
    return tuple(labels)


def equal_settings(arms: Sequence[ArmEvidence]) -> tuple[str, ...]:
    """Labels of the settings that all arms are known to share: what the reader need not worry about."""
    if len(arms) < 2:
        return ()
    runs = [run for arm in arms for run in arm.scored]
    recorded: dict[str, set[Any]] = {
        "data read": {run.text for run in runs},
        "weights": {run.weights for run in runs},
        "host": {run.record.host for run in runs},
        "code commit": {(run.record.git_commit, run.record.git_diff) for run in runs},
    }
    proven = {"text": of_one_kind(recorded["data read"]), "weights": of_one_kind(recorded["weights"])}
    first, *rest = [settings_done(arm) for arm in arms]
    labels = [
        one.label
        for name, one in SETTINGS.items()
        if one.reassures
        and first[name] is not None
        and all(other[name] == first[name] for other in rest)
        and not (one.proof and runs and not proven[one.proof])
    ]
    labels += [label for label, found in recorded.items() if label != "weights" and of_one_kind(found)]
    known = not any(run.run.imported for run in runs)  # an import's seed is unknown
    if known and len({tuple(sorted(run.seed for run in arm.runs)) for arm in arms}) == 1:
        labels.append("seeds and so the order of batches")
    return tuple(labels)
