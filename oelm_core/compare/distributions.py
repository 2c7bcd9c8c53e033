"""Tails and quantiles of Student's t, F, the binomial and the beta distribution, all by one incomplete beta function.

scipy.special has each, but loading it takes a fifth of `oelm compare`; the tests hold these against it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_NORMAL = NormalDist()


def beta_cdf(a: float, b: float, x: float) -> float:
    """The chance that a beta(a, b) is at most x: the regularised incomplete beta function, a and b above 0.

    >>> beta_cdf(2, 2, 0.5)
    0.5
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - _beta_tail(b, a, 1 - x)
    return _beta_tail(a, b, x)


def _beta_tail(a: float, b: float, x: float) -> float:
    """x^a (1-x)^b / (a B(a, b)) times a continued fraction, evaluated from its front (Lentz)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction = d
    for m in range(1, 20_000):
        odd, even = a + 2 * m - 1, a + 2 * m
        term = m * (b - m) * x / (odd * even)
        c, d = 1 + term / c or _TINY, 1 / (1 + term * d or _TINY)
        fraction *= c * d
        term = -(a + m) * (a + b + m) * x / (even * (even + 1))
        c, d = 1 + term / c or _TINY, 1 / (1 + term * d or _TINY)
        fraction *= (step := c * d)
        if step == 1:
            break
    return min(1.0, math.exp(_log_front(a, b, math.log(x), math.log1p(-x))) * fraction / a)


def _log_front(a: float, b: float, log_x: float, log_rest: float) -> float:
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * log_rest


def t_two_sided(t: float, df: float) -> float:
    """The chance that a Student's t of `df` degrees of freedom lies at least so far from 0, on either side."""
    near = t * t / (df + t * t)
    if near < 3 / (df + 5):  # 1 - near would round a small t away
        return 1 - beta_cdf(0.5, df / 2, near)
    return beta_cdf(df / 2, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def t_quantile(share: float, df: float) -> float:
    """The value that so large a share of Student's t lies below."""
    if share == 0.5:
        return 0.0
    if share < 0.5:
        return -t_quantile(1 - share, df)
    # In x = df / (df + t^2), between 0 and 1, the two-sided chance is a beta distribution's.
    x = beta_quantile(df / 2, 0.5, 2 * (1 - share))
    return math.sqrt(df * (1 - x) / x) if x > 0 else math.inf


def f_upper(first: float, second: float, ratio: float) -> float:
    """The chance that a ratio of variances of so many degrees of freedom is at least `ratio`."""
    return beta_cdf(second / 2, first / 2, second / (second + first * ratio)) if ratio > 0 else 1.0


def fair_coins(most: int, coins: int) -> float:
    """The chance of at most `most` heads among so many fair coins."""
    return 1.0 if most >= coins else beta_cdf(coins - most, most + 1, 0.5)


def normal_quantile(share: float) -> float:
    return _NORMAL.inv_cdf(share)


def beta_quantile(a: float, b: float, share: float) -> float:
    """The value that so large a share of a beta(a, b) lies below."""
    if not 0 < share < 1:
        return 0.0 if share <= 0 else 1.0
    if share > 0.5:
        return _logistic(-_beta_logit(b, a, 1 - share))
    return _logistic(_beta_logit(a, b, share))


def _beta_logit(a: float, b: float, share: float) -> float:
    """The logit of the value that a share of at most a half lies below, by Newton's steps on the log of the chance.

    The logit, since values next to 0 and next to 1 need as many digits as others. In it the log of the chance is
    concave, so that steps from below never pass the value; a step out of bounds is halved.
    """
    low, high = -740.0, 36.0  # 1e-321 and 1 - 2e-16
    z = math.log(a / b) + normal_quantile(share) * math.sqrt(1 / a + 1 / b)
    for _ in range(100):
        z = z if low < z < high else (low + high) / 2
        x = _logistic(z)
        chance = beta_cdf(a, b, x)
        low, high = (z, high) if chance < share else (low, z)
        slope = math.exp(_log_front(a, b, math.log(x), math.log1p(-x))) / chance if chance else 0.0
        step = math.log(chance / share) / slope if slope else math.inf
        z -= step
        if abs(step) < 1e-9:  # the next would be its square
            break
    return min(max(z, low), high)


def _logistic(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z > 0 else math.exp(z) / (1 + math.exp(z))
