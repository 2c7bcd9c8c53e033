"""Our tails and quantiles are scipy's, which is too slow to load for every comparison."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from oelm_core.compare.distributions import (
    beta_cdf,
    beta_quantile,
    f_upper,
    fair_coins,
    normal_quantile,
    t_quantile,
    t_two_sided,
)

degrees = st.floats(0.5, 20_000)
shares = st.floats(1e-9, 1 - 1e-9)


def close(expected: float, digits: float = 1e-8) -> object:
    return pytest.approx(float(expected), rel=digits, abs=1e-290)


@given(t=st.floats(-200, 200), df=degrees)
@example(t=2.0**-24, df=32.0)
def test_both_tails_of_t_are_scipys_also_far_out(t, df):
    assert t_two_sided(t, df) == close(2 * special.stdtr(df, -abs(t)))


@given(share=shares, df=degrees)
def test_quantiles_of_t_are_scipys(share, df):
    found = t_quantile(share, df)
    assert found == pytest.approx(float(special.stdtrit(df, share)), rel=1e-7, abs=1e-7)
    assert t_quantile(1 - share, df) == pytest.approx(-found, rel=1e-6, abs=1e-6)


@given(first=degrees, second=degrees, ratio=st.floats(1e-6, 1e6))
def test_the_upper_tail_of_f_is_scipys(first, second, ratio):
    expected = float(special.fdtrc(first, second, ratio))
    assert f_upper(first, second, ratio) == pytest.approx(expected, rel=1e-7, abs=1e-12)


@given(coins=st.integers(1, 4000), share=st.floats(0, 1))
def test_heads_among_fair_coins_are_scipys(coins, share):
    most = round(share * coins)
    assert fair_coins(most, coins) == close(special.bdtr(most, coins, 0.5))


def test_few_coins_are_counted_exactly():
    assert fair_coins(2, 5) == pytest.approx((1 + 5 + 10) / 32, rel=1e-14)
    assert fair_coins(5, 5) == 1.0
    assert fair_coins(0, 3) == pytest.approx(1 / 8, rel=1e-14)


@given(a=st.integers(1, 3000), b=st.integers(1, 3000), share=st.floats(1e-6, 1 - 1e-6))
def test_a_quantile_of_beta_gives_its_share_back(a, b, share):
    found = beta_quantile(a, b, share)
    assert found == pytest.approx(float(special.betaincinv(a, b, share)), rel=1e-8)
    assert beta_cdf(a, b, found) == pytest.approx(share, rel=1e-8)


@given(share=shares)
def test_the_normal_quantile_is_scipys(share):
    assert normal_quantile(share) == pytest.approx(float(special.ndtri(share)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("share", [0.025, 0.3, 0.5, 0.7, 0.975])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.5, 3.0), (40.0, 0.5), (0.3, 0.7)])
def test_a_quantile_of_beta_is_scipys_also_where_it_is_steep_at_an_end(a, b, share):
    assert beta_quantile(a, b, share) == pytest.approx(float(special.betaincinv(a, b, share)), rel=1e-9)


def test_the_ends_are_the_ends():
    assert (beta_quantile(2, 3, 0.0), beta_quantile(2, 3, 1.0), t_quantile(1.0, 4.0)) == (0.0, 1.0, math.inf)
    assert (beta_cdf(2, 3, 0.0), beta_cdf(2, 3, 1.0)) == (0.0, 1.0)
    assert t_quantile(0.5, 4.0) == 0.0
    assert f_upper(3, 4, 0.0) == 1.0
    assert t_two_sided(math.inf, 4.0) == 0.0
