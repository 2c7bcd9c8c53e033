"""The tests behind every p-value, against scipy and hand-computed cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from oelm_core.compare.statistics import (
    bootstrap_metric,
    disagreement,
    exact_mcnemar,
    interleaved,
    mcnemar_range,
    over_seeds,
    paired_t,
    perplexity_ratio,
    trend,
    welch_t,
)


def test_mcnemar_counts_only_the_examples_on_which_the_arms_differ():
    labels = [0, 0, 1, 1, 1, 0, 1, 0]
    baseline = [0, 0, 1, 1, 0, 1, 1, 0]
    arm = [0, 1, 1, 0, 1, 1, 1, 0]
    counts = disagreement(labels, baseline, arm)
    assert (counts.n, counts.only_baseline, counts.only_arm, counts.differing, counts.net) == (8, 2, 1, 3, -1)
    assert counts.p == 1.0  # two of three tails of a fair coin: 2 * (3 + 1) / 8


def test_mcnemar_of_ten_to_two_is_the_binomial_tail():
    by_hand = 2 * sum(math.comb(12, k) for k in range(3)) / 2**12
    assert exact_mcnemar(10, 2) == pytest.approx(by_hand)
    assert exact_mcnemar(0, 0) == 1.0


def test_sixteen_sentences_of_872_are_significant_only_up_to_58_disagreements():
    low, high, last = mcnemar_range(60, 76, 872)
    assert low == pytest.approx(2 * 0.5**16)
    assert high == pytest.approx(0.2, abs=0.01)
    assert last == 58


@given(st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_mcnemar_does_not_care_who_is_called_the_baseline(one: int, other: int):
    assert exact_mcnemar(one, other) == pytest.approx(exact_mcnemar(other, one))


def test_bootstrap_of_accuracy_is_centred_and_as_wide_as_theory_says():
    labels = [0] * 500 + [1] * 500
    baseline = [1 - y if i % 10 == 0 else y for i, y in enumerate(labels)]  # 100 wrong
    arm = [1 - y if i % 10 in (0, 5) else y for i, y in enumerate(labels)]  # the same 100 and 100 more
    estimate = bootstrap_metric(labels, baseline, arm, "accuracy")
    assert estimate.value == pytest.approx(-0.1)
    assert estimate.interval is not None
    low, high = estimate.interval
    spread = math.sqrt(0.1 * 0.9 / 1000)
    assert (low, high) == pytest.approx((-0.1 - 1.96 * spread, -0.1 + 1.96 * spread), abs=0.002)


def test_bootstrap_knows_f1_and_matthews():
    labels = [1, 1, 1, 1, 0, 0, 0, 0]
    baseline = [1, 1, 1, 1, 0, 0, 0, 0]
    arm = [1, 1, 0, 0, 0, 0, 0, 1]
    # arm: TP 2, FP 1, FN 2, TN 3
    assert bootstrap_metric(labels, baseline, arm, "f1").value == pytest.approx(4 / 7 - 1)
    matthews = (2 * 3 - 1 * 2) / math.sqrt(3 * 4 * 4 * 5)
    assert bootstrap_metric(labels, baseline, arm, "matthews").value == pytest.approx(matthews - 1)


def test_bootstrap_of_three_classes_uses_the_mean_f1():
    labels, arm = [0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 1]
    expected = (1 + 2 * 2 / (2 + 3) + 2 / 3) / 3
    assert bootstrap_metric(labels, labels, arm, "f1").value == pytest.approx(expected - 1)


def test_perplexity_ratio_of_equal_lengths_is_the_paired_t_test():
    generator = np.random.default_rng(1)
    baseline = generator.normal(60, 5, 80)
    arm = baseline + generator.normal(1, 2, 80)
    estimate = perplexity_ratio(list(baseline), list(arm), [30] * 80)
    assert estimate.value == pytest.approx(math.exp((arm - baseline).mean() / 30))
    assert estimate.p == pytest.approx(stats.ttest_rel(arm, baseline).pvalue)
    assert estimate.interval is not None
    low, high = estimate.interval
    interval = stats.ttest_rel(arm, baseline).confidence_interval(0.95)
    assert (math.log(low), math.log(high)) == pytest.approx((interval.low / 30, interval.high / 30), abs=0.003)


def test_perplexity_ratio_weighs_sequences_by_their_tokens():
    estimate = perplexity_ratio([10.0, 100.0], [10.0, 190.0], [10, 90])
    assert estimate.value == pytest.approx(math.exp(90 / 100))


def test_one_sequence_gives_a_ratio_and_no_test():
    estimate = perplexity_ratio([10.0], [11.0], [10])
    assert estimate.value == pytest.approx(math.exp(0.1))
    assert estimate.p is None
    assert estimate.interval is None


def test_common_seeds_are_paired_and_checked_against_scipy():
    baseline = {42: 0.93, 43: 0.925, 44: 0.934}
    arm = {42: 0.91, 43: 0.912, 44: 0.915}
    outcome = over_seeds(baseline, arm, ratio=False)
    assert outcome is not None
    name, estimate = outcome
    reference = stats.ttest_rel(list(arm.values()), list(baseline.values()))
    interval = reference.confidence_interval(0.95)
    assert name == "paired t"
    assert estimate.p == pytest.approx(reference.pvalue)
    assert estimate.interval == pytest.approx((interval.low, interval.high))


def test_seeds_that_do_not_match_get_welch():
    outcome = over_seeds({1: 4.2, 2: 4.3, 3: 4.25}, {7: 4.6, 8: 4.8}, ratio=True)
    assert outcome is not None
    name, estimate = outcome
    reference = stats.ttest_ind(np.log([4.6, 4.8]), np.log([4.2, 4.3, 4.25]), equal_var=False)
    assert name == "Welch t"
    assert estimate.p == pytest.approx(reference.pvalue)
    assert estimate.value == pytest.approx(math.exp(np.log([4.6, 4.8]).mean() - np.log([4.2, 4.3, 4.25]).mean()))


def test_one_seed_allows_no_test_over_seeds():
    assert over_seeds({42: 0.9}, {42: 0.8}, ratio=False) is None


def test_runs_without_spread_give_a_difference_but_no_p_value():
    assert paired_t([1.0, 1.0], [1.1, 1.1], ratio=False).p is None
    assert welch_t([1.0, 1.0], [1.1, 1.1], ratio=False).p is None


def test_interleaved_runs_are_paired_in_their_order():
    baseline = [(1.0, 0.2774), (3.0, 0.3366), (5.0, 0.3514)]
    arm = [(6.0, 0.3278), (2.0, 0.3293), (4.0, 0.3215)]  # given out of order
    estimate = interleaved(baseline, arm)
    assert estimate is not None
    logs = np.log([0.3293, 0.3215, 0.3278]) - np.log([0.2774, 0.3366, 0.3514])
    assert estimate.value == pytest.approx(math.exp(logs.mean()))
    assert estimate.p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert interleaved(baseline[:1], arm[:1]) is None


def test_a_trend_is_a_change_that_never_turns():
    assert trend([0.2774, 0.3366, 0.3514]) == pytest.approx(0.3514 / 0.2774 - 1)
    assert trend([0.33, 0.32, 0.33]) is None
    assert trend([0.3, 0.4]) is None
