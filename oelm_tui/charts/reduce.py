"""Many points to a few: the first, least, greatest and last value of each column, so spikes survive."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

NUMPY_FROM = 20_000
"""Below this many points plain Python is faster than importing numpy."""


class Bucket(NamedTuple):
    """What one column of dots holds: positions are sub-column numbers, values are finite."""

    column: int
    first: float
    low: float
    high: float
    last: float


def reduce(xs: Sequence[float], ys: Sequence[float], x0: float, x1: float, columns: int) -> list[Bucket]:
    """Buckets of the points with x0 <= x <= x1 and finite y, in order of column; empty columns are left out.

    xs ascend except where a clock jumped; both ways of counting below give the same buckets.
    """
    if columns < 1 or not x1 > x0 or len(xs) == 0:
        return []
    if len(xs) >= NUMPY_FROM:
        return _with_numpy(xs, ys, x0, x1, columns)
    return _plain(xs, ys, x0, x1, columns)


def _plain(xs: Sequence[float], ys: Sequence[float], x0: float, x1: float, columns: int) -> list[Bucket]:
    edges = [x0 + i * ((x1 - x0) / columns) for i in range(columns)]
    found: dict[int, list[float]] = {}
    isfinite = math.isfinite
    for x, y in zip(xs, ys):  # noqa: B905 - a column may be one longer while a record is being added
        if not x0 <= x <= x1 or not isfinite(y):
            continue
        column = min(bisect.bisect_right(edges, x) - 1, columns - 1)
        bucket = found.get(column)
        if bucket is None:
            found[column] = [y, y, y, y]
            continue
        if y < bucket[1]:
            bucket[1] = y
        elif y > bucket[2]:
            bucket[2] = y
        bucket[3] = y
    return [Bucket(column, *found[column]) for column in sorted(found)]


def _with_numpy(xs: Sequence[float], ys: Sequence[float], x0: float, x1: float, columns: int) -> list[Bucket]:
    import numpy as np

    size = min(len(xs), len(ys))
    x, y = np.asarray(xs)[:size].copy(), np.asarray(ys)[:size].copy()  # copies: a live column must stay resizable
    finite = np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    if (x[1:] < x[:-1]).any():  # a clock that jumped back: keep the file's order within equal places
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    edges = x0 + np.arange(columns + 1) * ((x1 - x0) / columns)
    places = np.searchsorted(x, edges, side="left")
    places[-1] = np.searchsorted(x, x1, side="right")
    column = np.flatnonzero(places[1:] > places[:-1])
    if not len(column):
        return []
    starts, ends = places[column], places[column + 1] - 1
    y = y[: places[-1]]
    parts = (column, y[starts], np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts), y[ends])
    return [Bucket(*values) for values in zip(*(part.tolist() for part in parts))]  # noqa: B905


def extent(values: Sequence[float]) -> tuple[float, float] | None:
    """Least and greatest finite value, or None when there is none."""
    if len(values) >= NUMPY_FROM:
        import numpy as np

        array = np.asarray(values).copy()
        finite = np.isfinite(array)
        array = array if finite.all() else array[finite]
        return (float(array.min()), float(array.max())) if len(array) else None
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else None


def value_at(xs: Sequence[float], ys: Sequence[float], x: float) -> tuple[float, float] | None:
    """The recorded point nearest to x (xs ascending)."""
    size = min(len(xs), len(ys))
    if not size:
        return None
    place = bisect.bisect_left(xs, x, 0, size)
    best = min((i for i in (place - 1, place) if 0 <= i < size), key=lambda i: abs(xs[i] - x))
    return xs[best], ys[best]
