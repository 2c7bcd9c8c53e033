"""The learning rate at each optimiser step, as a factor of the preset's; never counted in micro-batches."""

from __future__ import annotations

import math

from oelm_core.config import Train


def warmup_steps(train: Train, total: int) -> int:
    if train.warmup_steps is not None:
        return train.warmup_steps
    return int((train.warmup_ratio or 0.0) * total)


def rate(train: Train, step: int, total: int) -> float:
    """Factor for step 1..total. Like transformers' schedules: step k uses the factor after k - 1 steps.

    So with warm-up the first step has rate 0, and the rate would reach 0 right after the last step.
    """
    done = step - 1
    warmup = warmup_steps(train, total)
    if done < warmup:
        return done / warmup
    if train.schedule == "constant":
        return 1.0
    progress = min(1.0, (done - warmup) / max(1, total - warmup))
    if train.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress
