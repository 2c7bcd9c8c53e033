"""What a table may say, against scipy, hand-computed cases and properties that must hold whatever the numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from oelm_core.compare.statistics import (
    Sample,
    Spread,
    contrast,
    holm,
    mcnemar,
    mcnemar_range,
    mean_of,
    neighbours,
    noise_floor,
    paired_difference,
    rank_test,
    resolved_by_examples,
    seeds_to_decide,
    step_time_ratio,
    time_to_reach,
    trend,
)

SCORES = st.lists(st.floats(0.5, 0.99).map(lambda x: round(x, 4)), min_size=2, max_size=6)


def gap(baseline, arm, others=()):
    return contrast([(1.0, arm), (-1.0, baseline)], others)


def sample(items):
    """A Sample of [seeds, examples]."""
    return Sample(tuple(items.mean(1)), items)


# -- seeds x examples --------------------------------------------------------------------------------------------------


def test_without_examples_the_standard_error_is_that_of_the_pooled_t_test():
    baseline, arm = (0.93, 0.925, 0.934), (0.91, 0.912, 0.905)
    found = gap(Sample(baseline), Sample(arm))
    reference = stats.ttest_ind(arm, baseline)
    assert found.value == pytest.approx(np.mean(arm) - np.mean(baseline))
    assert found.value / found.error == pytest.approx(reference.statistic)
    assert found.df == reference.df


def test_spreads_that_are_not_equal_leave_fewer_degrees_of_freedom():
    found = gap(Sample((0.90, 0.92, 0.94)), Sample((0.905, 0.91, 0.915)))  # variances 16 : 1
    unbiased = (16 + 1) ** 2 * 4 / (4 + 2) / ((16**2 + 1**2) / (2 + 2))
    assert found.df == pytest.approx(unbiased)
    assert found.df < 4


def test_one_seed_a_side_leaves_interval_and_p_unknown():
    found = gap(Sample((0.93,)), Sample((0.91,)))
    assert (found.value, found.interval(), found.p()) == (pytest.approx(-0.02), None, None)


def test_one_seed_can_borrow_the_spread_of_other_runs_and_says_from_which():
    found = gap(Sample((0.93,)), Sample((0.91,)), [Spread(0.005**2, 11, "sst2-baseline")])
    assert found.error == pytest.approx(0.005 * math.sqrt(2))
    assert found.borrowed == ("sst2-baseline",)


def test_seeds_and_examples_are_the_crossed_analysis_of_variance():
    """V = (MS_seed + MS_item - MS_rest) / (k n), for the difference of arms of which one is constant."""
    k, n = 4, 60
    generator = np.random.default_rng(3)
    items = generator.normal(0, 0.3, n) + generator.normal(0, 0.05, (k, 1)) + generator.normal(0, 0.1, (k, n))
    found = contrast([(1.0, sample(items))])
    grand = items.mean()
    seeds = n * ((items.mean(1) - grand) ** 2).sum() / (k - 1)
    rows = k * ((items.mean(0) - grand) ** 2).sum() / (n - 1)
    rest = items - items.mean(0) - items.mean(1, keepdims=True) + grand
    noise = (rest**2).sum() / ((k - 1) * (n - 1))
    assert found.error**2 == pytest.approx((seeds + rows - noise) / (k * n))
    assert found.seeds == pytest.approx(items.mean(1).var(ddof=1) / k)


def test_examples_that_both_arms_find_hard_cancel():
    generator = np.random.default_rng(5)
    hard = generator.random(2000)
    arms = [(generator.random((3, 2000)) < hard).astype(float) for _ in range(2)]
    together = gap(*map(sample, arms))
    apart = gap(*(Sample(tuple(one.mean(1)), one, name) for one, name in zip(arms, "ab", strict=True)))
    assert together.examples < 0.1 * apart.examples
    assert apart.examples == pytest.approx(2 * hard.var() / 2000, rel=0.1)


def test_spreads_of_other_arms_add_degrees_of_freedom():
    baseline, arm = Sample((0.93, 0.925, 0.934)), Sample((0.91, 0.912, 0.905))
    alone, pooled = gap(baseline, arm), gap(baseline, arm, [Spread(2e-5, 2, "one"), Spread(1.5e-5, 2, "other")])
    assert pooled.df > alone.df
    assert pooled.borrowed == ("one", "other")


def test_an_arm_that_spreads_far_more_is_not_pooled_with_the_others():
    calm, wild = (0.930, 0.931, 0.9305, 0.9303, 0.9309), (0.90, 0.80, 0.95, 0.70, 0.85)
    found = gap(Sample(calm), Sample(wild), [Spread(1e-6, 8, "others")])
    assert found.error >= math.sqrt(np.var(calm, ddof=1) / 5 + np.var(wild, ddof=1) / 5)
    assert found.borrowed == ()


@given(SCORES, SCORES, st.floats(0.8, 0.99))
@settings(max_examples=50, deadline=None)
def test_the_interval_holds_just_the_values_that_p_does_not_reject(baseline, arm, level):
    found = gap(Sample(tuple(baseline)), Sample(tuple(arm)))
    bounds = found.interval(level)
    if bounds is None or found.error < 1e-9:
        return
    for end in bounds:
        assert found.p(end) == pytest.approx(1 - level, abs=1e-6)


def test_other_arms_lend_no_more_degrees_of_freedom_than_a_pair_has_itself():
    pair = Sample((0.92, 0.93, 0.94)), Sample((0.90, 0.91, 0.92))
    few, many = (gap(*pair, [Spread(1e-4, df, "others")]) for df in (4, 400))
    assert few.df == pytest.approx(many.df, rel=0.3)
    assert gap(*pair).df < few.df


def test_a_calibration_joins_only_the_arm_of_its_recipe():
    calm = Sample((0.93, 0.931), calibrated=Spread(1e-6, 10, "calm"))
    wild = Sample((0.90, 0.92), calibrated=Spread(4e-4, 10, "wild"))
    found = gap(calm, wild)
    assert found.error**2 == pytest.approx(4e-4 / 2, rel=0.8)
    assert set(found.borrowed) == {"calm", "wild"}


def test_seeds_that_do_not_differ_at_all_measure_no_spread():
    found = gap(Sample((0.93, 0.93)), Sample((0.91, 0.91)))
    assert (found.interval(), found.p()) == (None, None)


@given(st.floats(-0.2, 0.2), st.floats(0.001, 0.05), st.integers(1, 20), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_an_agreeing_further_seed_never_widens_the_interval(delta, sd, df, k):
    others = [Spread(sd**2, df, "elsewhere")]
    few, more = (gap(Sample((0.9,) * n), Sample((0.9 + delta,) * n), others).interval() for n in (k, k + 1))
    assert more[1] - more[0] <= few[1] - few[0] + 1e-12


@given(SCORES, SCORES)
@settings(max_examples=30, deadline=None)
def test_exchanging_the_arms_changes_the_sign_and_nothing_else(baseline, arm):
    one, other = (
        gap(Sample(tuple(a)), Sample(tuple(b)), [Spread(1e-4, 3)]) for a, b in ((baseline, arm), (arm, baseline))
    )
    assert one.value == pytest.approx(-other.value)
    assert (one.error, one.df) == pytest.approx((other.error, other.df))


def test_the_mean_over_data_sets_has_the_variance_of_a_mean():
    made = [gap(Sample((0.9, 0.91, 0.92)), Sample((0.88, 0.9, 0.89))), gap(Sample((0.7, 0.72)), Sample((0.71, 0.7)))]
    found = mean_of(made)
    assert found.value == pytest.approx((made[0].value + made[1].value) / 2)
    assert found.error == pytest.approx(math.hypot(made[0].error, made[1].error) / 2)
    assert mean_of([made[0], gap(Sample((0.9,)), Sample((0.8,)))]).interval() is None


# -- many comparisons, targets -----------------------------------------------------------------------------------------


def test_holm_steps_down_and_never_lets_a_larger_p_become_smaller():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01], size=5) == pytest.approx([0.05])  # what a study planned counts, done or not
    assert holm([None, 0.5, 0.9]) == [None, 1.0, 1.0]


@pytest.mark.parametrize(("sd", "distance"), [(0.01, 0.02), (0.01, 0.005), (0.003, 0.01)])
def test_the_seeds_that_would_decide_are_the_fewest_that_the_formula_allows(sd, distance):
    def enough(k):
        need = stats.t.ppf(0.95, k - 1) + stats.t.ppf(0.8, k - 1)
        return need**2 * sd**2 <= k * distance**2

    found = seeds_to_decide(sd**2, 0.0, distance)
    assert enough(found)
    assert found == 2 or not enough(found - 1)


def test_where_the_examples_alone_hide_a_target_no_number_of_seeds_decides():
    noise = (0.01 / 2.4865) ** 2  # 1.6449 + 0.8416 standard errors are one point
    assert resolved_by_examples(noise) == pytest.approx(0.01, rel=1e-3)
    assert seeds_to_decide(1e-6, noise, 0.0099) is None
    assert seeds_to_decide(1e-6, noise, 0.02) is not None


# -- runs without a score ----------------------------------------------------------------------------------------------


@given(st.permutations(range(8)), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_ranks_are_tested_as_scipy_does(values, k):
    arm, baseline = [float(v) for v in values[:k]], [float(v) for v in values[k:]]
    reference = stats.mannwhitneyu(arm, baseline, method="exact").pvalue
    assert rank_test(baseline, arm).p == pytest.approx(reference)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=8), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_equal_scores_share_their_ranks_as_in_scipy(values, k):
    baseline, arm = [float(v) for v in values[k:]], [float(v) for v in values[:k]]
    ranks = stats.rankdata([*baseline, *arm])
    away = [abs(sum(way) - k * (len(ranks) + 1) / 2) for way in itertools.combinations(ranks, k)]
    seen = abs(sum(ranks[-k:]) - k * (len(ranks) + 1) / 2)
    assert rank_test(baseline, arm).p == pytest.approx(sum(one >= seen - 1e-9 for one in away) / len(away))


def test_a_run_that_diverged_is_the_worst_and_opens_the_interval():
    baseline, arm = [1.70, 1.71, 1.72, 1.73, 1.74], [1.60, 1.61, 1.62, math.inf, math.inf]
    found = rank_test(baseline, arm)
    assert found.p > 0.05
    assert found.interval[0] < 0 < found.interval[1] == math.inf
    assert rank_test(baseline, [1.60, 1.61, 1.62, 1.63, 1.64]).p < 0.05


def test_two_runs_that_diverged_are_as_bad_as_one_another():
    assert rank_test([math.inf, math.inf], [math.inf, math.inf]).p == 1.0


def test_runs_that_never_reach_a_mark_move_the_median():
    assert time_to_reach([100.0, 200.0, 300.0], [500.0] * 3).median == 200
    found = time_to_reach([100.0, 200.0, None, None], [500.0] * 4)
    assert (found.median, found.reached, found.runs) == (200, 2, 4)
    assert time_to_reach([100.0, None, None], [500.0] * 3).median is None
    # Kaplan-Meier by hand: one run was only watched for 150 steps, so two remain when 200 is reached
    assert time_to_reach([100.0, None, 200.0, None], [500.0, 150.0, 500.0, 500.0]).median == 200


# -- two trained models ------------------------------------------------------------------------------------------------


def test_mcnemar_of_ten_to_two_is_the_binomial_tail():
    by_hand = 2 * sum(math.comb(12, k) for k in range(3)) / 2**12
    assert mcnemar(10, 2, 100).p == pytest.approx(by_hand)
    assert mcnemar(0, 0, 100).p == 1.0


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_mcnemar_is_the_binomial_test_of_scipy(only_baseline, only_arm):
    assume(only_baseline + only_arm)
    found, differing = mcnemar(only_baseline, only_arm, 200), only_baseline + only_arm
    reference = stats.binomtest(only_arm, differing, 0.5)
    assert found.p == pytest.approx(reference.pvalue)
    ends = [(2 * end - 1) * differing / 200 for end in reference.proportion_ci(0.95)]
    assert list(found.interval) == pytest.approx(ends, abs=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_mcnemars_interval_excludes_zero_just_when_its_p_says_so(one, other):
    found = mcnemar(one, other, 200)
    low, high = found.interval
    assert (low > 0 or high < 0) == (found.p < 0.05)
    assert low <= (other - one) / 200 <= high
    assert mcnemar(other, one, 200).p == pytest.approx(found.p)


def test_sixteen_sentences_of_872_are_significant_only_up_to_58_disagreements():
    low, high, last = mcnemar_range(60, 76, 872)
    assert low == pytest.approx(2 * 0.5**16)
    assert high == pytest.approx(0.2, abs=0.01)
    assert last == 58


def test_two_models_on_the_same_examples_are_a_paired_t():
    generator = np.random.default_rng(1)
    baseline = generator.normal(3, 0.2, 80)
    arm = baseline + generator.normal(0.03, 0.1, 80)
    found, reference = paired_difference(baseline, arm), stats.ttest_rel(arm, baseline)
    assert found.p() == pytest.approx(reference.pvalue)
    assert found.interval() == pytest.approx(tuple(reference.confidence_interval(0.95)))


# -- time per step -----------------------------------------------------------------------------------------------------


def test_neighbours_in_time_are_paired_not_the_first_with_the_first():
    """A machine slows down for an hour: by order of start one arm looks 1.9 times as slow, by neighbours not at all."""
    quick, slow = 0.05, 0.095
    baseline = [(0.0, quick), (10.0, quick), (20.0, quick), (1010.0, slow)]
    arm = [(30.0, quick), (1000.0, slow), (1020.0, slow), (1030.0, slow)]
    assert neighbours(baseline, arm) == [(quick, quick), (slow, slow)]
    found = step_time_ratio(neighbours(baseline, arm))
    assert math.exp(found.value) == pytest.approx(1.0)


def test_runs_in_turns_are_all_paired():
    baseline, arm = [(1.0, 0.28), (3.0, 0.34), (5.0, 0.35)], [(6.0, 0.33), (2.0, 0.33), (4.0, 0.32)]
    assert neighbours(baseline, arm) == [(0.28, 0.33), (0.34, 0.32), (0.35, 0.33)]
    logs = np.log([0.33 / 0.28, 0.32 / 0.34, 0.33 / 0.35])
    found = step_time_ratio(neighbours(baseline, arm))
    assert found.p() == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert step_time_ratio([(0.28, 0.33)]) is None


def test_the_noise_floor_covers_most_pairs_of_identical_work():
    generator = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        ratios = np.exp(generator.normal(0, 0.03, 9))
        inside += abs(math.log(ratios[-1])) < math.log1p(noise_floor(list(ratios[:-1])))
    assert 0.92 < inside / 400 < 0.98
    assert noise_floor([1.01]) is None


def test_a_trend_is_a_change_that_never_turns():
    assert trend([0.2774, 0.3366, 0.3514]) == pytest.approx(0.3514 / 0.2774 - 1)
    assert trend([0.33, 0.32, 0.33]) is None
    assert trend([0.3, 0.4]) is None
