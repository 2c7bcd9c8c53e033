"""The end of a run: frozen weights proved unchanged, result.json and timing_stats.json written from its own records."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from oelm_core.method import initialisers
from oelm_core.method.freezing import FrozenChanged
from oelm_core.training import timing
from oelm_core.training.evaluation import direction

if TYPE_CHECKING:
    from oelm_core.training.session import Session

SCHEMA = 1
PACKAGES = ("torch", "transformers", "datasets", "numpy", "safetensors", "peft")


def finish(s: Session) -> None:
    """Writes checks.json's end, timing_stats.json and result.json; FrozenChanged when a frozen weight moved."""
    after = s.frozen.hash(s.model)
    before = s.checks["frozen"]["hash"]
    report = msgspec.to_builtins(initialisers.check_model(s.model))
    s.folder.write_dict("checks", {**s.checks, "end": {"orthogonality": report, "frozen_hash": after}})
    s.folder.write_dict("timing_stats", timing_stats(s))
    s.folder.write_dict("result", result(s, before, after))
    if before != after:
        raise FrozenChanged("a frozen weight changed during training; its hash is not the one taken at the start.")


def result(s: Session, before: str, after: str) -> dict[str, Any]:
    progress, metric = s.progress, s.experiment.metric
    census = s.checks["census"]
    classifies = s.experiment.data.classes is not None
    validation = sum(progress.validation_seconds)
    return {
        "schema": SCHEMA,
        "metric": {
            "name": metric,
            "value": progress.best[metric] if progress.best else None,
            "direction": direction(metric),
        },
        "best": progress.best,
        "final": progress.last,
        "reached": progress.reached if classifies else {},
        "parameters": {key: census[key] for key in ("total", "trainable", "frozen", "by_component")},
        "timing": s.times.summary(),
        "seconds": {
            "total": progress.seconds,
            "training": progress.seconds - validation,
            "validation": validation,
        },
        "memory": s.memory.as_dict(),
        "checkpoint_bytes": s.checkpoint_bytes,
        "true_baseline": s.checks["true_baseline"],
        "frozen": {"hash_before": before, "hash_after": after, "unchanged": before == after},
        "data": s.task.describe(),
        "model": s.checks["model"],
        "effective_batch": s.task.plan.effective_batch,
        "steps": s.total,
        "precision": s.precision.name,
        "device": device(s.ranks.device),
        "threads": s.threads,
        "world_size": s.ranks.world,
        "versions": versions(),
    }


def timing_stats(s: Session) -> dict[str, Any]:
    progress, method = s.progress, s.experiment.method
    best = progress.best or {}
    about = {
        "mode": "baseline" if s.experiment.is_baseline else "oelm",
        "model_type": "baseline" if s.experiment.is_baseline else method.name,
        "init_method": method.init,
        "dataset": s.experiment.data.name,
        "best_loss": best.get("loss"),
        "best_perplexity": best.get("perplexity"),
    }
    return timing.author_stats(
        s.experiment.family,
        about,
        s.times,
        progress.validation_seconds,
        progress.seconds,
        timing.warmup_steps(s.total),
        progress.epoch_seconds,
    )


def device(used: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name(used) if used.type == "cuda" else processor()
    return {"kind": used.type, "name": name}


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
