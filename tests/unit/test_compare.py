"""Pairing, numbers, significance and verdicts of runs, from their folders alone."""

from __future__ import annotations

import json
import math

import pytest

from oelm_core.compare import compare_runs, compare_study
from oelm_core.config import build_study, override
from oelm_core.config.catalogue import Catalogue
from oelm_core.errors import NotFound
from oelm_core.runs.store import list_runs
from tests.run_factory import BERT, FROZEN, GPT, RANDOM, experiment, predictions_with, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
RAND = experiment("rev-random", method=RANDOM, baseline="rev-baseline")
STORY = experiment("story-baseline", GPT)
STORY_OELM = experiment(
    "story-oelm",
    GPT,
    method=FROZEN,
    baseline="story-baseline",
    target={"metric": "perplexity", "at_most": 1.05, "of": "baseline"},
)
CATALOGUE = Catalogue(experiments={e.id: e for e in (BASE, OELM, RAND, STORY, STORY_OELM)})
LABELS = [place % 2 for place in range(872)]


def study(*arms, **more):
    return build_study({"id": "s", "title": "S", "question": "Q?", "arms": [e.id for e in arms], **more}, "s")


def test_an_arm_is_paired_with_the_baseline_its_preset_names(tmp_path):
    runs = [write_run(tmp_path, OELM, number=1, score=0.9128), write_run(tmp_path, BASE, number=2, score=0.9312)]
    (group,) = compare_runs(runs, CATALOGUE).groups
    assert (group.baseline, [arm.id for arm in group.arms]) == ("rev-baseline", ["rev-baseline", "rev-oelm"])
    (pair,) = group.pairs
    assert pair.kind == "points"
    assert pair.delta == pytest.approx(-0.0184)
    assert pair.retention == pytest.approx(0.9128 / 0.9312)
    assert (pair.verdict, pair.direction) == ("met", "higher")


def test_perplexity_is_compared_as_a_ratio_against_a_target_of_the_baseline(tmp_path):
    runs = [write_run(tmp_path, STORY, number=1, score=4.27), write_run(tmp_path, STORY_OELM, number=2, score=4.69)]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert (pair.kind, pair.direction, pair.verdict) == ("relative", "lower", "missed")
    assert pair.delta == pytest.approx(4.69 / 4.27 - 1)
    assert pair.verdict_why == "perplexity <= 1.05 x baseline (4.483), measured 4.690"


