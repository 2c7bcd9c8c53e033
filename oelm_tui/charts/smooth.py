"""Smoothing: an exponential mean that starts unbiased, steps over gaps, and grows with its data."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from oelm_tui.charts.reduce import NUMPY_FROM

BLOCK = 64
WEIGHTS = (0.0, 0.6, 0.9, 0.97, 0.99)
"""0 is no smoothing; a weight w averages over about 1 / (1 - w) points."""
SPANS = 20
"""So many times must that fit into a curve for its course to survive."""


def fitting_weight(points: int) -> float:
    """The strongest smoothing that a curve of so many points stands.

    >>> [fitting_weight(points) for points in (30, 100, 500, 1000, 5000)]
    [0.0, 0.6, 0.9, 0.97, 0.99]
    """
    return max(weight for weight in WEIGHTS if not weight or SPANS / (1 - weight) <= points + 0.5)


class Smoother:
    """Keeps its sums, so a column that grew by ten values costs ten values."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.values = array("d")
        self._mean = 0.0
        self._debias = 0.0

    def extend_to(self, ys: Sequence[float]) -> array[float]:
        """The smoothed column for ys; non-finite values stay as they are and do not spread."""
        if len(ys) < len(self.values):  # a resume cut the file: start over
            self.values, self._mean, self._debias = array("d"), 0.0, 0.0
        new = ys[len(self.values) :]
        if len(new) >= NUMPY_FROM:
            self._extend_blocks(new)
        else:
            self._extend_plain(new)
        return self.values

    def _extend_plain(self, new: Sequence[float]) -> None:
        weight, mean, debias = self.weight, self._mean, self._debias
        append, isfinite = self.values.append, math.isfinite
        for y in new:
            if isfinite(y):
                mean = weight * mean + (1 - weight) * y
                debias = weight * debias + (1 - weight)
                append(mean / debias)
            else:
                append(y)
        self._mean, self._debias = mean, debias

    def _extend_blocks(self, new: Sequence[float]) -> None:
        """The same recurrence, 64 values at a time as one product with its triangular matrix of weights."""
        import numpy as np

        values = np.array(new, dtype=np.float64)
        finite = np.isfinite(values)
        clean = values[finite]
        whole = len(clean) // BLOCK * BLOCK
        if whole:
            lag = np.subtract.outer(np.arange(BLOCK), np.arange(BLOCK))
            triangle = np.where(lag >= 0, (1 - self.weight) * self.weight ** np.maximum(lag, 0), 0.0)
            decay = self.weight ** np.arange(1, BLOCK + 1)
            partial = clean[:whole].reshape(-1, BLOCK) @ triangle.T
            carried = np.empty(len(partial))
            mean = self._mean
            for block, end in enumerate(partial[:, -1].tolist()):
                carried[block] = mean
                mean = end + float(decay[-1]) * mean
            means = (partial + carried[:, None] * decay).ravel()
            left_over = (1 - self._debias) * self.weight ** np.arange(1, whole + 1)
            smooth = means / (1 - left_over)
            self._mean, self._debias = mean, 1 - float(left_over[-1])
        else:
            smooth = np.empty(0)
        tail = Smoother(self.weight)
        tail._mean, tail._debias = self._mean, self._debias
        tail._extend_plain(clean[whole:].tolist())
        self._mean, self._debias = tail._mean, tail._debias
        values[finite] = np.concatenate((smooth, np.array(tail.values)))
        self.values.frombytes(values.tobytes())
