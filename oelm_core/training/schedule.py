"""What step k is: its examples, its random draws, its learning rate. Pure functions of the recipe, the seed and k.

So a resume needs no iterator and no generator state, and two arms of one seed see the same batches in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from oelm_core.config import Train
from oelm_core.config.limits import steps_in_epochs

# -- the learning rate -------------------------------------------------------------------------------------------------


def learning_rate(train: Train, step: int, total: int) -> float:
    """The rate at optimiser step 1..total; never counted in micro-batches.

    Like transformers' schedules: step k uses the factor after k - 1 steps. So with warm-up the first step has rate 0,
    and the rate would reach 0 right after the last step.
    """
    return train.lr * _lr_factor(train, step - 1, total)


def _lr_factor(train: Train, done: int, total: int) -> float:
    warmup = lr_warmup_steps(train, total)
    if done < warmup:
        return done / warmup
    if train.schedule == "constant":
        return 1.0
    progress = min(1.0, (done - warmup) / max(1, total - warmup))
    if train.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress


def lr_warmup_steps(train: Train, total: int) -> int:
    """Steps in which the rate grows to the recipe's."""
    if train.warmup_steps is not None:
        return train.warmup_steps
    return int((train.warmup_ratio or 0.0) * total)


# -- examples ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchPlan:
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
        return _permutation(self.examples, self.seed, epoch)[start : start + self.effective_batch]

    def micro_batches(self, step: int) -> list[np.ndarray]:
        """The same examples cut into forward passes."""
        return in_batches(self.step(step), self.batch_size)


@lru_cache(maxsize=3)
def _permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed & (2**63 - 1), epoch]))).permutation(count)


def in_batches(chosen: np.ndarray, size: int) -> list[np.ndarray]:
    return [chosen[start : start + size] for start in range(0, len(chosen), size)]


def share(chosen: np.ndarray, rank: int, world: int) -> np.ndarray:
    """A rank's part of a forward pass: contiguous, sizes differing by one at most."""
    return np.array_split(chosen, world)[rank]


# -- random draws ------------------------------------------------------------------------------------------------------


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """What a step's draws are seeded with."""
    return int(np.random.SeedSequence([seed & (2**63 - 1), step, rank, 0x0E1A]).generate_state(1, np.uint64)[0] >> 1)


def seed_draws(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for one device; its care for those not in use takes a millisecond of every step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
