"""Validation: the batch size it runs at, and its figures: losses averaged over examples or tokens, accuracy, F1, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from oelm_core.runs.schema import Losses, Predictions
from oelm_core.scores import SCORES, confusion
from oelm_core.training.distributed import Ranks
from oelm_core.training.precision import Precision
from oelm_core.training.supervision import Interrupted, StopRequest

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation:
    """Figures of one evaluation, and what paired tests need: per-example predictions or per-sequence losses."""

    values: dict[str, float]
    details: Predictions | Losses


@dataclass(frozen=True)
class TestText:
    """Text that a checkpoint is scored on once, and how."""

    __test__ = False  # pytest: not a class of tests

    source: str
    """A split's name, `held-out 0.1`, or a path."""
    examples: int
    fingerprint: str
    score: Callable[[nn.Module, Ranks, Precision, StopRequest], Evaluation]


class LargestBatch:
    """Evaluation at the largest batch that fits: on a GPU twice as many batches are joined each time, until too many.

    It remembers how many that were. Without a GPU it is one: `python -m benchmarks loop` shows what more would bring.
    """

    def __init__(self, most: int | None = None) -> None:
        """most: batches joined at the utmost, however many fit."""
        self.joined = 1
        self._most = most if torch.cuda.is_available() else 1

    def over(self, batches: Sequence[np.ndarray], forward: Callable[[np.ndarray], T]) -> Iterator[tuple[np.ndarray, T]]:
        """(examples, what forward made of them) until every batch has been seen, as many at once as fit."""
        at = 0
        while at < len(batches):
            chosen = np.concatenate(batches[at : at + self.joined])
            found = None
            try:
                found = forward(chosen)
            except torch.cuda.OutOfMemoryError:
                if self.joined == 1:
                    raise
            if found is None:  # after the except, whose traceback would still hold the tensors
                self.joined = self._most = self.joined // 2
                torch.cuda.empty_cache()
                continue
            yield chosen, found
            at += self.joined
            if at < len(batches) and (self._most is None or 2 * self.joined <= self._most):
                self.joined *= 2


@torch.no_grad()
def forward_all(
    largest: LargestBatch,
    batches: list[np.ndarray],
    forward: Callable[[np.ndarray], Tensor],
    ranks: Ranks,
    stop: StopRequest,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(examples, what forward found of them) for all batches, which ranks share out."""

    def unless_stopped(chosen: np.ndarray) -> Tensor:
        if stop.number and ranks.world == 1:
            raise Interrupted
        return forward(chosen)

    mine = list(largest.over(batches[ranks.rank :: ranks.world], unless_stopped))
    parts = ranks.gather([(chosen, found.cpu().numpy()) for chosen, found in mine])
    return [found for part in parts for found in part]


def classification(labels: np.ndarray, predictions: np.ndarray, losses: np.ndarray, classes: int) -> dict[str, float]:
    """Figures of one split; `losses` are per example, so every example weighs the same."""
    table = confusion(labels, predictions, classes)
    scores = {name: float(score(table)) for name, score in SCORES.items()}
    return {"loss": float(np.asarray(losses, np.float64).mean()), **scores}


def language(sums: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """Loss per token and perplexity from summed losses and token counts of sequences."""
    loss = float(np.asarray(sums, np.float64).sum() / tokens.sum())
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
