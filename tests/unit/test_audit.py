"""The fairness audit: every unfair difference is found, graded and given a remedy, and fair pairs stay clean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import oelm_core
from oelm_core.compare import compare_runs
from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.audit import audit_pair
from oelm_core.compare.audit_runs import FACTS
from oelm_core.compare.comparison import FINDINGS, Finding
from oelm_core.compare.config_values import qk_norm
from oelm_core.compare.settings import settings_of
from oelm_core.config import as_dict
from oelm_core.config.catalogue import Catalogue
from tests.run_factory import BERT, FROZEN, GPT, RANDOM, experiment, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")


def catalogue(*experiments):
    return Catalogue(experiments={e.id: e for e in (BASE, OELM, *experiments)})


def graded(findings: list[Finding] | tuple[Finding, ...], what: str) -> list[str]:
    return [finding.grade for finding in findings if finding.what == what]


def audit_of(tmp_path, base=BASE, arm=OELM, *, base_run=None, arm_run=None, presets=()):
    runs = [
        write_run(tmp_path, base, number=1, **(base_run or {})),
        write_run(tmp_path, arm, number=2, **(arm_run or {})),
    ]
    return compare_runs(runs, catalogue(*presets)).groups[0].audit


def test_arms_that_differ_only_in_the_method_are_not_broken(tmp_path):
    audit = audit_of(tmp_path)
    assert not [finding for finding in audit if finding.grade == "breaks"]
    assert {finding.what for finding in audit if finding.grade == "confounds"} == {"init scale"}


def test_a_baseline_whose_weights_were_touched_breaks_the_comparison(tmp_path):
    audit = audit_of(tmp_path, base_run={"result": {"true_baseline": False}})
    assert graded(audit, "untouched baseline") == ["breaks"]


def test_a_baseline_nobody_checked_is_taken_on_trust_and_says_so(tmp_path):
    unchecked = {"result": {"true_baseline": None}, "checks": {"true_baseline": None}}
    assert graded(audit_of(tmp_path, base_run=unchecked), "untouched baseline") == ["note"]


@pytest.mark.parametrize(
    ("setting", "what", "grade"),
    [
        ("train.lr=5e-3", "learning rate", "confounds"),
        ("train.batch_size=32", "effective batch", "confounds"),
        ("train.precision=bf16", "precision", "confounds"),
        ("train.schedule=cosine", "schedule", "confounds"),
        ("train.max_steps=500", "training length", "breaks"),
        ("data.limit=100", "data used", "breaks"),
        ("data.max_length=16", "sequence length", "confounds"),
        ("model.dropout=0.3", "dropout", "confounds"),
        ("train.eval_every=50", "validation interval", "confounds"),
        ("train.checkpoint_activations=true", "activation checkpointing", "note"),
        ("train.shard=true", "sharding", "note"),
    ],
)
def test_a_setting_other_than_the_method_is_graded(tmp_path, setting, what, grade):
    arm = experiment("rev-oelm", BERT, setting, method=FROZEN, baseline="rev-baseline")
    assert grade in graded(audit_of(tmp_path, arm=arm), what)


def test_the_same_batch_in_more_pieces_confounds_times_only(tmp_path):
    arm = experiment("rev-oelm", BERT, "train.batch_size=8", "train.accumulate=2", method=FROZEN, baseline=BASE.id)
    audit = audit_of(tmp_path, arm=arm)
    assert graded(audit, "gradient accumulation") == ["confounds"]
    assert graded(audit, "effective batch") == []


def test_different_data_under_one_name_is_known_by_its_fingerprint(tmp_path):
    audit = audit_of(tmp_path, arm_run={"result": {"data": {"name": "reviews", "fingerprint": "other"}}})
    assert graded(audit, "data") == ["breaks"]


def test_a_failed_arm_breaks_the_comparison_and_can_be_resumed(tmp_path):
    audit = audit_of(tmp_path, arm_run={"state": "failed", "reason": "oom"})
    found = next(finding for finding in audit if finding.what == "arm not finished")
    assert found.grade == "breaks"
    assert "oom" in found.why
    assert str(found.settle_with).startswith("oelm resume rev-oelm-s42")


def test_frozen_weights_that_moved_break_the_comparison(tmp_path):
    assert graded(audit_of(tmp_path, arm_run={"result": {"frozen": {"unchanged": False}}}), "frozen weights") == [
        "breaks"
    ]


def test_host_code_versions_and_load_are_notes(tmp_path):
    other = {
        "result": {"versions": {"torch": "2.2.0"}},
        "run": {"git_commit": "fedc", "host": "gpu43"},
        "attempt": {"machine": {"before": {"busy": [{"pid": 7, "uid": 0, "name": "rsync", "cores": 0.9}]}}},
    }
    audit = audit_of(tmp_path, arm_run=other)
    for what in ("versions", "code commit", "host", "other load"):
        assert graded(audit, what) == ["note"], what


def test_the_control_preset_is_found_by_its_settings(tmp_path):
    arm = experiment("rev-oelm", BERT, "train.lr=5e-3", method=FROZEN, baseline=BASE.id)
    same_rate = experiment("anything", method=FROZEN, baseline=BASE.id)
    audit = audit_of(tmp_path, arm=arm, presets=[same_rate])
    assert next(f.settle_with for f in audit if f.what == "learning rate") == "rev-oelm"  # the preset itself, unchanged
    presets = Catalogue(experiments={e.id: e for e in (BASE, arm, same_rate)})
    subjects = ArmEvidence("a", as_dict(BASE), (), BASE.id), ArmEvidence("b", as_dict(arm), (), arm.id)
    from oelm_core.compare.control_presets import ControlPresets

    found = audit_pair(*subjects, ControlPresets(presets))
    assert next(f.settle_with for f in found if f.what == "learning rate") == "anything"


def test_without_a_control_preset_the_command_that_settles_it_is_given():
    arm = experiment("rev-oelm", BERT, "train.lr=5e-3", method=FROZEN, baseline=BASE.id)
    found = audit_pair(ArmEvidence("a", as_dict(BASE), (), BASE.id), ArmEvidence("b", as_dict(arm), (), arm.id))
    assert next(f.settle_with for f in found if f.what == "learning rate") == "oelm run rev-oelm --set train.lr=0.001"


def test_orthogonal_against_random_is_confounded_by_scale_and_row_space(tmp_path):
    random = experiment("rev-random", method=RANDOM, baseline=BASE.id)
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((BASE, OELM, random))]
    audit = compare_runs(runs, catalogue(random)).groups[0].audit
    between = [finding for finding in audit if finding.arms == ("rev-oelm", "rev-random")]
    assert {finding.what for finding in between} == {"init scale", "row space"}
    scale = next(finding for finding in between if finding.what == "init scale")
    assert "39.1x" in scale.why  # (1 / (0.02 * sqrt(64)))^2
    assert scale.settle_with == "oelm run rev-random --set method.scale=1"


def test_measured_row_norms_count_more_than_settings(tmp_path):
    random = experiment("rev-random", method={**RANDOM, "from": "gaussian"}, baseline=BASE.id)
    same = {"checks": {"qk_scale": {"mean_row_norm": 1.0}}}
    runs = [
        write_run(tmp_path, BASE, number=0, **same),
        write_run(tmp_path, OELM, number=1, **same),
        write_run(tmp_path, random, number=2, **same),
    ]
    audit = compare_runs(runs, catalogue(random)).groups[0].audit
    assert graded(audit, "init scale") == []


@pytest.mark.parametrize(
    ("base", "method", "expected"),
    [
        (GPT, {"name": "baseline"}, 0.16),
        (GPT, FROZEN, 1.0),
        (GPT, RANDOM, 0.16),
        (GPT, {**FROZEN, "scale": 0.5}, 0.5),
        (GPT, {**RANDOM, "scale": "unit"}, 1.0),
        (BERT, {"name": "baseline"}, "own"),
        (BERT, {**FROZEN, "scale": "keep"}, "own"),
    ],
)
def test_row_norms_follow_from_the_settings(base, method, expected):
    made = experiment("x", base, method=method, baseline=None if method["name"] == "baseline" else "y")
    found = qk_norm(as_dict(made))
    assert found == expected if isinstance(expected, str) else found == pytest.approx(expected)


def test_epochs_become_steps_when_the_examples_are_known():
    made = experiment("x", BERT, "train.epochs=3", "train.batch_size=32", "data.train_examples=67349")
    assert settings_of(as_dict(made))["duration"] == "6,315 steps"


def test_runs_of_one_arm_before_those_of_the_other_are_not_interleaved(tmp_path):
    numbers = [(BASE, 42, 0), (BASE, 43, 1), (OELM, 42, 2), (OELM, 43, 3)]
    runs = [write_run(tmp_path, e, seed=s, number=n) for e, s, n in numbers]
    assert graded(compare_runs(runs, catalogue()).groups[0].audit, "order of runs") == ["note"]


def test_interleaved_runs_with_matching_seeds_get_no_note_about_order_or_seeds(tmp_path):
    numbers = [(BASE, 42, 0), (OELM, 42, 1), (BASE, 43, 2), (OELM, 43, 3)]
    runs = [write_run(tmp_path, e, seed=s, number=n) for e, s, n in numbers]
    audit = compare_runs(runs, catalogue()).groups[0].audit
    assert graded(audit, "order of runs") == []
    assert graded(audit, "seeds") == []


def test_a_machine_that_slows_down_run_by_run_is_noted(tmp_path):
    runs = [write_run(tmp_path, BASE, seed=40 + n, number=2 * n, step_time=t) for n, t in enumerate((0.27, 0.33, 0.35))]
    runs += [write_run(tmp_path, OELM, seed=40 + n, number=2 * n + 1) for n in range(3)]
    audit = compare_runs(runs, catalogue()).groups[0].audit
    assert [f.arms for f in audit if f.what == "drift"] == [("rev-baseline",)]


def test_every_finding_is_of_a_known_kind():
    rooms = Path(oelm_core.__file__).parent
    texts = [file.read_text() for room in ("compare", "published") for file in (rooms / room).glob("*.py")]
    pattern = r'(?:Finding|cited)\((?:"\w+"|grade), "([a-z-]+)"'
    codes = {code for text in texts for code in re.findall(pattern, text)}
    assert {"untouched-baseline", "granularity", "one-seed"} <= codes
    assert codes | {fact.code for fact in FACTS} <= set(FINDINGS)
