"""Work shared out among torch's threads in whole pieces, each done by one thread from beginning to end.

torch shares every single product among all threads, which wait for one another at each: for many small ones that costs
more than it brings, and on a busy machine all wait for a thread that has no core.
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
    threads = own_threads()
    if min(threads, len(units)) <= 1:
        for unit in units:
            work(unit)
        return
    for _ in _pool(os.getpid(), threads).map(work, units):
        pass


def own_threads() -> int:
    """As many as torch has, but no more than there are cores: more of them would only take turns."""
    return 1 if hasattr(_mine, "shared") else min(torch.get_num_threads(), len(os.sched_getaffinity(0)))


@functools.lru_cache(maxsize=1)
def _pool(_process: int, threads: int) -> ThreadPoolExecutor:
    """Threads whose own products take one thread each. A process that was forked needs others."""
    started, before = threading.Barrier(threads + 1), torch.get_num_threads()

    def begin() -> None:
        _mine.shared = True
        torch.get_num_threads()  # the first look takes over the process's number, and would undo the next line
        torch.set_num_threads(1)  # this thread's own: OpenMP keeps the number for each
        torch.set_grad_enabled(False)
        started.wait()

    pool = ThreadPoolExecutor(threads, "share", begin)
    try:
        for _ in range(threads):
            pool.submit(int)
    except RuntimeError:  # no more threads are to be had: those that wait here must not wait for ever
        started.abort()
        raise
    started.wait()
    torch.set_num_threads(before)  # for threads that begin later; ours has it still
    return pool
