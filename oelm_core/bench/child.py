"""One variant in a process of its own: makes it, runs it when told, says what it took.

Spoken to by variants.py over a pipe: {"make": "module:function", "with": {...}}, {"run": n}, {"peak": true}. What is
made has an `about` and can be called, or is a dictionary that says it all.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

LIBRARIES = (
    "torch",
    "transformers.models.gpt2.modeling_gpt2",
    "oelm_core.models.gpt",
    "oelm_core.models.bert",
    "oelm_core.method.freezing",
    "oelm_core.data.packing",
)
"""What variants need. Imported before their memory is counted, and once for all of them where they are forked."""


SAID = "said.txt"


def serve(orders: Connection, scratch: str, threads: int) -> None:
    """Answers until the other end hangs up. Temporary files, and SAID with what is printed, go into `scratch`."""
    if not os.path.isdir(scratch):
        return  # whoever asked for this process left before it began
    tempfile.tempdir = scratch
    with open(os.path.join(scratch, SAID), "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for module in LIBRARIES:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(threads)
    held = _status("RssAnon")
    running: Any = None
    while True:
        try:
            command = orders.recv()
        except EOFError:
            break
        try:
            if "make" in command:
                running = find(command["make"])(**command["with"])
                answer: dict[str, Any] = {"about": running if isinstance(running, dict) else running.about}
            elif "run" in command:
                answer = {"times": [_timed(running) for _ in range(command["run"])]}
            else:
                answer = _peak(held)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        orders.send(answer)


def find(path: str) -> Callable[..., Any]:
    """The function that `module:name` stands for."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _timed(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a step: CPU time of all threads, wall clock, and device events where there is a GPU.

    A variant whose call makes several steps has their number as `steps`.
    """
    import torch

    cuda = torch.cuda.is_available()
    if cuda:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        marks[0].record()
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    if cuda:
        marks[1].record()
        torch.cuda.synchronize()
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    if cuda:
        taken["device"] = marks[0].elapsed_time(marks[1]) / 1000
    steps = getattr(run, "steps", 1)
    return {clock: value / steps for clock, value in taken.items()}


def _peak(held: int) -> dict[str, int]:
    """Bytes: the process's highest, the same above what it `held` before, and the GPU's highest.

    Pages of library files that running the variant touched are not its own, and do not count.
    """
    import torch

    highest = _status("VmHWM")
    found = {"host": highest, "above": highest - _status("RssFile") - held}
    if torch.cuda.is_available():
        found["device"] = torch.cuda.max_memory_allocated()
    return found


def _status(key: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0
