"""Work of numpy's shared out among as many threads as torch has.

Not torch's own: it shares that out itself, and threads of Python that hand it small pieces wait for the interpreter
more than they gain (a demo-sized step was an eighth slower so).
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Unit = TypeVar("Unit")
_mine = threading.local()
"""`.shared` is set in threads of the pool, which never hand work on: all of them might wait for one another."""


def on_all_threads(work: Callable[[Unit], None], units: Sequence[Unit]) -> None:
    """Does the work for every unit; each is done by one thread alone, which takes the next one when it is through."""
    # More threads than cores would only take turns.
    threads = 1 if hasattr(_mine, "shared") else min(torch.get_num_threads(), len(os.sched_getaffinity(0)))
    if min(threads, len(units)) <= 1:
        for unit in units:
            work(unit)
        return
    for _ in _pool(os.getpid(), threads).map(work, units):
        pass


@functools.lru_cache(maxsize=1)
def _pool(_process: int, threads: int) -> ThreadPoolExecutor:
    """A process that was forked needs others."""
    return ThreadPoolExecutor(threads, "share", lambda: setattr(_mine, "shared", True))
