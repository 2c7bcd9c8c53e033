"""Which examples step k sees: a pure function of (number of examples, seed, k), accumulation included."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oelm_core.config.limits import steps_in_epochs


@dataclass(frozen=True)
class Plan:
    """Steps are counted from 1. Each epoch is a fresh permutation; its last step may be smaller, as it must end."""

    examples: int
    batch_size: int
    accumulate: int
    seed: int

    @property
    def effective_batch(self) -> int:
        return self.batch_size * self.accumulate

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.examples / self.effective_batch)

    def total_steps(self, max_steps: int | None, epochs: float | None) -> int:
        return max_steps if max_steps is not None else steps_in_epochs(epochs or 0, self.examples, self.effective_batch)

    def step(self, step: int) -> np.ndarray:
        """The examples of one optimiser step, in order."""
        epoch, within = divmod(step - 1, self.steps_per_epoch)
        start = within * self.effective_batch
        return permutation(self.examples, self.seed, epoch)[start : start + self.effective_batch]

    def micro_batches(self, step: int) -> list[np.ndarray]:
        """The same examples cut into forward passes."""
        chosen = self.step(step)
        return [chosen[start : start + self.batch_size] for start in range(0, len(chosen), self.batch_size)]


@lru_cache(maxsize=3)
def permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed & (2**63 - 1), epoch]))).permutation(count)


def share(chosen: np.ndarray, rank: int, world: int) -> np.ndarray:
    """A rank's part of a forward pass: contiguous, sizes differing by one at most."""
    return np.array_split(chosen, world)[rank]
