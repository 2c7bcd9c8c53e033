"""A pretend CUDA card for a machine without one: what a training step would ask of it, counted without computing.

`count_step("GPT-01")` runs the lab's own session, loop and task over tensors that have a device but no numbers. Each
call is a process of its own, for torch must find the card when it is imported; `count_steps` shares one among many.
At the command line: `python -m tests.pretend_cuda GPT-01 [train.precision=fp16 ...]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from oelm_core.config import Experiment, as_dict
from tests.pretend_cuda.library import missing

__all__ = ["A5000", "Capability", "Case", "StepCount", "ask_child", "count_step", "count_steps", "missing"]

Capability = tuple[int, int]
A5000: Capability = (8, 6)


@dataclass(frozen=True)
class StepCount:
    """One optimiser step of one process. A function of torch that runs on the card is one launch, however many kernels
    it takes: multi-tensor functions (`_foreach_...`, fused AdamW) count once."""

    launches: int
    casts: int
    """Launches that only change the format of numbers."""
    host_waits: list[str]
    """What the host waited for, and where."""
    bytes_moved: int
    """Read and written by all launches, as if nothing stayed in a cache."""
    functions: dict[str, int] = field(default_factory=dict)
    """Launches by the name of their function, the most frequent first."""
    precision: str = ""
    """The format that the step ran in."""

    def calls(self, part: str) -> int:
        """Launches of functions with this in their name."""
        return sum(number for name, number in self.functions.items() if part in name)


@dataclass(frozen=True)
class Case:
    """A step to be counted."""

    wanted: str | dict[str, Any]
    """A preset's id, or the whole configuration of an experiment."""
    settings: tuple[str, ...] = ()
    """As after `--set`."""
    capability: Capability = A5000


def count_step(wanted: str | Experiment, *settings: str, capability: Capability = A5000) -> StepCount:
    """What an optimiser step of this preset or experiment, with `--set` settings, asks of a card."""
    config = wanted if isinstance(wanted, str) else as_dict(wanted)
    return count_steps([Case(config, settings, capability)])[0]


def count_steps(cases: Sequence[Case]) -> list[StepCount]:
    """The same for many, in one process."""
    return ask_child(cases, [])[0]


def ask_child(cases: Sequence[Case], acts: Sequence[str]) -> tuple[list[StepCount], list[list[str]]]:
    """Steps of cases as counted, and what is seen of acts in host_waits.py (`wait:item`), by one child process."""
    request = json.dumps({"cases": [asdict(case) for case in cases], "acts": list(acts)})
    command = [sys.executable, "-m", "tests.pretend_cuda", "--answer"]
    ended = subprocess.run(command, input=request, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"the pretend card failed:\n{ended.stderr}")
    answer = json.loads(ended.stdout.splitlines()[-1])
    return [StepCount(**one) for one in answer["steps"]], answer["seen"]
