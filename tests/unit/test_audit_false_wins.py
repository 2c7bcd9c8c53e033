"""Pairs in which the arm looks better for another reason than its method, each with the finding that says so."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oelm_core.compare import compare_runs
from oelm_core.compare.comparison import Finding, Group, sort_findings
from oelm_core.config import Experiment
from oelm_core.config.catalogue import Catalogue
from oelm_core.published.column import with_published_column
from oelm_core.runs.attempts import path_of
from oelm_core.runs.folder import write_record
from oelm_core.runs.schema import Attempt, Losses, Predictions
from oelm_core.runs.store import Run, read_run
from tests.run_factory import BERT, FROZEN, GPT, experiment, predictions_with, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
STORY = experiment("story-baseline", GPT)
STORY_OELM = experiment("story-oelm", GPT, method=FROZEN, baseline="story-baseline")
LABELS = [place % 2 for place in range(872)]
UNRECORDED = {"result": {"data": {"name": "reviews", "eval_examples": 872}}, "checks": {"data": {}}}


def won(runs: Sequence[Run], *presets: Experiment) -> Group:
    """The table of two arms, in which the second is ahead of the first, as far as its numbers say."""
    known = {e.id: e for e in (BASE, OELM, STORY, STORY_OELM, *presets)}
    (group,) = compare_runs(runs, Catalogue(experiments=known)).groups
    pair = group.pairs[0]
    assert pair.delta is not None
    assert (pair.delta > 0) == (pair.direction == "higher")
    return group


def pair_of(
    tmp_path: Path, base: Experiment = BASE, arm: Experiment = OELM, *, ours: Any = None, theirs: Any = None
) -> list[Run]:
    return [
        write_run(tmp_path, base, number=1, **{"score": 0.85, **(theirs or {})}),
        write_run(tmp_path, arm, number=2, **{"score": 0.9, **(ours or {})}),
    ]


def seeds(tmp_path: Path, exp: Experiment, scores: Sequence[float], first: int = 42, **more: Any) -> list[Run]:
    start = 0 if exp.baseline is None else 1
    return [
        write_run(tmp_path, exp, seed=first + place, number=2 * place + start, score=score, **more)
        for place, score in enumerate(scores)
    ]


def only(group: Group, code: str) -> Finding:
    (found,) = [finding for finding in group.audit if finding.code == code]
    return found


def codes(group: Group, *grades: str) -> set[str]:
    return {finding.code for finding in group.audit if finding.grade in (grades or ("breaks", "confounds"))}


def test_an_honest_pair_over_three_seeds_has_only_its_scale_and_its_examples_against_it(tmp_path):
    runs = seeds(tmp_path, BASE, (0.85, 0.86, 0.84)) + seeds(tmp_path, OELM, (0.90, 0.91, 0.89))
    group = won(runs)
    assert codes(group) == {"qk-norm", "examples"}  # these runs kept no predictions
    assert codes(group, "note") == {"best-of-many", "search"}  # no ledger knows them


def test_copies_of_a_run_with_few_errors_are_known_by_their_validation_losses(tmp_path):
    theirs = seeds(tmp_path, BASE, (0.85, 0.86, 0.84))
    few = predictions_with(LABELS, range(7))
    ours = seeds(tmp_path, OELM, (0.99, 0.99, 0.99), labels=LABELS, predictions=few)
    assert "copied" not in codes(won(theirs + ours))
    for copy in ours[1:]:
        shutil.copy(ours[0].folder.metrics, copy.folder.metrics)
    found = only(won(theirs + ours), "copied")
    assert (found.grade, found.arms) == ("breaks", ("rev-oelm",))
    assert "have other seeds but the very same validation losses" in found.why


@pytest.mark.parametrize(
    ("base", "arm", "theirs", "ours", "words"),
    [
        (BASE, OELM, 0.85, 1.2, "is accuracy 1.2, which no model can have."),
        (STORY, STORY_OELM, 2.0, 0.5, "is perplexity 0.5, which no model can have."),
    ],
)
def test_a_headline_that_no_model_can_have_breaks(tmp_path, base, arm, theirs, ours, words):
    group = won(pair_of(tmp_path, base, arm, theirs={"score": theirs}, ours={"score": ours}))
    found = only(group, "contradicted")
    assert (found.grade, found.arms) == ("breaks", (arm.id,))
    assert found.why.endswith(words)


def test_seeds_that_do_not_match_are_not_said_to_be_paired(tmp_path):
    runs = seeds(tmp_path, BASE, (0.85, 0.86)) + seeds(tmp_path, OELM, (0.9, 0.91, 0.92))
    assert only(won(runs), "seeds").why == (
        "seeds do not match (44 only rev-oelm): the arms did not see the same batches."
    )


# -- the same seed, again and again ------------------------------------------------------------------------------------


def test_one_seed_run_six_times_until_it_was_good_is_a_choice(tmp_path):
    runs = [write_run(tmp_path, BASE, number=9, score=0.85)]
    for number, score in enumerate((0.83, 0.84, 0.82, 0.86, 0.81, 0.90)):
        runs.append(write_run(tmp_path, OELM, number=number, score=score))
    found = only(won(runs), "reruns")
    assert (found.grade, found.arms) == ("confounds", ("rev-oelm",))
    assert "6 runs of seed 42, of which the newest counts (90.00 %; before 81.00 % to 86.00 %)" in found.why
    assert found.settle_with == "oelm run rev-oelm --seed 43 --seed 44"


def test_a_seed_run_again_with_the_same_result_is_no_choice(tmp_path):
    runs = [*pair_of(tmp_path), write_run(tmp_path, OELM, number=5, score=0.9)]
    assert "reruns" not in codes(won(runs), "breaks", "confounds", "note")


# -- code, machines, attempts ------------------------------------------------------------------------------------------


def dirty(diff: str | None) -> dict[str, Any]:
    return {"run": {"git_commit": "0123456789abcdef+changes", "git_diff": diff}}


@pytest.mark.parametrize(
    ("theirs", "ours", "grade", "words"),
    [
        (dirty("aa"), dirty("bb"), "confounds", "uncommitted changes aa (rev-baseline) vs bb (rev-oelm)"),
        ({}, dirty("bb"), "confounds", "uncommitted changes none (rev-baseline) vs bb (rev-oelm)"),
        (dirty(None), dirty(None), "note", "uncommitted changes that were not recorded"),
        (dirty("aa"), dirty(None), "note", "uncommitted changes that were not recorded"),
        ({}, {"run": {"git_commit": "fedcba"}}, "note", "the code may have changed in between"),
    ],
)
def test_trees_of_one_commit_whose_code_differs_are_told_apart(tmp_path, theirs, ours, grade, words):
    found = only(won(pair_of(tmp_path, theirs=theirs, ours=ours)), "commit")
    assert found.grade == grade
    assert words in found.why
    again = "oelm run rev-baseline rev-oelm --seed 42"
    assert found.settle_with == (again if grade == "confounds" else None)


def test_trees_with_the_same_changes_are_the_same_code(tmp_path):
    group = won(pair_of(tmp_path, theirs=dirty("aa"), ours=dirty("aa")))
    assert "commit" not in codes(group, "breaks", "confounds", "note")
    assert "code commit" in group.same


def resume(run: Run, **elsewhere: Any) -> None:
    for number in (2, 3, 4):
        place = {"host": "lab", "world_size": 1, "threads": 1} | (elsewhere if number == 4 else {})
        write_record(path_of(run.folder, number), Attempt(attempt=number, from_step=100 * number, **place))


def test_a_run_resumed_on_another_host_with_other_processes_is_not_one_run(tmp_path):
    runs = pair_of(tmp_path)
    resume(runs[1], host="gpu43", world_size=2)
    found = next(finding for finding in won(runs).audit if finding.code == "resumed" and finding.grade == "confounds")
    assert f"{runs[1].id} was resumed 3 times, on gpu43 and lab, with 1 and 2 processes" in found.why
    assert found.settle_with == "oelm run rev-oelm --seed 42"


def test_a_run_resumed_where_it_was_is_a_note_about_its_clock(tmp_path):
    runs = pair_of(tmp_path)
    resume(runs[1])
    found = only(won(runs), "resumed")
    assert found.grade == "note"
    assert "their times are of several attempts" in found.why


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"device": {"kind": "cuda", "name": "A5000"}}, "hardware"),
        ({"world_size": 2}, "processes"),
        ({"threads": 8}, "threads"),
    ],
)
def test_another_machine_confounds_and_both_arms_can_be_run_again_on_one(tmp_path, result, code):
    group = won(pair_of(tmp_path, ours={"result": result, "run": {"host": "gpu43"}}))
    found = only(group, code)
    assert found.grade == "confounds"
    assert found.settle_with == "oelm run rev-baseline rev-oelm --seed 42"
    assert ("host" in codes(group, "note")) == (code != "hardware")  # another card is on another host, said once


def test_ten_times_the_wall_clock_is_no_win_at_equal_means(tmp_path):
    found = only(won(pair_of(tmp_path, ours={"result": {"seconds": {"total": 250.0}}})), "cost")
    assert found.grade == "confounds"
    assert "rev-oelm took 10.0x as long by the clock" in found.why
    assert found.settle_with == "oelm run rev-baseline --set train.max_steps=4000"


# -- what was trained, on what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ('data.text=["title","body"]', "text"),
        ("data.label=stars", "labels"),
        ("data.tokenizer=other-words", "tokenizer"),
        ("data.validation=tail", "validation"),
        ("model.arch=roberta", "arch"),
    ],
)
def test_other_columns_labels_tokens_or_network_break_the_pair(tmp_path, setting, code):
    arm = experiment("rev-oelm", BERT, setting, method=FROZEN, baseline="rev-baseline")
    group = won(pair_of(tmp_path, arm=arm))
    assert only(group, code).grade == "breaks"
    assert group.broken("rev-oelm") is not None
    assert group.broken("rev-oelm").settle_with


def test_names_do_not_matter_where_the_tokens_are_known_to_be_the_same(tmp_path):
    arm = experiment("rev-oelm", BERT, "data.tokenizer=/models/tiny-bert", method=FROZEN, baseline="rev-baseline")
    same = {"result": {"data": {"fingerprint": "f"}}, "checks": {"data": {"fingerprint": "f"}}}
    group = won(pair_of(tmp_path, arm=arm, theirs=same, ours=same))
    assert "tokenizer" not in codes(group)
    assert "data" in group.same


def test_data_that_was_not_recorded_is_not_called_the_same(tmp_path):
    group = won(pair_of(tmp_path, theirs=UNRECORDED, ours=UNRECORDED))
    found = only(group, "unknown")
    assert (found.grade, found.arms) == ("confounds", ("rev-baseline", "rev-oelm"))
    assert "not known to be equal: the text that was read of rev-baseline and rev-oelm" in found.why
    assert not {"data", "data read", "validation split"} & set(group.same)


def test_a_run_whose_data_is_unknown_is_not_of_one_arm_with_those_whose_data_is_known(tmp_path):
    runs = [*pair_of(tmp_path), write_run(tmp_path, OELM, seed=43, number=3, score=0.95, **UNRECORDED)]
    group = won(runs)
    assert [arm.id for arm in group.arms] == ["rev-baseline", "rev-oelm", "rev-oelm (data not recorded)"]
    assert only(group, "unknown").arms == ("rev-oelm (data not recorded)",)


def test_a_judgement_on_fewer_examples_is_not_the_same_judgement(tmp_path):
    easy = {"labels": LABELS[:400], "predictions": predictions_with(LABELS[:400], range(20)), "score": None}
    hard = {"labels": LABELS, "predictions": predictions_with(LABELS, range(80)), "score": None}
    found = only(won(pair_of(tmp_path, theirs=hard, ours=easy)), "examples")
    assert found.grade == "breaks"
    assert "872 (rev-baseline) vs 400 (rev-oelm)" in found.why


def test_an_arm_tested_on_another_text_is_broken(tmp_path):
    tested = {"values": {"accuracy": 0.9}, "step": 400, "examples": 100, "source": "test"}
    runs = pair_of(
        tmp_path,
        theirs={"result": {"test": {**tested, "values": {"accuracy": 0.8}, "fingerprint": "one"}}},
        ours={"result": {"test": {**tested, "fingerprint": "other"}}},
    )
    assert only(won(runs), "test").grade == "breaks"


def test_extras_take_the_credit_until_the_baseline_has_them_too(tmp_path):
    arm = experiment(
        "rev-oelm", BERT, "method.extras.position_bias=16", "method.extras.gain=true", method=FROZEN, baseline=BASE.id
    )
    found = only(won(pair_of(tmp_path, arm=arm), arm), "extras")
    assert found.grade == "confounds"
    assert "extra attention parameters none (rev-baseline) vs position_bias 16, gain (rev-oelm)" in found.why
    assert found.settle_with == (
        "oelm run rev-baseline --set method.extras.position_bias=16 --set method.extras.gain=True"
    )
    both = experiment("rev-baseline-extras", method={"name": "x", "extras": {"position_bias": 16, "gain": True}})
    assert only(won(pair_of(tmp_path / "b", arm=arm), both), "extras").settle_with == "rev-baseline-extras"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "lora", "peer": {"kind": "lora"}}, "trained with LoRA"),
        ({"name": "bitfit", "peer": {"kind": "bitfit"}}, "trained with BitFit"),
        ({"name": "gain", "extras": {"gain": True}}, "extra attention parameters (gain)"),
    ],
)
def test_a_baseline_that_is_a_method_of_its_own_is_not_the_standard_model(tmp_path, method, words):
    weak = experiment("rev-weak", method=method)
    arm = experiment("rev-oelm", method=FROZEN, baseline="rev-weak")
    found = only(won(pair_of(tmp_path, base=weak, arm=arm), weak), "untouched-baseline")
    assert found.grade == "breaks"
    assert words in found.why
    assert found.settle_with == "rev-baseline"  # the same recipe, untouched


# -- headlines and what was kept ---------------------------------------------------------------------------------------


def errors(count: int, seed: int = 0) -> list[int]:
    return predictions_with(LABELS, random.Random(seed).sample(range(872), count))


def test_a_headline_that_its_own_predictions_contradict_breaks(tmp_path):
    kept = {"labels": LABELS, "predictions": errors(109)}  # 87.5 % right
    runs = pair_of(tmp_path, theirs={**kept, "score": None}, ours={**kept, "score": 0.93})
    group = won(runs)
    found = only(group, "contradicted")
    assert (found.grade, found.arms) == ("breaks", ("rev-oelm",))
    assert "is given as accuracy 93.00 %, but its own predictions make 87.50 %" in found.why
    assert found.settle_with == "oelm run rev-oelm --seed 42"
    assert group.broken("rev-oelm") == found


def test_a_perplexity_that_its_own_losses_contradict_breaks(tmp_path):
    losses = [31 * 1.5 + place / 100 for place in range(60)]
    runs = [
        write_run(tmp_path, STORY, number=1, losses=losses),
        write_run(tmp_path, STORY_OELM, number=2, losses=losses, score=4.0),
    ]
    assert "its own losses make 4.5" in only(won(runs), "contradicted").why


def test_predictions_of_fewer_examples_than_it_says_contradict_a_run(tmp_path):
    kept = {"labels": LABELS[:400], "predictions": predictions_with(LABELS[:400], range(40)), "score": None}
    facts = {"data": {"name": "reviews", "fingerprint": "reviews-1", "eval_examples": 872}}
    found = only(won(pair_of(tmp_path, ours={**kept, "result": facts})), "contradicted")
    assert "judged on 872 examples, but kept predictions of 400" in found.why


def test_a_test_score_is_recomputed_too(tmp_path):
    tested = {"step": 400, "examples": 872, "source": "test", "fingerprint": "f"}
    runs = pair_of(
        tmp_path,
        theirs={"result": {"test": {**tested, "values": {"accuracy": 0.8}}}},
        ours={"result": {"test": {**tested, "values": {"accuracy": 0.95}}}},
    )
    runs[1].folder.test.mkdir()
    write_record(runs[1].folder.test / "predictions.json", Predictions(LABELS, errors(109)))
    found = only(won(runs), "contradicted")
    assert "the test score of" in found.why
    assert "make 87.50 %" in found.why


def test_predictions_of_another_step_than_the_headline_are_not_its_own(tmp_path):
    kept = {"labels": LABELS, "predictions": errors(80), "curve": [0.8, 0.85, 0.88, 1 - 80 / 872]}
    runs = pair_of(tmp_path, ours=kept)
    shutil.move(runs[1].folder.predictions / "step-400.json", runs[1].folder.predictions / "step-200.json")
    found = only(won(runs), "other-step")
    assert found.grade == "confounds"
    assert "of step 400, the predictions kept are of step 200" in found.why


def test_seeds_that_are_copies_of_one_run_are_one_run(tmp_path):
    runs = [
        write_run(tmp_path, BASE, seed=seed, number=seed, labels=LABELS, predictions=errors(100, seed))
        for seed in (42, 43, 44)
    ]
    for seed in (42, 43, 44):
        runs.append(
            write_run(tmp_path, OELM, seed=seed, number=60 + seed, labels=LABELS, predictions=errors(70, min(seed, 43)))
        )
    found = only(won(runs), "copied")
    assert (found.grade, found.arms) == ("breaks", ("rev-oelm",))
    assert f"{runs[4].id} and {runs[5].id} have other seeds but the very same predictions" in found.why
    assert found.settle_with == "oelm run rev-oelm --seed 45"


def test_language_models_with_the_very_same_losses_are_copies(tmp_path):
    losses = [31 * 1.5 + place / 100 for place in range(60)]
    runs = [
        write_run(tmp_path, STORY, seed=seed, number=seed, losses=[loss + seed for loss in losses]) for seed in (42, 43)
    ]
    runs += [write_run(tmp_path, STORY_OELM, seed=seed, number=60 + seed, losses=losses) for seed in (42, 43)]
    assert only(won(runs), "copied").arms == ("story-oelm",)


@pytest.mark.parametrize("predictions", [predictions_with(LABELS, [7, 9]), [1] * 872])
def test_seeds_that_agree_because_the_task_is_easy_or_hopeless_are_no_copies(tmp_path, predictions):
    runs = [
        write_run(tmp_path, exp, seed=seed, number=number, labels=LABELS, predictions=predictions)
        for number, (exp, seed) in enumerate([(BASE, 42), (BASE, 43), (OELM, 42), (OELM, 43)])
    ]
    (group,) = compare_runs(runs, Catalogue(experiments={BASE.id: BASE, OELM.id: OELM})).groups
    assert "copied" not in codes(group)


def test_a_peak_that_training_did_not_keep_is_said_with_the_gap_at_the_end(tmp_path):
    runs = pair_of(tmp_path, theirs={"curve": [0.7, 0.8, 0.84, 0.85]}, ours={"curve": [0.8, 0.9, 0.8, 0.7]})
    found = only(won(runs), "collapse")
    assert found.grade == "confounds"
    assert "rev-oelm was at accuracy 90.00 % at its best and ended at 70.00 %" in found.why
    assert "at the last validation the gap is -15.00 pp" in found.why


def test_a_perplexity_that_rose_again_is_a_peak_too(tmp_path):
    runs = [
        write_run(tmp_path, STORY, number=1, curve=[6.0, 5.0, 4.5, 4.4]),
        write_run(tmp_path, STORY_OELM, number=2, curve=[6.0, 4.3, 5.0, 6.0]),
    ]
    assert "story-oelm was at perplexity 4.300 at its best and ended at 6.000" in only(won(runs), "collapse").why


def test_an_end_within_the_noise_of_seeds_or_alike_in_both_arms_is_no_peak(tmp_path):
    noisy = [(0.84, 0.88), (0.90, 0.94)]
    for place, (theirs, ours) in enumerate(noisy):
        write_run(tmp_path, BASE, seed=42 + place, number=2 * place, curve=[0.7, theirs, theirs])
        write_run(tmp_path, OELM, seed=42 + place, number=2 * place + 1, curve=[0.7, ours, ours - 0.01])
    runs = [read_run_at(path) for path in sorted(tmp_path.iterdir())]
    assert "collapse" not in codes(won(runs))
    alike = pair_of(tmp_path / "b", theirs={"curve": [0.85, 0.75]}, ours={"curve": [0.9, 0.8]})
    assert "collapse" not in codes(won(alike))


def read_run_at(path: Path) -> Run:
    from oelm_core.runs.folder import RunFolder

    return read_run(RunFolder(path))


def test_the_best_of_more_validations_is_a_luckier_best(tmp_path):
    runs = pair_of(tmp_path, theirs={"curve": [0.84, 0.85]}, ours={"curve": [0.8, 0.85, 0.89, 0.88, 0.9]})
    found = only(won(runs), "best-of-many")
    assert found.grade == "confounds"
    assert "best of 2 validations (rev-baseline) is compared with the best of 5 (rev-oelm)" in found.why


def test_with_a_test_text_the_validations_that_chose_flatter_nobody(tmp_path):
    def tested(score: float) -> dict[str, Any]:
        values = {"accuracy": score}
        return {"test": {"values": values, "step": 1, "examples": 100, "source": "test", "fingerprint": "f"}}

    often = experiment("rev-oelm", BERT, "train.eval_every=50", method=FROZEN, baseline="rev-baseline")
    theirs = {"curve": [0.84, 0.85], "result": tested(0.8)}
    ours = {"curve": [0.9, 0.8, 0.7], "result": tested(0.9)}
    group = won(pair_of(tmp_path, arm=often, theirs=theirs, ours=ours))
    assert group.basis == "test"
    assert {"collapse", "eval-every"} <= codes(group, "note")
    assert "best-of-many" not in codes(group, "breaks", "confounds", "note")


def test_a_test_text_that_only_one_arm_has_is_not_what_the_table_rests_on(tmp_path):
    arm = experiment("rev-oelm", BERT, "data.test=test", method=FROZEN, baseline="rev-baseline")
    group = won(pair_of(tmp_path, arm=arm))
    assert only(group, "test").grade == "note"
    assert "the table rests on validation" in only(group, "test").why


# -- said once ---------------------------------------------------------------------------------------------------------


def test_what_is_the_same_of_several_arms_is_said_once(tmp_path):
    other = experiment("rev-polar", method={**FROZEN, "init": "polar"}, baseline="rev-baseline")
    moved = {"result": {"device": {"kind": "cuda", "name": "A5000"}}}
    runs = [*pair_of(tmp_path, ours=moved), write_run(tmp_path, other, number=3, score=0.91, **moved)]
    found = only(won(runs, other), "hardware")
    assert found.arms == ("rev-baseline", "rev-oelm", "rev-polar")
    assert "cpu a processor (rev-baseline) vs cuda A5000 (rev-oelm and rev-polar)" in found.why
    assert found.settle_with is not None
    assert "rev-polar" in found.settle_with


def test_merging_findings_keeps_the_remedy_that_one_of_them_has():
    bare = Finding("breaks", "duration", ("a", "b"), "one arm trained longer.")
    with_remedy = Finding("breaks", "duration", ("a", "b"), "one arm trained longer.", "oelm run a b")
    for order in ((bare, with_remedy), (with_remedy, bare)):
        assert [finding.settle_with for finding in sort_findings(order)] == ["oelm run a b"]


def test_findings_about_different_arms_in_different_words_stay_apart():
    one = Finding("confounds", "lr", ("a", "b"), "learning rate 1 (a) vs 2 (b): x.", "oelm run b --set train.lr=1")
    other = Finding("confounds", "lr", ("a", "c"), "learning rate 1 (a) vs 3 (c): x.", "oelm run c --set train.lr=1")
    why = "learning rate 1 (a) vs 2 (b-2): x."
    same = Finding("confounds", "lr", ("a", "b-2"), why, "oelm run b-2 --set train.lr=1")
    found = sort_findings((one, other, same))
    assert [finding.why for finding in found] == ["learning rate 1 (a) vs 2 (b and b-2): x.", other.why]
    assert found[0].settle_with == "oelm run b b-2 --set train.lr=1"


# -- what runs did -----------------------------------------------------------------------------------------------------


def test_the_steps_that_were_done_count_not_those_of_the_recipe(tmp_path):
    epochs = experiment("rev-oelm", BERT, "train.epochs=2", method=FROZEN, baseline="rev-baseline")
    same = won(pair_of(tmp_path / "a", arm=epochs, ours={"result": {"steps": 400}}))
    assert "duration" not in codes(same)
    assert "training length" in same.same
    longer = won(pair_of(tmp_path / "b", ours={"result": {"steps": 4000}}))
    found = only(longer, "duration")
    assert found.grade == "breaks"
    assert "400 steps (rev-baseline) vs 4,000 steps (rev-oelm)" in found.why
    assert found.settle_with == "oelm run rev-baseline rev-oelm"


def test_published_figures_are_held_against_what_a_run_did(tmp_path):
    """A preset of two epochs over 67,349 sentences, run on a file of 6,000 of them."""
    published = {"accuracy": 0.93, "source": "x.txt"}
    train = {**BERT["train"], "max_steps": None, "epochs": 2, "batch_size": 32}
    data = {**BERT["data"], "train_examples": 67349}
    arms = [
        experiment("sst-baseline", data=data, train=train, published=published),
        experiment("sst-oelm", data=data, train=train, published=published, method=FROZEN, baseline="sst-baseline"),
    ]
    did = {"steps": 376, "data": {"name": "reviews", "fingerprint": "f", "train_examples": 6000, "eval_examples": 872}}
    runs = [write_run(tmp_path, arm, number=n, score=0.85 + n / 20, result=did) for n, arm in enumerate(arms)]
    catalogue = Catalogue(experiments={arm.id: arm for arm in arms})
    (group,) = with_published_column(compare_runs(runs, catalogue), catalogue).groups
    found = only(group, "published-column")
    assert "6,000 training examples, not 67,349" in found.why
    assert "training length 376 steps, not 4,210 steps" in found.why
    assert "376 steps" in group.arms[0].settings["duration"]


def test_every_finding_of_a_table_can_be_written_as_json(tmp_path):
    runs = pair_of(tmp_path, theirs=UNRECORDED, ours={"curve": [0.9, 0.6], **dirty(None)})
    resume(runs[1], host="elsewhere")
    write_record(runs[1].folder.losses / "step-1.json", Losses([1.0], [1], 1))
    json.dumps([finding.to_json() for finding in won(runs).audit])