def test_one_seed_is_judged_by_mcnemar_and_says_that_it_is_one_seed(tmp_path):
    right, wrong = predictions_with(LABELS, range(60)), predictions_with(LABELS, range(48, 124))
    runs = [
        write_run(tmp_path, BASE, number=1, score=812 / 872, labels=LABELS, predictions=right),
        write_run(tmp_path, OELM, number=2, score=796 / 872, labels=LABELS, predictions=wrong),
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.tests[0].name == "exact McNemar"
    assert pair.words.startswith(
        "112 of 872 examples differ (64 only the baseline gets right, 48 only rev-oelm); could be chance: p = 0.16."
    )
    assert "One seed" in pair.words
    assert pair.interval is not None
    assert pair.interval[0] < pair.delta < pair.interval[1]


def test_per_sequence_losses_give_an_interval_of_the_perplexity_ratio(tmp_path):
    theirs = [40.0 + place % 7 for place in range(50)]
    ours = [loss + 3.0 + 0.5 * (place % 3) for place, loss in enumerate(theirs)]
    scores = [math.exp(sum(losses) / (31 * 50)) for losses in (theirs, ours)]
    runs = [
        write_run(tmp_path, STORY, number=1, score=scores[0], losses=theirs),
        write_run(tmp_path, STORY_OELM, number=2, score=scores[1], losses=ours),
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.delta == pytest.approx(scores[1] / scores[0] - 1)
    assert pair.interval is not None
    assert pair.interval[0] < pair.delta < pair.interval[1]
    assert pair.p is not None
    assert pair.p < 0.001
    assert "over 50 sequences; unlikely to be chance: p < 0.001" in pair.words


def test_seeds_decide_as_soon_as_there_are_two(tmp_path):
    runs = [write_run(tmp_path, BASE, seed=42 + n, number=2 * n, score=0.93 + n / 1000) for n in range(3)]
    runs += [write_run(tmp_path, OELM, seed=42 + n, number=2 * n + 1, score=0.91 - n / 500) for n in range(3)]
    (group,) = compare_runs(runs, CATALOGUE).groups
    base, arm = group.arms
    assert (base.metric.n, base.metric.std) == (3, pytest.approx(0.001))
    assert arm.seeds == (42, 43, 44)
    assert group.pairs[0].tests[0].name == "paired t"
    assert group.pairs[0].words.startswith("Over 3 paired seeds: -2.30 pp [")
    assert "One seed" not in group.pairs[0].words


def test_interleaved_runs_test_the_time_per_step(tmp_path):
    runs = [write_run(tmp_path, BASE, seed=n, number=2 * n, step_time=t) for n, t in enumerate((0.050, 0.052, 0.051))]
    runs += [
        write_run(tmp_path, OELM, seed=n, number=2 * n + 1, step_time=t) for n, t in enumerate((0.049, 0.05, 0.0495))
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    timing = next(test for test in pair.tests if test.over == "timing")
    assert timing.n == 3
    assert timing.estimate == pytest.approx((0.049 * 0.05 * 0.0495 / (0.05 * 0.052 * 0.051)) ** (1 / 3) - 1)


def test_runs_of_different_data_or_metric_are_never_in_one_table(tmp_path):
    runs = [write_run(tmp_path, e, number=n, score=0.9) for n, e in enumerate((BASE, OELM, STORY))]
    comparison = compare_runs(runs, CATALOGUE)
    assert [group.dataset for group in comparison.groups] == ["reviews", "stories"]
    assert any("separate tables" in note for note in comparison.footnotes)
    assert any("only story-baseline is there" in note for note in comparison.footnotes)


def test_two_recipes_of_one_preset_are_two_arms_with_telling_names(tmp_path):
    faster = experiment("rev-oelm", BERT, "train.lr=5e-3", method=FROZEN, baseline="rev-baseline")
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((BASE, OELM, faster))]
    (group,) = compare_runs(runs, CATALOGUE).groups
    assert [arm.id for arm in group.arms] == ["rev-baseline", "rev-oelm", "rev-oelm (train.lr=0.005)"]


def test_the_newest_of_repeated_runs_counts_and_the_older_is_footnoted(tmp_path):
    old = write_run(tmp_path, OELM, number=1, score=0.5)
    runs = [old, write_run(tmp_path, BASE, number=2), write_run(tmp_path, OELM, number=3, score=0.91)]
    comparison = compare_runs(runs, CATALOGUE)
    assert comparison.groups[0].arm("rev-oelm").metric.mean == pytest.approx(0.91)
    assert any(note.startswith(f"{old.id} is left out") for note in comparison.footnotes)


def test_a_baseline_can_be_asked_for_by_run_or_preset(tmp_path):
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((BASE, OELM, RAND))]
    for asked in ("rev-oelm", runs[1].id[:20]):
        (group,) = compare_runs(runs, CATALOGUE, baseline=asked).groups
        assert group.baseline == "rev-oelm"
        assert {pair.arm for pair in group.pairs} == {"rev-baseline", "rev-random"}
    with pytest.raises(NotFound, match="--baseline nobody"):
        compare_runs(runs, CATALOGUE, baseline="nobody")


def test_arms_without_a_baseline_are_listed_without_differences(tmp_path):
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((OELM, RAND))]
    comparison = compare_runs(runs, CATALOGUE)
    assert comparison.groups[0].baseline is None
    assert comparison.groups[0].pairs == ()
    assert any("no baseline arm" in note for note in comparison.footnotes)


def test_a_study_takes_finished_runs_of_its_presets_only(tmp_path):
    write_run(tmp_path, BASE, number=1)
    write_run(tmp_path, OELM, number=2)
    failed = write_run(tmp_path, OELM, seed=43, number=3, state="failed", reason="oom")
    write_run(tmp_path, STORY, number=4, score=4.0)
    comparison = compare_study(study(BASE, OELM, RAND), list_runs(tmp_path), CATALOGUE)
    assert [arm.id for group in comparison.groups for arm in group.arms] == ["rev-baseline", "rev-oelm"]
    assert comparison.groups[0].arm("rev-oelm").seeds == (42,)
    assert f"{failed.id} is left out: failed (oom)." in comparison.footnotes
    assert "rev-random: no run of it yet." in comparison.footnotes


def test_an_arm_that_only_failed_stays_in_the_table_without_numbers(tmp_path):
    write_run(tmp_path, BASE, number=1)
    write_run(tmp_path, OELM, number=2, state="failed", reason="nonfinite")
    (group,) = compare_study(study(BASE, OELM), list_runs(tmp_path), CATALOGUE).groups
    assert group.arm("rev-oelm").metric is None
    assert group.pairs[0].delta is None
    assert group.pairs[0].verdict == "unknown"
    assert any(f.what == "arm not finished" and f.grade == "breaks" for f in group.audit)


def test_nothing_to_compare_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(NotFound, match=r"nothing to compare in study s.*oelm study s") as caught:
        compare_study(study(BASE, OELM), list_runs(tmp_path), CATALOGUE)
    assert caught.value.exit_code == 3
    empty = write_run(tmp_path, BASE, number=1, state="failed", reason="data", curve=[])
    with pytest.raises(NotFound, match=r"no run has a result; 1 failed \(data\)"):
        compare_runs([empty], CATALOGUE)


