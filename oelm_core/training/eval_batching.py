"""Evaluation at the largest batch that fits: on a GPU twice as many batches are joined each time, until too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")


class LargestBatch:
    """Remembers how many batches fit at once. Without a GPU one: `oelm bench loop` shows what more would bring."""

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
