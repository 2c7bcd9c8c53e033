"""Validation figures against hand-computed cases and scikit-like definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oelm_core import scores
from oelm_core.metric import metric_named
from oelm_core.training import evaluation


def test_binary_f1_is_that_of_class_one() -> None:
    labels, predictions = np.array([1, 1, 1, 0, 0]), np.array([1, 1, 0, 1, 0])
    assert scores.f1(scores.confusion(labels, predictions, 2)) == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))


def test_f1_of_three_classes_is_their_mean_and_an_unseen_class_counts_nothing() -> None:
    labels, predictions = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])
    assert scores.f1(scores.confusion(labels, predictions, 3)) == pytest.approx((0.8 + 2 / 3 + 0) / 3)


def test_matthews_of_a_hand_computed_table() -> None:
    labels = np.array([1] * 6 + [0] * 4)
    predictions = np.array([1, 1, 1, 1, 1, 0, 1, 0, 0, 0])
    expected = (5 * 3 - 1 * 1) / math.sqrt(6 * 6 * 4 * 4)
    assert scores.matthews(scores.confusion(labels, predictions, 2)) == pytest.approx(expected)


def test_matthews_of_a_constant_answer_is_zero() -> None:
    assert scores.matthews(scores.confusion(np.array([0, 1, 1]), np.array([1, 1, 1]), 2)) == 0.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=60))
def test_matthews_equals_the_correlation_of_one_hot_columns(pairs: list[tuple[int, int]]) -> None:
    labels, predictions = (np.array(column) for column in zip(*pairs, strict=True))
    x, y = np.eye(3)[labels], np.eye(3)[predictions]
    x, y = x - x.mean(0), y - y.mean(0)
    spread = math.sqrt((x * x).sum() * (y * y).sum())
    expected = (x * y).sum() / spread if spread > 1e-12 else 0.0
    assert scores.matthews(scores.confusion(labels, predictions, 3)) == pytest.approx(expected, abs=1e-9)


def test_a_perfect_answer_is_perfect_everywhere() -> None:
    labels = np.array([0, 1, 2, 1])
    figures = evaluation.classification(labels, labels, np.array([0.1, 0.2, 0.3, 0.4]), 3)
    assert figures == {
        "loss": pytest.approx(0.25),
        "accuracy": 1.0,
        "f1": pytest.approx(1.0),
        "matthews": pytest.approx(1.0),
    }


def test_perplexity_weighs_tokens_not_sequences() -> None:
    figures = evaluation.language(np.array([10.0, 1.0]), np.array([9, 1]))
    assert figures["loss"] == pytest.approx(1.1)
    assert figures["perplexity"] == pytest.approx(math.exp(1.1))


def test_the_earlier_of_two_equal_evaluations_stays_best() -> None:
    accuracy, perplexity = metric_named("accuracy"), metric_named("perplexity")
    assert not accuracy.better(0.9, 0.9)
    assert accuracy.better(0.91, 0.9)
    assert perplexity.better(4.1, 4.2)
    assert not perplexity.better(4.3, 4.2)
    assert accuracy.better(0.1, None)
    assert not perplexity.better(math.nan, 4.2)
