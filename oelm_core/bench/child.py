"""One variant in a process of its own: makes it, runs it when told, says what it took. Commands are JSON lines.

`python -m oelm_core.bench.child`, spoken to by variants.py: {"make": "module:function", "with": {...}}, {"run": n},
{"peak": true}. What the variant prints goes to stderr, so that answers stay alone on stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    running: Callable[[], Any] | None = None
    resident = 0
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "make" in command:
                import torch

                torch.set_num_threads(int(command["threads"]))
                for module in command["imports"]:
                    importlib.import_module(module)
                maker = _find(command["make"])
                resident = _status("VmRSS")
                running = maker(**command["with"])
                answer: dict[str, Any] = {"about": getattr(running, "about", {})}
            elif "run" in command and running is not None:
                answer = {"times": [_timed(running) for _ in range(command["run"])]}
            else:
                answer = _peak(resident)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


def _find(path: str) -> Callable[..., Any]:
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


def _peak(resident: int) -> dict[str, int]:
    """Bytes: the process's highest, the same above what it held before the model was made, and the GPU's highest."""
    import torch

    highest = _status("VmHWM")
    found = {"host": highest, "above": highest - resident}
    if torch.cuda.is_available():
        found["device"] = torch.cuda.max_memory_allocated()
    return found


def _status(key: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
