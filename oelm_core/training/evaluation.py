"""Validation: the batch size it runs at, and its figures: losses averaged over examples or tokens, accuracy, F1, ..."""

from __future__ import annotations

import contextlib
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
from oelm_core.training.failures import is_out_of_memory
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


ROOM = 1.25
"""Free memory that twice the batch must leave: the allocator's pieces and the libraries' workspaces want some too."""


class CardMemory:
    """What the card has left, and what a forward pass took of it. Nothing here waits for the card's work."""

    def begin(self) -> None:
        self._held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def taken(self) -> int:
        """Bytes that were in use at most since `begin`, beyond those held then."""
        return torch.cuda.max_memory_allocated() - self._held

    def free(self) -> int:
        """Bytes to be had: what no process has, and what our allocator keeps for the next tensor."""
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


class LargestBatch:
    """Evaluation at the largest batch that fits: on a GPU twice as many batches are joined as long as memory allows.

    What the last one took says whether twice as much fits; should a card run out all the same, half as many are joined
    from then on. Without a GPU it is one: `python -m benchmarks loop` shows what more would bring.
    """

    def __init__(self, most: int | None = None, memory: CardMemory | None = None) -> None:
        """most: batches joined at the utmost, however many fit."""
        self.joined = 1
        self._most = most if torch.cuda.is_available() else 1
        self._memory = memory or CardMemory()

    def over(self, batches: Sequence[np.ndarray], forward: Callable[[np.ndarray], T]) -> Iterator[tuple[np.ndarray, T]]:
        """(examples, what forward made of them) until every batch has been seen, as many at once as fit."""
        at = 0
        while at < len(batches):
            chosen = np.concatenate(batches[at : at + self.joined])
            may_grow = at + self.joined < len(batches) and (self._most is None or 2 * self.joined <= self._most)
            if may_grow:
                self._memory.begin()
            found = None
            try:
                found = forward(chosen)
            except RuntimeError as error:
                if self.joined == 1 or not is_out_of_memory(error):
                    raise
            if found is None:  # after the except, whose traceback would still hold the tensors
                self.joined = self._most = self.joined // 2
                torch.cuda.empty_cache()
                continue
            yield chosen, found
            at += self.joined
            if may_grow and 2 * ROOM * self._memory.taken() <= self._memory.free():
                self.joined *= 2


@torch.no_grad()
def forward_all(
    largest: LargestBatch,
    batches: list[np.ndarray],
    forward: Callable[[np.ndarray], Tensor],
    ranks: Ranks,
    stop: StopRequest,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(examples, what forward found of them) for all batches, which ranks share out.

    Raises Interrupted on every rank when a stop was asked of any of them.
    """

    def unless_stopped(chosen: np.ndarray) -> Tensor:
        if stop.number:
            raise Interrupted
        return forward(chosen)

    mine = None
    with contextlib.suppress(Interrupted):
        found = list(largest.over(batches[ranks.rank :: ranks.world], unless_stopped))
        mine = [(chosen, each.cpu().numpy()) for chosen, each in found]
    parts = ranks.gather(mine)
    if any(part is None for part in parts):
        raise Interrupted
    return [found for part in parts if part is not None for found in part]


def classification(labels: np.ndarray, predictions: np.ndarray, losses: np.ndarray, classes: int) -> dict[str, float]:
    """Figures of one split; `losses` are per example, so every example weighs the same."""
    table = confusion(labels, predictions, classes)
    scores = {name: float(score(table)) for name, score in SCORES.items()}
    return {"loss": float(np.asarray(losses, np.float64).mean()), **scores}


def language(sums: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """Loss per token and perplexity from summed losses and token counts of sequences."""
    loss = float(np.asarray(sums, np.float64).sum() / tokens.sum())
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
