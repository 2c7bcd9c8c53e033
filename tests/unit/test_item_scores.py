"""What each example contributes to a score, and how the flattery of a best validation is undone."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from oelm_core.compare.evidence import gather
from oelm_core.compare.item_scores import common_basis, score_run
from oelm_core.config import override
from tests.run_factory import GPT, experiment, predictions_with, write_run

BASE = experiment("rev-baseline")
STORY = experiment("story-baseline", GPT)
LABELS = [place % 3 % 2 for place in range(300)]


def score(run, metric, basis="best"):
    return score_run(gather(run), metric, basis)


def keep(run, rows, labels):
    """Predictions of every evaluation, in place of those the factory wrote."""
    for path in run.folder.predictions.iterdir():
        path.unlink()
    for step, row in rows.items():
        content = {"labels": [int(y) for y in labels], "predictions": [int(p) for p in row], "step": step}
        (run.folder.predictions / f"step-{step}.json").write_text(json.dumps(content))


def test_an_examples_part_in_accuracy_is_whether_it_is_right(tmp_path):
    run = write_run(tmp_path, BASE, score=0.9, labels=LABELS, predictions=predictions_with(LABELS, range(30)))
    found = score(run, "accuracy")
    assert list(found.items) == pytest.approx([0.0] * 30 + [1.0] * 270)


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_an_examples_part_in_f1_and_matthews_is_what_its_absence_changes(tmp_path, metric):
    from oelm_core.scores import SCORES, confusion

    predicted = predictions_with(LABELS, [*range(0, 40, 2), *range(101, 131, 3)])
    y, p = np.asarray(LABELS), np.asarray(predicted)
    whole = float(SCORES[metric](confusion(y, p, 2)))
    run = write_run(
        tmp_path, override(BASE, [f"data.metric={metric}"]), score=whole, labels=LABELS, predictions=predicted
    )
    found = score(run, metric)
    each = [float(SCORES[metric](confusion(np.delete(y, i), np.delete(p, i), 2))) for i in range(300)]
    parts = 300 * whole - 299 * np.asarray(each)
    assert found.items == pytest.approx(parts - parts.mean() + whole)
    assert found.items.mean() == pytest.approx(whole)


def test_a_class_that_was_never_predicted_still_counts_as_a_class(tmp_path):
    """Three classes of which only two are seen: F1 is the mean over three, not that of class 1."""
    labels, predicted = [0, 1] * 50, [0, 1] * 45 + [1, 0] * 5
    three = override(BASE, ["data.metric=f1", "data.classes=3"])
    run = write_run(tmp_path, three, score=0.6, labels=labels, predictions=predicted, result={"data": {"classes": 3}})
    found = score(run, "f1")
    assert found.items.mean() == pytest.approx(0.9 * 2 / 3)


def test_documents_weigh_by_their_tokens_and_their_mean_is_the_log_of_perplexity(tmp_path):
    losses, tokens = [30.0, 10.0, 80.0], [10, 5, 20]
    run = write_run(tmp_path, STORY, score=math.exp(120 / 35), losses=losses, tokens=tokens)
    path = next(run.folder.losses.iterdir())
    content = json.loads(path.read_text())
    content["documents"] = {"losses": [40.0, 70.0, 10.0], "tokens": [15, 18, 2]}
    path.write_text(json.dumps(content))
    found = score(run, "perplexity")
    rate = 120 / 35
    assert found.unit == "documents"
    assert found.items.mean() == pytest.approx(rate)
    assert found.items[0] == pytest.approx(rate + (40 - rate * 15) * 3 / 35)


def test_runs_with_a_test_text_are_scored_on_it_only_if_all_of_them_are(tmp_path):
    tested = {
        "test": {"values": {"accuracy": 0.85}, "step": 400, "examples": 300, "source": "test", "fingerprint": "t"}
    }
    one = write_run(tmp_path, BASE, number=1, score=0.9, result=tested)
    other = write_run(tmp_path, BASE, number=2, seed=43, score=0.9)
    assert common_basis([gather(one)], "accuracy") == "test"
    assert score(one, "accuracy", "test").value == 0.85
    assert common_basis([gather(one), gather(other)], "accuracy") != "test"


def test_more_evaluations_win_nothing_after_cross_fitting(tmp_path):
    """Pure chance: the best of 26 validations beats the best of 3, until each is scored where it was not chosen."""
    chance = np.random.default_rng(8)
    labels = chance.integers(0, 2, 400)
    flattered, honest = [], []
    for number in range(20):
        count = 26 if number % 2 else 3
        exp = override(BASE, ["train.max_steps=2600"])
        rows = {100 * (i + 1): chance.integers(0, 2, 400) for i in range(count)}
        values = [float((row == labels).mean()) for row in rows.values()]
        run = write_run(tmp_path, exp, number=number, seed=number, curve=values)
        keep(run, rows, labels)
        evidence = gather(run)
        assert common_basis([evidence], "accuracy") == "cross-fitted"
        flattered.append(evidence.score)
        honest.append(score_run(evidence, "accuracy", "cross-fitted").value)
    many, few = slice(1, None, 2), slice(0, None, 2)
    assert np.mean(flattered[many]) - np.mean(flattered[few]) > 0.015
    assert abs(np.mean(honest[many]) - np.mean(honest[few])) < 0.015
    assert abs(np.mean(honest) - 0.5) < 0.015 < np.mean(flattered) - 0.5


def test_a_run_that_kept_only_its_best_is_not_cross_fitted(tmp_path):
    run = write_run(tmp_path, BASE, labels=LABELS, predictions=LABELS)
    assert common_basis([gather(run)], "accuracy") == "best"
