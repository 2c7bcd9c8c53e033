"""Validation figures: losses averaged over examples or tokens, not batches; accuracy, F1, Matthews, perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HIGHER = {"accuracy", "f1", "matthews"}


@dataclass(frozen=True)
class Evaluation:
    """Figures of one evaluation, and what paired tests need: per-example predictions or per-sequence losses."""

    values: dict[str, float]
    kind: str  # "predictions" | "losses": the folder the details go to
    details: dict[str, Any] = field(default_factory=dict)


def direction(metric: str) -> str:
    return "higher" if metric in HIGHER else "lower"


def better(metric: str, value: float, than: float | None) -> bool:
    """Strictly better, so that of equal evaluations the earlier stays the best. NaN is better than nothing at all."""
    if than is None or math.isnan(than):
        return True
    return value > than if direction(metric) == "higher" else value < than


def confusion(labels: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Counts `[classes, classes]`: rows are labels, columns predictions."""
    return np.bincount(labels * classes + predictions, minlength=classes * classes).reshape(classes, classes)


def f1(labels: np.ndarray, predictions: np.ndarray, classes: int) -> float:
    """F1 of class 1 when there are two classes, else the mean over classes (macro). A class never seen counts 0."""
    table = confusion(labels, predictions, classes)
    hit = np.diag(table).astype(float)
    size = table.sum(0) + table.sum(1)
    each = np.divide(2 * hit, size, out=np.zeros(classes), where=size > 0)
    return float(each[1]) if classes == 2 else float(each.mean())


def matthews(labels: np.ndarray, predictions: np.ndarray, classes: int) -> float:
    """Matthews correlation for any number of classes; 0 when one side is constant."""
    table = confusion(labels, predictions, classes).astype(float)
    count, correct = table.sum(), np.trace(table)
    predicted, true = table.sum(0), table.sum(1)
    covariance = correct * count - predicted @ true
    spread = math.sqrt((count**2 - predicted @ predicted) * (count**2 - true @ true))
    return float(covariance / spread) if spread else 0.0


def classification(labels: np.ndarray, predictions: np.ndarray, losses: np.ndarray, classes: int) -> dict[str, float]:
    """Figures of one split; `losses` are per example, so every example weighs the same."""
    return {
        "loss": float(np.asarray(losses, np.float64).mean()),
        "accuracy": float((labels == predictions).mean()),
        "f1": f1(labels, predictions, classes),
        "matthews": matthews(labels, predictions, classes),
    }


def language(sums: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """Loss per token and perplexity from summed losses and token counts of sequences."""
    loss = float(np.asarray(sums, np.float64).sum() / tokens.sum())
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