def test_an_unfinished_run_is_shown_with_its_best_so_far_and_marked(tmp_path):
    runs = [write_run(tmp_path, BASE, number=1), write_run(tmp_path, OELM, number=2, state="stopped", reason="user")]
    comparison = compare_runs(runs, CATALOGUE)
    assert comparison.groups[0].arm("rev-oelm").metric is not None
    assert any("stopped (user), so not complete" in note for note in comparison.footnotes)


def test_a_torn_result_costs_only_its_own_numbers(tmp_path):
    runs = [write_run(tmp_path, BASE, number=1), write_run(tmp_path, OELM, number=2, score=0.91)]
    (runs[1].folder.path / "result.json").write_text('{"metric": {"na')
    comparison = compare_runs(list_runs(tmp_path), CATALOGUE)
    arm = comparison.groups[0].arm("rev-oelm")
    assert arm.metric.mean == pytest.approx(0.91)
    assert "step_time" not in arm.measures
    assert any("result.json cannot be read" in note for note in comparison.footnotes)


def test_torn_predictions_and_metrics_do_not_stop_the_table(tmp_path):
    right = predictions_with(LABELS, range(60))
    runs = [
        write_run(tmp_path, e, number=n, labels=LABELS, predictions=right) for n, e in enumerate((BASE, OELM), start=1)
    ]
    next(iter(runs[1].folder.predictions.iterdir())).write_text('{"labels": [1, 0')
    with open(runs[1].folder.metrics, "a") as file:
        file.write('{"t": 1, "step": 500, "ki')
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.words.startswith("No test is possible")


def test_predictions_on_other_examples_are_not_paired(tmp_path):
    runs = [
        write_run(tmp_path, BASE, number=1, labels=LABELS, predictions=LABELS),
        write_run(tmp_path, OELM, number=2, labels=LABELS[1:], predictions=LABELS[1:]),
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.p is None


def test_the_numbers_of_an_arm_come_from_its_own_records(tmp_path):
    runs = [write_run(tmp_path, BASE, number=1, score=0.93), write_run(tmp_path, OELM, number=2, score=0.91)]
    (group,) = compare_runs(runs, CATALOGUE).groups
    arm = group.arm("rev-oelm")
    assert arm.mean("reached_80_step") == 300
    assert arm.mean("trainable") == 61952
    assert arm.mean("frozen") == 16384
    assert arm.mean("step_time") == pytest.approx(0.05)
    assert arm.mean("checkpoint_bytes") == 78336 * 4 + 61952 * 8
    assert group.pairs[0].parameter_saving == pytest.approx(16384 / 78336)
    assert [len(curve.points) for curve in arm.curves["accuracy"]] == [4]


def test_arms_changed_alike_are_paired_with_the_baseline_changed_alike(tmp_path):
    short = "train.max_steps=200"
    quick = (
        experiment("rev-baseline", BERT, short),
        experiment("rev-oelm", BERT, short, method=FROZEN, baseline=BASE.id),
    )
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((BASE, OELM, *quick))]
    (group,) = compare_runs(runs, CATALOGUE).groups
    pairs = {pair.arm: pair.baseline for pair in group.pairs}
    assert pairs == {
        "rev-oelm": "rev-baseline",
        "rev-oelm (train.max_steps=200)": "rev-baseline (train.max_steps=200)",
    }
    assert not [finding for finding in group.audit if finding.what == "training length"]


def test_files_of_the_wrong_shape_cost_only_themselves(tmp_path):
    runs = [write_run(tmp_path, e, number=n, labels=LABELS, predictions=LABELS) for n, e in enumerate((BASE, OELM))]
    folder = runs[1].folder
    written = folder.path / "result.json"
    wrong = {"best": [1, 2], "timing": "fast", "reached": {"0.8": 3, "x": None}, "memory": None}
    written.write_text(json.dumps({**json.loads(written.read_text()), **wrong}))
    (folder.path / "checks.json").write_text(json.dumps({"census": 7, "qk_scale": []}))
    path = next(iter(folder.predictions.iterdir()))
    path.write_text(json.dumps({"step": 400, "labels": ["a"] * 872, "predictions": [None] * 872}))
    with open(folder.metrics, "a") as file:
        file.write('{"t": 1, "step": 500, "kind": "eval", "accuracy": NaN}\n[]\n{"step": "x", "kind": "eval"}\n')
    comparison = compare_runs(list_runs(tmp_path), CATALOGUE)
    assert comparison.groups[0].arm("rev-oelm").metric.mean == pytest.approx(0.9)
    json.dumps(comparison.to_json(), allow_nan=False)
    oelm = runs[1].id
    for start, end in (
        (
            f"{oelm}: result.json cannot be read (key 'best': expected",
            "its best validation is taken from metrics.jsonl.",
        ),
        (f"{oelm}: checks.json cannot be read (key 'census': expected", "what it proves is unknown."),
    ):
        assert [note for note in comparison.footnotes if note.startswith(start) and note.endswith(end)]


