"""Evaluation at the largest batch that fits: on a GPU twice as many batches are joined each time, until too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")


class LargestBatch:
    """Remembers how many batches fit at once. Without a GPU one: more is no faster there (`oelm bench loop`)."""

    def __init__(self, *, fixed: bool) -> None:
        """fixed: the recipe says how many examples, so batches are never joined."""
        self.joined = 1
        self._growing = torch.cuda.is_available() and not fixed

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
                self.joined //= 2
                self._growing = False
                torch.cuda.empty_cache()
                continue
            yield chosen, found
            at += self.joined
            if self._growing and at < len(batches):
                self.joined *= 2
