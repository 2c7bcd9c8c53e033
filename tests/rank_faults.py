"""Faults of one rank in the middle of training: `kill:1:3` is rank 1 killed at step 3."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any


def install(fault: str) -> None:
    """Has this process misbehave if it is the rank that is meant; closing its process group then never ends."""
    kind, rank, at = fault.split(":")
    if os.environ.get("RANK") != rank:
        return
    import torch.distributed as dist

    from oelm_core.training.loop import Loop

    dist.destroy_process_group = lambda *_: time.sleep(3600)  # as NCCL's does while a peer does not answer
    step_as_usual = Loop._step

    def step(self: Loop, number: int) -> None:
        if number == int(at):
            FAULTS[kind](self)
        step_as_usual(self, number)

    Loop._step = step  # type: ignore[method-assign]


def out_of_memory(loop: Any) -> None:
    import torch

    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def broken_card(loop: Any) -> None:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


def not_finite(loop: Any) -> None:
    as_usual = loop.s.task.loss
    loop.s.task.loss = lambda *arguments: as_usual(*arguments) * float("nan")


FAULTS: dict[str, Callable[[Any], None]] = {
    "kill": lambda loop: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda loop: os.kill(os.getpid(), signal.SIGSTOP),
    "oom": out_of_memory,
    "ecc": broken_card,
    "exit": lambda loop: sys.exit(3),
    "nonfinite": not_finite,
}
