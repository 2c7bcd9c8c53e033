"""The clock: seconds per optimiser step, read from device events so that the loop never waits for the device."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from oelm_core.registry import FAMILIES

WARMUP = 100
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


def warmup_steps(total: int) -> int:
    """Steps left out at the start of every process: 100, or a tenth of a short run."""
    return min(WARMUP, max(1, total // 10))


@dataclass
class StepTimes:
    """All measured steps of a run, over all its attempts. Validation and each start's warm-up are left out."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)
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
        lists = {name: tensors[name].tolist() for name in ("seconds", "tokens", "examples", "waits")}
        return cls(
            lists["seconds"], [int(t) for t in lists["tokens"]], [int(e) for e in lists["examples"]], lists["waits"]
        )

    def summary(self) -> dict[str, Any]:
        """The protocol's figures; None where nothing was measured."""
        seconds = np.asarray(self.seconds, np.float64)
        if not len(seconds):
            empty = dict.fromkeys(
                ("step_time_mean", "step_time_std", "step_time_median", "step_time_p95", "step_time_p99")
            )
            more = dict.fromkeys(
                ("step_time_min", "step_time_max", "tokens_per_s", "examples_per_s", "data_wait_share")
            )
            return {**empty, **more, "steps_measured": 0, "outliers_dropped": 0}
        kept = seconds <= OUTLIER * np.median(seconds)
        used = seconds[kept]
        waits = np.asarray(self.waits)[kept]
        return {
            "step_time_mean": float(used.mean()),
            "step_time_std": float(used.std(ddof=1)) if len(used) > 1 else 0.0,
            "step_time_median": float(np.median(used)),
            "step_time_p95": float(np.percentile(used, 95)),
            "step_time_p99": float(np.percentile(used, 99)),
            "step_time_min": float(used.min()),
            "step_time_max": float(used.max()),
            "steps_measured": len(used),
            "outliers_dropped": int((~kept).sum()),
            "tokens_per_s": float(np.asarray(self.tokens)[kept].sum() / used.sum()),
            "examples_per_s": float(np.asarray(self.examples)[kept].sum() / used.sum()),
            "data_wait_share": float(waits.sum() / (waits.sum() + used.sum())),
        }


def author_stats(
    family: str,
    about: dict[str, Any],
    times: StepTimes,
    validation_seconds: list[float],
    wall: float,
    warmup: int,
    epoch_seconds: list[float],
) -> dict[str, Any]:
    """timing_stats.json under the author's keys for the family, with our protocol's figures beside them.

    `about`: model_type, init_method, dataset, mode, best_loss, best_perplexity.
    """
    ours = times.summary()
    validation = sum(validation_seconds)
    common = {
        "total_wall_time": wall,
        "total_validation_time": validation,
        "num_steps_measured": ours["steps_measured"],
        "outliers_dropped": ours["outliers_dropped"],
        "clock": "optimiser step, all micro-batches in",
        "protocol": ours,
    }
    if FAMILIES[family].language:
        return {
            "model_type": about["model_type"],
            "init_method": about["init_method"],
            "dataset": about["dataset"],
            **common,
            "total_formatted": formatted(wall),
            "warmup_steps": warmup,
            **{
                f"{name}_step_time": ours[f"step_time_{name}"]
                for name in ("mean", "std", "median", "min", "max", "p95", "p99")
            },
            "mean_validation_time": validation / len(validation_seconds) if validation_seconds else 0.0,
            "num_validations": len(validation_seconds),
            "epoch_times": epoch_seconds,
            "final_perplexity": about.get("best_perplexity"),
            "best_val_loss": about.get("best_loss"),
        }
    return {
        "mode": about["mode"],
        **common,
        "pure_training_time": float(sum(times.seconds)),
        "mean_time_per_step": ours["step_time_mean"],
        "std_time_per_step": ours["step_time_std"],
        **{f"{name}_time": ours[f"step_time_{name}"] for name in ("min", "max", "median", "p95", "p99")},
        "step_times": times.seconds,
        "validation_times": validation_seconds,
    }


def formatted(seconds: float) -> str:
    """
    >>> formatted(4 * 3600 + 31 * 60 + 5)
    '4h 31m 05s'
    """
    hours, rest = divmod(round(seconds), 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}h {minutes:02d}m {secs:02d}s" if hours else f"{minutes}m {secs:02d}s"
