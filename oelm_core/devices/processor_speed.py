"""How fast this processor multiplies and reads and writes, measured in a fraction of a second, without torch.

What a training step does besides products changes numbers in place, or writes some that a cache still holds: memory is
read for half as many bytes again where something new is written, so a copy would look too slow.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

SIDE = 1024
ADDED = 16 << 20
"""Numbers of four bytes: more than any cache holds."""
ROUNDS = 5
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Read when numpy is loaded. Of several threads CPU time would count those that only wait, on a busy machine most."""


class ProcessorSpeed(NamedTuple):
    """So many cores together, as if each did what one does alone."""

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
    """The same, measured now: by the CPU time of one thread in a process of its own, so others' load weighs little."""
    command = [sys.executable, "-m", "oelm_core.devices.processor_speed"]
    ended = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    one = ProcessorSpeed(*json.loads(ended.stdout)) if ended.returncode == 0 else _one_core()
    return one.of(len(os.sched_getaffinity(0)))


def _one_core() -> ProcessorSpeed:
    import numpy as np

    left, right = np.ones((SIDE, SIDE), np.float32), np.ones((SIDE, SIDE), np.float32)
    product = np.empty_like(left)
    term = np.ones(ADDED, np.float32)
    total = np.ones_like(term)
    multiplying = _least(lambda: np.matmul(left, right, out=product))
    adding = _least(lambda: np.add(total, term, out=total))
    return ProcessorSpeed(2 * SIDE**3 / multiplying, 3 * term.nbytes / adding, cores=1)


def _least(work: Callable[[], object]) -> float:
    """CPU seconds of all threads: the least of some rounds, for noise only adds."""
    work()
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return max(min(taken), 1e-6)


if __name__ == "__main__":
    print(json.dumps(_one_core()))
