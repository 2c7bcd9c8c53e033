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


def seeds_of(home, arm, *scores, **more):
    """Finished runs of an arm, seeds 42, 43, ..., one score each."""
    first = int.from_bytes(arm.id.encode()[-2:], "big") % 97 * 50
    return [write_run(home, arm, seed=42 + n, number=first + n, score=one, **more) for n, one in enumerate(scores)]


def test_an_arm_is_paired_with_the_baseline_its_preset_names(tmp_path):
    runs = [write_run(tmp_path, OELM, number=1, score=0.9128), write_run(tmp_path, BASE, number=2, score=0.9312)]
    (group,) = compare_runs(runs, CATALOGUE).groups
    assert (group.baseline, [arm.id for arm in group.arms]) == ("rev-baseline", ["rev-baseline", "rev-oelm"])
    (pair,) = group.pairs
    assert pair.kind == "points"
    assert pair.delta == pytest.approx(-0.0184)
    assert pair.retention == pytest.approx(0.9128 / 0.9312)
    assert (pair.verdict, pair.direction) == ("undecided", "higher")  # one seed


def test_perplexity_is_compared_as_a_ratio_against_a_target_of_the_baseline(tmp_path):
    runs = seeds_of(tmp_path, STORY, 4.26, 4.27, 4.28) + seeds_of(tmp_path, STORY_OELM, 4.68, 4.69, 4.70)
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert (pair.kind, pair.direction, pair.verdict) == ("relative", "lower", "missed")
    assert pair.delta == pytest.approx(4.69 / 4.27 - 1, abs=1e-5)
    assert pair.verdict_why == "perplexity <= 1.05 x baseline (4.483), measured 4.690"


