"""What training costs: seconds per optimiser step, read so that the loop never waits for the device; peak memory."""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from oelm_core.runs.schema import PeakMemory, StepTiming

UNTIMED = 100
OUTLIER = 3.0


@dataclass
class Stopwatch:
    """Start and end of one step: events on a GPU, the host's clock elsewhere."""

    device: torch.device
    _marks: list[Any] = field(default_factory=list)

    def mark(self) -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def ready(self) -> bool:
        """Whether reading would not wait."""
        return self.device.type != "cuda" or bool(self._marks[-1].query())

    def seconds(self) -> float:
        start, end = self._marks
        if self.device.type == "cuda":
            end.synchronize()
            return float(start.elapsed_time(end)) / 1000
        return float(end - start)


def untimed_steps(total: int) -> int:
    """Steps left out at the start of every process: 100, or a tenth of a short run."""
    return min(UNTIMED, max(1, total // 10))


@dataclass
class StepTimes:
    """All measured steps of a run, over all its attempts. Validation and each start's warm-up are left out."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    examples: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def add(self, seconds: float, tokens: int, examples: int, wait: float) -> None:
        self.seconds.append(seconds)
        self.tokens.append(tokens)
        self.examples.append(examples)
        self.waits.append(wait)

    def as_tensors(self) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(values, dtype=torch.float64) for name, values in vars(self).items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor]) -> StepTimes:
        return cls(**{name: values.tolist() for name, values in tensors.items()})

    def summary(self) -> StepTiming:
        """The protocol's figures; None where nothing was measured."""
        seconds = np.asarray(self.seconds, np.float64)
        if not len(seconds):
            return StepTiming(steps_measured=0, outliers_dropped=0)
        kept = seconds <= OUTLIER * np.median(seconds)
        used = seconds[kept]
        waits = np.asarray(self.waits)[kept]
        return StepTiming(
            step_time_mean=float(used.mean()),
            step_time_std=float(used.std(ddof=1)) if len(used) > 1 else 0.0,
            step_time_median=float(np.median(used)),
            step_time_p95=float(np.percentile(used, 95)),
            step_time_p99=float(np.percentile(used, 99)),
            step_time_min=float(used.min()),
            step_time_max=float(used.max()),
            steps_measured=len(used),
            outliers_dropped=int((~kept).sum()),
            tokens_per_s=float(np.asarray(self.tokens)[kept].sum() / used.sum()),
            examples_per_s=float(np.asarray(self.examples)[kept].sum() / used.sum()),
            data_wait_share=float(waits.sum() / (waits.sum() + used.sum())),
        )


@dataclass
class MemoryMeter:
    """The most memory that training held, of this process and of its GPU if it has one.

    Evaluation takes what a GPU has left, so its share there is kept apart.
    """

    device: torch.device
    _before: int = 0

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """What is taken meanwhile does not count, and goes back to the card for its other users."""
        if self.device.type != "cuda":
            yield
            return
        self._before = self._on_card()
        try:
            yield
        finally:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> PeakMemory:
        """Bytes; Linux counts the host's in KiB."""
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)
        return PeakMemory(self._on_card() if self.device.type == "cuda" else None, host)

    def _on_card(self) -> int:
        return max(self._before, torch.cuda.max_memory_allocated(self.device))
