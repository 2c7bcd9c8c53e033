"""How fast this processor multiplies and reads and writes, measured in a fraction of a second, without torch.

What a training step does besides products changes numbers in place, or writes some that a cache still holds: memory is
read for half as many bytes again where something new is written, so a copy would look too slow.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import NamedTuple

SIDE = 1024
ADDED = 16 << 20
"""Numbers of four bytes: more than any cache holds."""
ROUNDS = 5


class ProcessorSpeed(NamedTuple):
    """Of all cores together, when nobody else uses them: measured in CPU time, so others' load weighs little."""

    flops: float
    bandwidth: float
    cores: int

    def of(self, cores: int) -> ProcessorSpeed:
        """Of so many of them."""
        return ProcessorSpeed(self.flops * cores / self.cores, self.bandwidth * cores / self.cores, cores)


@functools.cache
def processor_speed() -> ProcessorSpeed:
    """Of the cores that this process may use, measured once a process."""
    return measure_speed()


def measure_speed() -> ProcessorSpeed:
    """The same, measured now."""
    import numpy as np

    count = len(os.sched_getaffinity(0))
    left, right = np.ones((SIDE, SIDE), np.float32), np.ones((SIDE, SIDE), np.float32)
    product = np.empty_like(left)
    term = np.ones(ADDED, np.float32)
    total = np.ones_like(term)
    multiplying = _least(lambda: np.matmul(left, right, out=product))
    adding = _least(lambda: np.add(total, term, out=total))
    return ProcessorSpeed(2 * SIDE**3 / multiplying * count, 3 * term.nbytes / adding * count, count)


def _least(work: Callable[[], object]) -> float:
    """CPU seconds of all threads: the least of some rounds, for noise only adds."""
    work()
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return max(min(taken), 1e-6)