def test_one_seed_makes_no_claim_about_a_method_but_tells_two_models_apart(tmp_path):
    right, wrong = predictions_with(LABELS, range(60)), predictions_with(LABELS, range(48, 124))
    runs = [
        write_run(tmp_path, BASE, number=1, score=812 / 872, labels=LABELS, predictions=right),
        write_run(tmp_path, OELM, number=2, score=796 / 872, labels=LABELS, predictions=wrong),
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert (pair.interval, pair.p, pair.p_adjusted, pair.verdict) == (None, None, None, "undecided")
    assert pair.words == (
        "-1.83 pp with one seed: what another would give is not known, so nothing is said of the method."
    )
    assert (pair.models.name, pair.models.seed) == ("exact McNemar", 42)
    assert pair.models.words == (
        "The models of seed 42 differ on 112 of 872 examples "
        "(64 only rev-baseline gets right, 48 only rev-oelm); could be chance: p = 0.16."
    )
    assert pair.models.interval[0] < pair.delta < pair.models.interval[1]


def test_losses_tell_two_language_models_apart_by_the_texts_they_are_of(tmp_path):
    theirs = [40.0 + place % 7 for place in range(50)]
    ours = [loss + 3.0 + 0.5 * (place % 3) for place, loss in enumerate(theirs)]
    scores = [math.exp(sum(losses) / (31 * 50)) for losses in (theirs, ours)]
    runs = [
        write_run(tmp_path, STORY, number=1, score=scores[0], losses=theirs),
        write_run(tmp_path, STORY_OELM, number=2, score=scores[1], losses=ours),
    ]
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.delta == pytest.approx(scores[1] / scores[0] - 1)
    assert pair.p is None
    assert pair.models.interval[0] < pair.delta < pair.models.interval[1]
    assert pair.models.p < 0.001
    assert "over 40 stretches of text; unlikely to be chance: p < 0.001" in pair.models.words


def test_two_seeds_a_side_make_a_claim(tmp_path):
    runs = seeds_of(tmp_path, BASE, 0.93, 0.931, 0.932) + seeds_of(tmp_path, OELM, 0.91, 0.908, 0.906)
    (group,) = compare_runs(runs, CATALOGUE).groups
    base, arm = group.arms
    assert (base.metric.n, base.metric.std) == (3, pytest.approx(0.001))
    assert arm.seeds == (42, 43, 44)
    (pair,) = group.pairs
    assert pair.tests[0].over == "seeds"
    assert pair.words.startswith("Over 3 seeds: -2.30 pp [")
    assert pair.p < 0.05
    assert (pair.seeds.baseline, pair.seeds.arm, pair.seeds.shared, pair.seeds.failed) == (3, 3, 3, 0)


def test_mean_gap_and_share_kept_of_a_row_come_from_the_same_runs(tmp_path):
    """Five seeds against two: the gap is that of the means that stand beside it."""
    runs = seeds_of(tmp_path, BASE, 0.90, 0.92, 0.94, 0.95, 0.96) + seeds_of(tmp_path, OELM, 0.91, 0.93)
    (group,) = compare_runs(runs, CATALOGUE).groups
    (pair,) = group.pairs
    base, arm = (one.metric.mean for one in group.arms)
    assert pair.delta == pytest.approx(arm - base)
    assert pair.retention == pytest.approx(arm / base)
    assert "2 against 5 seeds" in pair.words


def test_arms_of_a_study_lend_one_another_their_spread(tmp_path):
    runs = seeds_of(tmp_path, BASE, 0.93, 0.931, 0.935) + seeds_of(tmp_path, OELM, 0.92, 0.921, 0.925)
    alone = compare_runs(runs, CATALOGUE).groups[0].pair("rev-oelm")
    runs += seeds_of(tmp_path, RAND, 0.85, 0.852, 0.848)
    pooled = compare_runs(runs, CATALOGUE).groups[0].pair("rev-oelm")
    assert pooled.spread_from == ("rev-random",)
    assert pooled.p < alone.p
    assert "their spread pooled with that of rev-random" in pooled.words


def test_p_is_adjusted_for_all_that_a_study_compares(tmp_path):
    for arm, scores in ((BASE, (0.93, 0.931, 0.935)), (OELM, (0.92, 0.921, 0.925)), (RAND, (0.85, 0.852, 0.848))):
        seeds_of(tmp_path, arm, *scores)
    declared = study(BASE, OELM, RAND, contrasts=[[OELM.id, RAND.id]])
    (group,) = compare_study(declared, list_runs(tmp_path), CATALOGUE).groups
    assert group.family_size == 3
    (contrast,) = group.contrasts
    assert (contrast.arm, contrast.baseline) == (OELM.id, RAND.id)
    assert contrast.delta == pytest.approx(0.922 - 0.85)
    every = sorted([*group.pairs, contrast], key=lambda pair: pair.p)
    assert [pair.p_adjusted for pair in every] == pytest.approx(
        [3 * every[0].p, max(3 * every[0].p, 2 * every[1].p), max(2 * every[1].p, every[2].p)]
    )
    assert "Adjusted for 3 comparisons" in group.pairs[0].words


def test_arms_are_audited_against_one_another_where_a_study_contrasts_them(tmp_path):
    for arm in (BASE, OELM, RAND):
        seeds_of(tmp_path, arm, 0.93, 0.931)

    def between(**declared):
        (group,) = compare_study(study(BASE, OELM, RAND, **declared), list_runs(tmp_path), CATALOGUE).groups
        return [finding.code for finding in group.audit if set(finding.arms) == {OELM.id, RAND.id}]

    assert between(contrasts=[[OELM.id, RAND.id]]) == between() != []
    assert between(contrasts=[[OELM.id, BASE.id]]) == []


def test_an_arm_not_yet_run_counts_in_the_family_all_the_same(tmp_path):
    seeds_of(tmp_path, BASE, 0.93, 0.931)
    seeds_of(tmp_path, OELM, 0.92, 0.921)
    (group,) = compare_study(study(BASE, OELM, RAND), list_runs(tmp_path), CATALOGUE).groups
    assert group.family_size == 2
    assert group.pairs[0].p_adjusted == pytest.approx(2 * group.pairs[0].p)


def test_a_target_within_reach_of_the_noise_is_not_decided_and_says_what_would(tmp_path):
    runs = seeds_of(tmp_path, STORY, 4.20, 4.30, 4.25) + seeds_of(tmp_path, STORY_OELM, 4.36, 4.45, 4.41)
    (group,) = compare_runs(runs, CATALOGUE).groups
    (pair,) = group.pairs
    assert pair.verdict == "undecided"
    assert pair.seeds_needed > 3
    assert f"{pair.seeds_needed} seeds a side would decide it" in pair.verdict_why
    more = pair.seeds_needed - 3
    assert group.decide.command == f"oelm run story-baseline story-oelm --seeds 45-{44 + more}"
    assert group.decide.seconds == pytest.approx(more * sum(arm.mean("seconds") for arm in group.arms))


def test_a_target_met_by_more_than_the_noise_is_met(tmp_path):
    runs = seeds_of(tmp_path, STORY, 4.20, 4.21, 4.22) + seeds_of(tmp_path, STORY_OELM, 4.22, 4.23, 4.24)
    assert compare_runs(runs, CATALOGUE).groups[0].pairs[0].verdict == "met"


def test_seeds_that_diverged_stand_in_the_row_and_enter_the_test_as_the_worst(tmp_path):
    runs = seeds_of(tmp_path, BASE, 0.90, 0.901, 0.902, 0.903, 0.904) + seeds_of(tmp_path, OELM, 0.95, 0.951, 0.952)
    runs += [
        write_run(tmp_path, OELM, seed=seed, number=900 + seed, state="failed", reason="nonfinite") for seed in (45, 46)
    ]
    (group,) = compare_runs(runs, CATALOGUE).groups
    arm, (pair,) = group.arm(OELM.id), group.pairs
    assert (len(arm.seeds), arm.diverged, pair.seeds.failed) == (3, 2, 2)
    assert pair.p > 0.05  # without the two, three seeds all above five would be significant
    assert "2 of 5 runs of rev-oelm diverged" in pair.words
    assert pair.verdict == "undecided"
    json.dumps(compare_runs(runs, CATALOGUE).to_json(), allow_nan=False)


def test_steps_to_a_mark_count_the_seeds_that_never_reached_it(tmp_path):
    never = {"reached": {"0.9": None}}
    runs = [
        write_run(tmp_path, BASE, seed=42 + n, number=n, result={"reached": {"0.9": {"step": at, "seconds": at / 10}}})
        for n, at in enumerate((100, 300))
    ]
    runs += [write_run(tmp_path, BASE, seed=44 + n, number=2 + n, result=never) for n in range(2)]
    found = compare_runs(runs, CATALOGUE).groups[0].arms[0].reached["0.9"]
    assert (found.median_step, found.median_seconds, found.reached, found.runs) == (300, 30, 2, 4)
    runs.append(write_run(tmp_path, BASE, seed=46, number=9, state="failed", reason="nonfinite"))
    found = compare_runs(runs, CATALOGUE).groups[0].arms[0].reached["0.9"]
    assert (found.median_step, found.reached, found.runs) == (None, 2, 5)  # three of five never get there


def test_f1_has_a_p_that_inverts_its_own_interval(tmp_path):
    """Two models that get equally many right, but not the same kind of examples: accuracy is equal, F1 is not."""
    f1_base, f1_oelm = (override(one, ["data.metric=f1"]) for one in (BASE, OELM))
    labels = [1] * 100 + [0] * 300
    runs = []
    for n, seed in enumerate((42, 43, 44)):
        misses = range(40 + n)  # positives missed
        alarms = range(100, 140 + n)  # false alarms
        for place, (arm, wrong) in enumerate(((f1_base, misses), (f1_oelm, alarms))):
            runs.append(
                write_run(
                    tmp_path,
                    arm,
                    seed=seed,
                    number=2 * n + place,
                    score=0.7 + 0.1 * place + 0.01 * n,
                    labels=labels,
                    predictions=predictions_with(labels, wrong),
                )
            )
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.metric == "f1"
    assert (pair.p < 0.05) == (pair.interval[0] > 0 or pair.interval[1] < 0)
    models = pair.models
    assert (models.p < 0.05) == (models.interval[0] > 0 or models.interval[1] < 0)


def test_the_best_of_many_validations_is_chosen_on_one_half_and_scored_on_the_other(tmp_path):
    """Thirteen evaluations of pure chance: the best flatters, the cross-fitted score does not."""
    import random

    chance = random.Random(0)
    evaluations = {step: [chance.randint(0, 1) for _ in LABELS] for step in range(100, 1400, 100)}
    scores = {s: sum(p == y for p, y in zip(row, LABELS, strict=True)) / 872 for s, row in evaluations.items()}
    run = write_run(
        tmp_path,
        BASE,
        number=1,
        score=max(scores.values()),
        curve=list(scores.values()),
        labels=LABELS,
        predictions=evaluations[max(scores, key=scores.get)],
    )
    for step, row in evaluations.items():
        content = json.dumps({"labels": LABELS, "predictions": row, "step": step})
        (run.folder.predictions / f"step-{step}.json").write_text(content)
    (group,) = compare_runs([run], CATALOGUE).groups
    assert group.basis == "cross-fitted"
    mean = sum(scores.values()) / len(scores)
    assert max(scores.values()) - mean > 0.02
    assert abs(group.arms[0].metric.mean - 0.5) < max(scores.values()) - 0.5 - 0.01


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
    assert comparison.groups[0].arm("rev-oelm").failed == 1
    assert f"{failed.id}: failed (oom), without a score." in comparison.footnotes
    assert "rev-random: no run of it yet." in comparison.footnotes


def test_an_arm_that_only_failed_stays_in_the_table_without_numbers(tmp_path):
    write_run(tmp_path, BASE, number=1)
    write_run(tmp_path, OELM, number=2, state="failed", reason="nonfinite")
    (group,) = compare_study(study(BASE, OELM), list_runs(tmp_path), CATALOGUE).groups
    assert group.arm("rev-oelm").metric is None
    assert group.pairs[0].delta is None
    assert (group.pairs[0].verdict, group.arm("rev-oelm").diverged) == ("undecided", 1)
    assert [f.grade for f in group.audit if f.code == "diverged"] == ["note"]
    assert not any(f.code == "unfinished" for f in group.audit)  # it came to its end: a bad one


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
    assert any("unreadable: result.json" in note for note in comparison.footnotes)


def test_torn_predictions_and_metrics_do_not_stop_the_table(tmp_path):
    right = predictions_with(LABELS, range(60))
    runs = [
        write_run(tmp_path, e, number=n, labels=LABELS, predictions=right) for n, e in enumerate((BASE, OELM), start=1)
    ]
    next(iter(runs[1].folder.predictions.iterdir())).write_text('{"labels": [1, 0')
    with open(runs[1].folder.metrics, "a") as file:
        file.write('{"t": 1, "step": 500, "ki')
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert pair.models is None


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
    assert arm.reached["0.8"].median_step == 300
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
    assert comparison.groups[0].arm("rev-oelm").metric.mean == pytest.approx(1.0)
    json.dumps(comparison.to_json(), allow_nan=False)
    oelm = runs[1].id
    for start, end in (
        (
            f"{oelm}: unreadable: result.json, best: expected",
            "its best validation is taken from metrics.jsonl.",
        ),
        (f"{oelm}: unreadable: checks.json, census: expected", "what it proves is unknown."),
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


def test_a_gap_whose_examples_were_not_kept_says_so_and_is_in_doubt(tmp_path):
    """Removing predictions must not make a gap more certain."""
    wrong = predictions_with(LABELS, range(60))
    runs = seeds_of(tmp_path, BASE, 0.9, 0.91, labels=LABELS, predictions=wrong)
    runs += seeds_of(tmp_path, OELM, 0.9, 0.91, labels=LABELS, predictions=predictions_with(LABELS, range(40, 110)))
    whole = compare_runs(runs, CATALOGUE).groups[0].pairs[0]
    for file in runs[0].folder.predictions.glob("*.json"):
        file.write_text('{"labels": [1, 0')
    one_less = compare_runs(runs, CATALOGUE).groups[0].pairs[0]
    assert one_less.interval[1] - one_less.interval[0] > 0.5 * (whole.interval[1] - whole.interval[0])
    for file in runs[1].folder.predictions.glob("*.json"):
        file.write_text('{"labels": [1, 0')
    (group,) = compare_runs(runs, CATALOGUE).groups
    assert "The noise of the examples is not in it" in group.pairs[0].words
    assert ("confounds", "examples") in {(finding.grade, finding.code) for finding in group.audit}


def test_a_prediction_that_is_no_class_costs_only_its_own_file(tmp_path):
    runs = [write_run(tmp_path, e, number=n, labels=LABELS, predictions=LABELS) for n, e in enumerate((BASE, OELM))]
    path = next(iter(runs[1].folder.predictions.iterdir()))
    path.write_text(json.dumps({"step": 400, "labels": LABELS, "predictions": [-1] * 872}))
    assert compare_runs(runs, CATALOGUE).groups[0].pairs[0].models is None


def test_a_target_in_another_metric_is_judged_on_the_basis_of_the_table(tmp_path):
    """Best validation says 0.9, the test set 0.8: a target on F1 goes by the test set, as the row does."""
    aim = {"metric": "f1", "at_least": 0.85}
    arm = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline", target=aim)
    runs = []
    for place, exp in enumerate((BASE, arm)):
        for n in range(3):
            values = {"accuracy": 0.8 + n / 1000, "f1": 0.8 + n / 1000}
            test = {"values": values, "step": 400, "examples": 50, "source": "test", "fingerprint": "t"}
            run = write_run(tmp_path, exp, seed=42 + n, number=3 * place + n, score=0.9, result={"test": test})
            runs.append(run)
    (pair,) = compare_runs(runs, CATALOGUE).groups[0].pairs
    assert (pair.verdict, "measured 80.10 %" in pair.verdict_why) == ("missed", True)


def test_a_finished_run_of_nothing_but_nan_has_diverged(tmp_path):
    runs = seeds_of(tmp_path, BASE, 0.90, 0.91, 0.92) + seeds_of(tmp_path, OELM, 0.95, 0.96)
    lost = write_run(tmp_path, OELM, seed=44, number=900, curve=[math.nan, math.nan], without=["result"])
    (group,) = compare_runs([*runs, lost], CATALOGUE).groups
    assert group.arm(OELM.id).diverged == 1
    (pair,) = group.pairs
    low, high = pair.interval
    assert low <= pair.delta <= high  # by ranks, all three of one test


def test_naming_a_studys_runs_one_by_one_does_not_make_its_family_smaller(tmp_path):
    declared = study(BASE, OELM, RAND)
    catalogue = Catalogue(experiments=CATALOGUE.experiments, studies={"s": declared})
    runs = seeds_of(tmp_path, BASE, 0.93, 0.931, run={"study": "s"})
    runs += seeds_of(tmp_path, OELM, 0.92, 0.921, run={"study": "s"})
    (group,) = compare_runs(runs, catalogue).groups
    assert group.family_size == 2


def test_a_failed_seed_without_a_number_does_not_break_the_seeds_that_finished(tmp_path):
    runs = [write_run(tmp_path, arm, number=n, seed=42) for n, arm in enumerate([BASE, OELM])]
    runs.append(write_run(tmp_path, OELM, number=3, seed=43, state="failed", reason="oom", curve=[]))
    (group,) = compare_runs(runs, CATALOGUE).groups
    (ended,) = [finding for finding in group.audit if finding.what == "arm not finished"]
    assert (ended.grade, group.broken(OELM.id)) == ("note", None)
    assert "rests on the other 1 of 2 runs" in ended.why
