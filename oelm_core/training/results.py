"""The end of a run: frozen weights proved unchanged, result.json and timing_stats.json written from its own records."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import torch

from oelm_core.config import Experiment
from oelm_core.devices.nvml import driver_version
from oelm_core.formatting import exact_duration
from oelm_core.method import initialisers
from oelm_core.method.freezing import FrozenChanged
from oelm_core.metric import metric_named
from oelm_core.proof.record import proven
from oelm_core.provenance import package_versions, processor_name
from oelm_core.registry import FAMILIES
from oelm_core.runs import process
from oelm_core.runs.folder import write_record
from oelm_core.runs.schema import ChecksAtEnd, DeviceFacts, FrozenProof, Headline, Result, Seconds, TestScore
from oelm_core.training.checkpoint import Progress
from oelm_core.training.distributed import Ranks
from oelm_core.training.test_score import score_test
from oelm_core.training.timing import StepTimes, untimed_steps

if TYPE_CHECKING:
    from oelm_core.training.session import Session

DECISIVE = ("python", "torch", "transformers", "datasets", "numpy", "safetensors", "peft")
"""Packages whose version can change a result."""


def write_results(s: Session) -> None:
    """Writes checks.json's end, timing_stats.json and result.json; FrozenChanged when a frozen weight moved.

    Every rank calls it: they share out the test text, for which the best weights replace the final ones.
    """
    before = s.checks.frozen.hash if s.checks.frozen else None
    after = s.frozen.hash(s.model)
    if s.ranks.main:
        s.checks.end = ChecksAtEnd(initialisers.check_model(s.model), after)
        s.folder.write(s.checks)
        stats = author_stats(s.experiment, s.times, s.progress, untimed_steps(s.total))
        write_record(s.folder.path / "timing_stats.json", stats)
    test = score_test(s)
    if s.ranks.main:
        s.folder.write(result(s, FrozenProof(before, after, before == after), test))
    if before != after:
        raise FrozenChanged("a frozen weight changed during training; its hash is not the one taken at the start.")


def result(s: Session, frozen: FrozenProof, test: TestScore | None) -> Result:
    progress, metric = s.progress, metric_named(s.experiment.metric)
    validation = sum(progress.validation_seconds)
    best = progress.best[metric.name] if progress.best else None
    return Result(
        metric=Headline(metric.name, best, metric.direction),
        best=progress.best,
        final=progress.last,
        test=test,
        reached=progress.reached if s.experiment.data.classes is not None else {},
        parameters=msgspec.structs.replace(s.checks.census, by_layer=None, bytes=None),
        timing=s.times.summary(),
        seconds=Seconds(progress.seconds, progress.seconds - validation, validation),
        memory=s.memory.peak(),
        checkpoint_bytes=s.checkpoint_bytes,
        qk_untouched=s.checks.qk_untouched,
        frozen=frozen,
        data=s.task.describe(),
        model=s.checks.model,
        effective_batch=s.task.plan.effective_batch,
        steps=s.total,
        skipped_steps=progress.skipped if s.scaler.is_enabled() else None,
        precision=s.precision.name,
        device=device_facts(s.ranks),
        threads=s.threads,
        world_size=s.ranks.world,
        versions={name: version for name, version in package_versions().items() if name in DECISIVE},
    )


def device_facts(ranks: Ranks) -> DeviceFacts:
    """The device, and whether it was proven. Copied here, for a table may be made where there is no gpu-proof.json."""
    used = ranks.device
    if used.type != "cuda":
        return DeviceFacts(used.type, processor_name())
    here = range(min(ranks.world, torch.cuda.device_count())) if ranks.world > 1 else (used.index or 0,)
    uuids = [_uuid(number) for number in here]
    driver, versions = driver_version(), package_versions()
    when = proven(process.host(), uuids, driver, versions.get("torch"))
    return DeviceFacts(used.type, torch.cuda.get_device_name(used), uuids, driver, when)


def _uuid(number: int) -> str:
    """As the runner named the card, by which a MIG instance is known too; else as torch reads it."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if number < len(named) and named[number].startswith(("GPU-", "MIG-")):
        return named[number]
    return f"GPU-{torch.cuda.get_device_properties(number).uuid}"


def author_stats(experiment: Experiment, times: StepTimes, progress: Progress, untimed: int) -> dict[str, object]:
    """timing_stats.json under the author's keys for the family, with our protocol's figures beside them."""
    ours, best = times.summary(), progress.best or {}
    validation = sum(progress.validation_seconds)
    count = len(progress.validation_seconds)
    common = {
        "total_wall_time": progress.seconds,
        "total_validation_time": validation,
        "num_steps_measured": ours.steps_measured,
        "outliers_dropped": ours.outliers_dropped,
        "clock": "optimiser step, all micro-batches in",
        "protocol": ours,
    }
    by_name = {
        name: getattr(ours, f"step_time_{name}") for name in ("mean", "std", "median", "min", "max", "p95", "p99")
    }
    if FAMILIES[experiment.family].language:
        return {
            "model_type": "baseline" if experiment.is_baseline else experiment.method.name,
            "init_method": experiment.method.init,
            "dataset": experiment.data.name,
            **common,
            "total_formatted": exact_duration(progress.seconds),
            "warmup_steps": untimed,
            **{f"{name}_step_time": value for name, value in by_name.items()},
            "mean_validation_time": validation / count if count else 0.0,
            "num_validations": count,
            "epoch_times": progress.epoch_seconds,
            "final_perplexity": best.get("perplexity"),
            "best_val_loss": best.get("loss"),
        }
    return {
        "mode": "baseline" if experiment.is_baseline else "oelm",
        **common,
        "pure_training_time": float(sum(times.seconds)),
        "mean_time_per_step": by_name.pop("mean"),
        "std_time_per_step": by_name.pop("std"),
        **{f"{name}_time": value for name, value in by_name.items()},
        "step_times": times.seconds,
        "validation_times": progress.validation_seconds,
    }