def test_a_group_without_any_result_is_footnoted_only(tmp_path):
    runs = [
        write_run(tmp_path, BASE, number=1),
        write_run(tmp_path, STORY, number=2, state="failed", reason="oom", curve=[]),
    ]
    comparison = compare_runs(runs, CATALOGUE)
    assert [group.dataset for group in comparison.groups] == ["reviews"]
    assert any("failed (oom), so not complete; no evaluation" in note for note in comparison.footnotes)


def test_the_json_has_the_keys_the_contract_names(tmp_path):
    runs = [write_run(tmp_path, e, number=n) for n, e in enumerate((BASE, OELM))]
    content = json.loads(json.dumps(compare_runs(runs, CATALOGUE).to_json()))
    (group,) = content["groups"]
    assert {"family", "dataset", "baseline", "arms", "pairs", "audit"} <= set(group)
    assert {"arm", "metric", "direction", "delta", "interval", "p", "verdict"} <= set(group["pairs"][0])
    assert all({"grade", "what", "arms", "why", "settle_with"} <= set(finding) for finding in group["audit"])


def test_comparing_imports_no_torch():
    import subprocess
    import sys

    code = (
        "import sys, oelm_core.compare, oelm_core.report, oelm_core.published.import_runs; "
        "print([m for m in ('torch','transformers','datasets','pandas','scipy','numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_weights_read_from_elsewhere_name_the_table_and_are_not_averaged_with_the_presets_own(tmp_path):
    def run(exp, number, path, weights, **more):
        exp = override(exp, [f"model.path={path}"] if path else [])
        return write_run(tmp_path, exp, number=number, result={"model": {"fingerprint": weights}}, **more)

    runs = [run(BASE, 1, None, "own"), run(OELM, 2, "/copies/elsewhere", "own")]
    (copied,) = compare_runs(runs, CATALOGUE).groups
    assert copied.model == "tiny-bert"  # a copy of the same weights
    runs += [run(BASE, 3, "/data/minilm/model", "other"), run(OELM, 4, "/data/minilm/model", "other")]
    found = compare_runs(runs, CATALOGUE)
    assert [group.model for group in found.groups] == ["tiny-bert", "minilm/model"]
    assert [len(arm.runs) for group in found.groups for arm in group.arms] == [1, 1, 1, 1]
    assert any("separate tables" in note for note in found.footnotes)


def test_other_data_under_the_same_recipe_is_an_arm_of_its_own(tmp_path):
    runs = [
        write_run(tmp_path, BASE, number=number, seed=seed, result={"data": {"fingerprint": text}})
        for number, (seed, text) in enumerate([(42, "a"), (43, "a"), (42, "b")])
    ]
    (group,) = compare_runs(runs, CATALOGUE).groups
    assert [(arm.id, arm.seeds) for arm in group.arms] == [(BASE.id, (42, 43)), (f"{BASE.id} (other data)", (42,))]


def test_a_pair_that_cannot_be_tested_says_which_file_is_missing(tmp_path):
    runs = [
        write_run(tmp_path, BASE, number=1, labels=LABELS, predictions=LABELS),
        write_run(tmp_path, OELM, number=2, labels=LABELS, predictions=LABELS),
    ]
    for file in runs[0].folder.predictions.glob("*.json"):
        file.write_text('{"labels": [1, 0')
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.words.startswith(f"No test is possible: {runs[0].id} kept no predictions that can be read.")


def test_what_is_kept_is_of_the_same_seeds_as_the_gap(tmp_path):
    runs = [write_run(tmp_path, BASE, number=seed, seed=seed, score=1.3 - seed / 100) for seed in (40, 50)]  # 0.9, 0.8
    runs.append(write_run(tmp_path, OELM, number=60, seed=40, score=0.81))
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.delta == pytest.approx(-0.09)
    assert pair.retention == pytest.approx(0.9)


def test_a_failed_seed_without_a_number_does_not_break_the_seeds_that_finished(tmp_path):
    runs = [write_run(tmp_path, arm, number=n, seed=42) for n, arm in enumerate([BASE, OELM])]
    runs.append(write_run(tmp_path, OELM, number=3, seed=43, state="failed", reason="oom", curve=[]))
    (group,) = compare_runs(runs, CATALOGUE).groups
    (ended,) = [finding for finding in group.audit if finding.what == "arm not finished"]
    assert (ended.grade, group.broken(OELM.id)) == ("note", None)
    assert "rests on the other 1 of 2 runs" in ended.why
