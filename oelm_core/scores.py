"""Scores of classifiers, each a function of confusion tables: of one after an evaluation, of many in a bootstrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def confusion(labels: np.ndarray, predictions: np.ndarray, classes: int) -> Floats:
    """Counts `[classes, classes]`: rows are labels, columns predictions."""
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.float64)


def accuracy(table: Floats) -> Floats:
    share: Floats = _correct(table) / table.sum((-2, -1))
    return share


def f1(table: Floats) -> Floats:
    """F1 of class 1 when there are two classes, else the mean over classes (macro). A class never seen counts 0."""
    hit, size = np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1) + table.sum(-2)
    each = _or_zero(2 * hit, size)
    return each[..., 1] if table.shape[-1] == 2 else each.mean(-1)


def matthews(table: Floats) -> Floats:
    """Matthews correlation for any number of classes; 0 when one side is constant."""
    count, true, predicted = table.sum((-2, -1)), table.sum(-1), table.sum(-2)
    covariance = _correct(table) * count - (true * predicted).sum(-1)
    spread = np.sqrt((count**2 - (predicted**2).sum(-1)) * (count**2 - (true**2).sum(-1)))
    return _or_zero(covariance, spread)


SCORES: dict[str, Callable[[Floats], Floats]] = {"accuracy": accuracy, "f1": f1, "matthews": matthews}
"""By the names in oelm_core/metric.py: confusion tables `[..., classes, classes]` -> values `[...]`."""


def _correct(table: Floats) -> Floats:
    correct: Floats = np.trace(table, axis1=-2, axis2=-1)
    return correct


def _or_zero(numerator: Floats, denominator: Floats) -> Floats:
    """Their quotient, 0 where nothing is divided by."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)
