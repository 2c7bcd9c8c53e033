"""The fairness audit of a pair: every setting that differs other than what is under test, graded, with its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oelm_core.compare.audit_runs import observed_findings
from oelm_core.compare.comparison import GRADES, Finding, Grade
from oelm_core.compare.control_presets import Controls
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.registry import is_orthonormal, models_language


@dataclass(frozen=True)
class Subject:
    """One side of a comparison: a configuration, and the runs that prove what happened (none for published ones)."""

    name: str
    config: Mapping[str, Any]
    runs: tuple[Evidence, ...] = ()
    preset: str | None = None
    """Id of the recipe it should have been, for the remedy."""
    recipe: Mapping[str, Any] | None = None
    """That recipe, where `config` is what was run instead."""


# setting -> (grade, what it puts in doubt)
DOUBTS: dict[str, tuple[Grade, str]] = {
    "data": ("breaks", "the arms answer different questions"),
    "data_part": ("breaks", "the arms saw different amounts of data"),
    "validation": ("breaks", "the arms are judged on different text"),
    "max_length": ("confounds", "the arms see different contexts"),
    "tokenizer": ("breaks", "tokens, and so perplexities and lengths, do not correspond"),
    "model": ("breaks", "the networks differ"),
    "shape": ("breaks", "the networks differ in size"),
    "start": ("confounds", "one arm starts from pretrained weights and the other does not"),
    "dropout": ("confounds", "regularisation may explain part of the gap"),
    "duration": ("breaks", "one arm trained longer"),
    "lr": ("confounds", "part of the gap may be the rate, not the method"),
    "schedule": ("confounds", "part of the gap may be the schedule"),
    "warmup": ("confounds", "part of the gap may be the schedule"),
    "optimiser": ("confounds", "part of the gap may be the optimiser"),
    "effective_batch": ("confounds", "the gradient noise per step differs"),
    "accumulate": ("confounds", "times per step are not of the same work"),
    "precision": ("confounds", "rounding and speed differ"),
    "batching": ("confounds", "times per step are not of the same work"),
    "compile": ("confounds", "times per step are not of the same code"),
    "eval_every": ("confounds", "the best of more validations is a luckier best"),
    "rates": ("confounds", "layers learn at different rates"),
    "clock": ("breaks", "step times count different work, so no speed can be concluded"),
}

WORTH_SAYING = (
    *("data", "validation", "max_length", "model", "start", "duration", "lr", "schedule", "warmup", "optimiser"),
    *("effective_batch", "accumulate", "precision", "dropout", "eval_every"),
)
"""Settings a reader is glad to see named as equal."""


def audit_pair(baseline: Subject, arm: Subject, controls: Controls | None = None) -> list[Finding]:
    """Findings of an arm against its baseline. The method itself is under test; all else should be equal."""
    ours, theirs = settings_of(arm.config), settings_of(baseline.config)
    findings = baseline_findings(baseline)
    findings += _differences(baseline, arm, theirs, ours, tuple(DOUBTS), controls)
    if not findings or not any(f.what == "true baseline" for f in findings):
        findings += _scale_and_rows(baseline, arm, theirs, ours, controls)
    findings += observed_findings((baseline.name, baseline.config, baseline.runs), (arm.name, arm.config, arm.runs))
    return ordered(findings)


def audit_ablation(one: Subject, other: Subject, controls: Controls | None = None) -> list[Finding]:
    """Findings between two arms that freeze the same weights and differ in how these start: orthonormal or noise."""
    first, second = settings_of(one.config), settings_of(other.config)
    findings = _differences(one, other, first, second, tuple(DOUBTS), controls)
    return ordered(findings + _scale_and_rows(one, other, first, second, controls))


def is_ablation(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """One orthonormal start and one Gaussian start of the same frozen weights."""
    first, second = settings_of(one), settings_of(other)
    kinds = {_start_kind(first), _start_kind(second)}
    return kinds == {"orthonormal", "gaussian"} and bool(first["freeze"]) and first["freeze"] == second["freeze"]


def baseline_findings(baseline: Subject) -> list[Finding]:
    """A baseline must be untouched: known from its weights where a run checked them, else from its settings."""
    method = baseline.config.get("method") or {}
    ran = [run for run in baseline.runs if "metric" in run.values]
    checked = [run for run in ran if run.true_baseline is not None]
    broken = [run for run in checked if run.true_baseline is False]
    doubts = "what it is compared with is not the standard model"
    again = f"oelm run {baseline.preset}" if baseline.preset else None
    if method.get("freeze"):
        why = f"{baseline.name} froze {' and '.join(method['freeze'])}: {doubts}."
        return [Finding("breaks", "true baseline", (baseline.name,), why, again)]
    if method.get("init", "none") != "none":
        start = settings_of(baseline.config)
        lost = "overwritten by noise" if start["qk_from"] == "random" else "made orthonormal"
        was = "pretrained Q/K" if start["start"] == "pretrained" else "Q/K"
        why = f"{baseline.name} had its {was} {lost} before training (init {method['init']}): {doubts}."
        return [Finding("breaks", "true baseline", (baseline.name,), why, again)]
    if broken:
        ids = ", ".join(run.id for run in broken)
        why = f"the Q/K weights of {ids} were not those that were loaded or drawn: {doubts}."
        return [Finding("breaks", "true baseline", (baseline.name,), why, again)]
    if len(checked) < len(ran):
        why = f"whether the Q/K of {baseline.name} were untouched is not recorded; it is taken on trust."
        return [Finding("note", "true baseline", (baseline.name,), why, again)]
    return []


def _differences(
    baseline: Subject,
    arm: Subject,
    theirs: Mapping[str, Any],
    ours: Mapping[str, Any],
    names: Sequence[str],
    controls: Controls | None,
) -> list[Finding]:
    found = []
    for name in names:
        a, b = theirs.get(name), ours.get(name)
        if a is None or b is None or a == b:
            continue
        grade, doubt = DOUBTS[name]
        if name == "max_length" and models_language(arm.config):
            grade, doubt = "breaks", "perplexities over different contexts do not compare"
        if name in ("shape", "optimiser"):
            a, b = _only_different(a, b)
        why = f"{LABELS[name]} {shown(name, a)} ({baseline.name}) vs {shown(name, b)} ({arm.name}): {doubt}."
        control = _control(name, baseline, arm, controls)
        found.append(Finding(grade, LABELS[name], (baseline.name, arm.name), why, control))
    return found


def _scale_and_rows(
    one: Subject, other: Subject, first: Mapping[str, Any], second: Mapping[str, Any], controls: Controls | None
) -> list[Finding]:
    """Norm and row space of Q/K at the start: what confounds orthogonality itself."""
    found = []
    a, b = _norm(one, first), _norm(other, second)
    if _norms_differ(a, b):
        if isinstance(a, float) and isinstance(b, float):
            large, small = max(a, b), min(a, b)
            said = f"so attention logits start {(large / small) ** 2:.1f}x apart"
        else:
            said = "so attention logits start at another scale"
        why = (
            f"norm of Q/K rows at the start {shown('qk_norm', a)} ({one.name}) "
            f"vs {shown('qk_norm', b)} ({other.name}), {said}: the gap may be scale, not orthogonality."
        )
        control = _control("qk_norm", one, other, controls)
        found.append(Finding("confounds", LABELS["qk_norm"], (one.name, other.name), why, control))
    rows = first.get("qk_from"), second.get("qk_from")
    if None not in rows and rows[0] != rows[1]:
        why = (
            f"Q/K of {one.name} start from {_rows(rows[0])}, those of {other.name} from {_rows(rows[1])}: "
            "the gap may be what pretraining put there."
        )
        control = _control("qk_from", one, other, controls)
        found.append(Finding("confounds", LABELS["qk_from"], (one.name, other.name), why, control))
    return found


def _control(name: str, one: Subject, other: Subject, controls: Controls | None) -> str | None:
    presets = one.preset or one.name, other.preset or other.name
    first, second = one.recipe or one.config, other.recipe or other.config
    if settings_of(first)[name] == settings_of(second)[name]:
        return f"oelm run {' '.join(presets)}"  # the presets themselves do not differ in it
    return (controls or Controls()).find(name, first, second, presets)


def _rows(kind: object) -> str:
    return "pretrained rows" if kind == "pretrained" else "a random draw"


def _norm(subject: Subject, settings: Mapping[str, Any]) -> float | str | None:
    """Measured where a run recorded it, else what the settings imply."""
    measured = [run.values["qk_row_norm"] for run in subject.runs if "qk_row_norm" in run.values]
    return sum(measured) / len(measured) if measured else settings.get("qk_norm")


def _norms_differ(a: float | str | None, b: float | str | None) -> bool:
    if a is None or b is None:
        return False
    if isinstance(a, str) or isinstance(b, str):
        return a != b
    return max(a, b) > 1.1 * min(a, b)


def _start_kind(settings: Mapping[str, Any]) -> str:
    init = settings.get("init")
    return "orthonormal" if is_orthonormal(init) else str(init)


def _only_different(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return {key: a.get(key) for key in keys}, {key: b.get(key) for key in keys}


def equal_settings(subjects: Sequence[Subject]) -> tuple[str, ...]:
    """Labels of the settings that all arms share: what the reader need not worry about."""
    if len(subjects) < 2:
        return ()
    first, *rest = [settings_of(subject.config) for subject in subjects]
    shared = [name for name in WORTH_SAYING if first[name] is not None and all(s[name] == first[name] for s in rest)]
    labels = [LABELS[name] for name in shared]
    runs = [run for subject in subjects for run in subject.runs]
    if runs and all(subject.runs for subject in subjects):
        for fact, label in (("data_fingerprint", "data read"), ("host", "host"), ("git_commit", "code commit")):
            if len({run.facts.get(fact) for run in runs}) == 1 and runs[0].facts.get(fact) is not None:
                labels.append(label)
        known = not any(run.imported for run in runs)  # an import's seed is unknown
        if known and len({tuple(sorted(run.seed for run in subject.runs)) for subject in subjects}) == 1:
            labels.append("seeds and so the order of batches")
    return tuple(labels)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; the same difference found for several arms becomes one finding."""
    unique = list(dict.fromkeys(findings))
    return sorted(unique, key=lambda finding: GRADES.index(finding.grade))


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the same words are said once, for all their arms."""
    kept: dict[tuple[Grade, str, str, str | None], Finding] = {}
    for finding in findings:
        key = (finding.grade, finding.what, finding.why, finding.source)
        old = kept.get(key)
        arms = tuple(dict.fromkeys((old.arms if old else ()) + finding.arms))
        kept[key] = Finding(*key[:2], arms, finding.why, finding.settle_with, finding.source)
    return list(kept.values())
