"""Evaluation at the largest batch that fits: begun large on a GPU, halved when its memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

ON_GPU = 8
"""Batches joined at first. Without gradients a forward pass holds a small part of what training does."""

T = TypeVar("T")


class LargestBatch:
    """Remembers how many batches fit at once. Without a GPU one: more is no faster there, and sums stay the same."""

    def __init__(self, *, fixed: bool) -> None:
        """fixed: the recipe says how many examples, so batches are never joined."""
        self.joined = 1 if fixed or not torch.cuda.is_available() else ON_GPU

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
                torch.cuda.empty_cache()
                continue
            yield chosen, found
            at += self.joined
