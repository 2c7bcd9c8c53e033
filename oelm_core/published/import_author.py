"""Reads one of the author's output folders into our records; what it does not say stays unknown."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from oelm_core.errors import BadInput
from oelm_core.method.facts import Census
from oelm_core.metric import best_of, metric_named
from oelm_core.published.import_checkpoint import CheckpointCounts, count_checkpoint
from oelm_core.published.import_log import LogContent, read_log
from oelm_core.runs.folder import read_record
from oelm_core.runs.schema import Evaluated, Headline, Result, Seconds, StepTiming

LOGS = ("training.log", "training_restart.log")
CHECKPOINTS = ("best.pt", "best_model.pt", "latest.pt", "best.safetensors", "model.safetensors")
METHODS = {
    "baseline": "baseline",
    "gpt": "baseline",
    "oelm": "oelm-freeze",
    "oelm_freeze": "oelm-freeze",
    "oelm_random": "oelm-random",
    "oelm_nofreeze": "oelm-nofreeze",
}


class TimingStats(Struct):
    """timing_stats.json, of the GPT scripts and of the BERT scripts: the same figures under two names."""

    model_type: str | None = None
    mode: str | None = None
    init_method: str | None = None
    dataset: str | None = None
    total_wall_time: float | None = None
    pure_training_time: float | None = None
    total_validation_time: float | None = None
    num_steps_measured: int | None = None
    mean_step_time: float | None = None
    std_step_time: float | None = None
    median_step_time: float | None = None
    p95_step_time: float | None = None
    p99_step_time: float | None = None
    mean_time_per_step: float | None = None
    std_time_per_step: float | None = None
    median_time: float | None = None
    p95_time: float | None = None
    p99_time: float | None = None
    final_perplexity: float | None = None
    """exp of the best loss, whatever its name says."""
    best_val_loss: float | None = None


class AuthorConfig(Struct):
    """config.json of the later scripts, under our names."""

    dataset: str | None = None
    seed: int | None = None
    classes: int | None = field(default=None, name="num_classes")
    layers: int | None = field(default=None, name="num_layers")
    d_model: int | None = None
    heads: int | None = field(default=None, name="num_heads")
    d_ff: int | None = None
    vocab: int | None = field(default=None, name="vocab_size")
    positions: int | None = field(default=None, name="max_seq_len")
    dropout: float | None = None
    lr: float | None = field(default=None, name="learning_rate")
    batch_size: int | None = None
    epochs: float | None = field(default=None, name="num_epochs")
    warmup_steps: int | None = None
    weight_decay: float | None = None
    eval_every: int | None = field(default=None, name="eval_interval")
    accumulate: int | None = field(default=None, name="gradient_accumulation_steps")

    def named(self, *names: str) -> dict[str, Any]:
        """Those of the settings that are known."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class AuthorResults(Struct):
    """results.json of the later scripts; accuracies are in percent."""

    model_type: str | None = None
    dataset: str | None = None
    best_accuracy: float | None = None
    final_val_accuracy: float | None = None
    final_val_loss: float | None = None
    total_time_seconds: float | None = None
    avg_step_time: float | None = None
    config: AuthorConfig | None = None


SHAPE = ("layers", "d_model", "heads", "d_ff", "vocab", "positions")
TRAIN = ("lr", "batch_size", "epochs", "warmup_steps", "weight_decay", "eval_every", "accumulate")
JSON_FILES = {"timing_stats.json": TimingStats, "config.json": AuthorConfig, "results.json": AuthorResults}


@dataclass
class AuthorFolder:
    """Everything one folder says; None for a file that is missing or cannot be read."""

    path: Path
    stats: TimingStats | None = None
    config: AuthorConfig | None = None
    results: AuthorResults | None = None
    log: LogContent = dataclasses.field(default_factory=LogContent)
    logs: list[Path] = dataclasses.field(default_factory=list)
    counts: CheckpointCounts | None = None
    checkpoint_bytes: int | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str = ""

    @property
    def kind(self) -> str:
        """gpt, bert or later: which of the author's programs wrote it."""
        if self.stats and (self.stats.mode is not None or self.stats.mean_time_per_step is not None):
            return "bert"
        if self.results or self.config:
            return "later"
        if (self.stats and self.stats.model_type is not None) or self._has_scores("perplexity"):
            return "gpt"
        return "bert" if self._has_scores("accuracy") else "unknown"

    def _has_scores(self, metric: str) -> bool:
        return any(metric in line.values for line in self.log.evals)

    @property
    def metric(self) -> str:
        return "perplexity" if self.kind == "gpt" else "accuracy"

    @property
    def seed(self) -> int | None:
        return self.log.seed if self.config is None or self.config.seed is None else self.config.seed


def looks_like_output(path: Path) -> bool:
    return any((path / name).is_file() for name in ("timing_stats.json", "results.json", *LOGS))


def read_folder(path: Path) -> AuthorFolder:
    """Reads the folder's files; a torn one is noted and left out."""
    folder = AuthorFolder(path)
    digest = hashlib.sha256()
    found: dict[str, Any] = {}
    for name, kind in JSON_FILES.items():
        file = path / name
        if file.is_file():
            digest.update(name.encode() + file.read_bytes())
            found[name] = read_record(file, kind)
            if found[name] is None:
                folder.notes.append(f"{name} cannot be read and is left out.")
    folder.stats, folder.results = found.get("timing_stats.json"), found.get("results.json")
    folder.config = found.get("config.json") or (folder.results.config if folder.results else None)
    for name in LOGS:
        file = path / name
        if file.is_file():
            digest.update(name.encode() + file.read_bytes())
            folder.logs.append(file)
            folder.log = read_log(file, folder.log)
    if not (folder.stats or folder.results or folder.log.evals):
        raise BadInput(f"{path}: nothing to import; its files hold no timing, no results and no validation.")
    _read_checkpoint(folder)
    folder.fingerprint = digest.hexdigest()
    return folder


def _read_checkpoint(folder: AuthorFolder) -> None:
    for name in CHECKPOINTS:
        file = folder.path / name
        if file.is_file():
            folder.checkpoint_bytes = folder.checkpoint_bytes or file.stat().st_size
            folder.counts = folder.counts or count_checkpoint(file)
            if folder.counts is None:
                folder.notes.append(f"{name}: its parameters cannot be counted without running what is pickled in it.")


def method_of(folder: AuthorFolder) -> str:
    """The method the files name. BERT's `oelm` may be random too, so its init must say which."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    written = (stats.model_type or results.model_type or stats.mode or "").lower()
    name = METHODS.get(written, written.replace("_", "-"))
    if folder.kind == "bert" and name == "oelm-freeze" and not stats.init_method:
        return "unknown"  # the author's mode `oelm` covers orthonormal and random starts alike
    return name or "unknown"


def config_of(folder: AuthorFolder) -> dict[str, Any]:
    """Our configuration with the parts that are known; the rest is absent."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    config = folder.config or AuthorConfig()
    dataset = stats.dataset or results.dataset or config.dataset
    shape = config.named(*SHAPE)
    return {
        "id": folder.path.name,
        "title": folder.path.name,
        "family": folder.kind if folder.kind in ("gpt", "bert") else "unknown",
        "baseline": None,
        "model": ({"shape": shape} if len(shape) == len(SHAPE) else {}) | config.named("dropout"),
        "data": ({"name": dataset.lower()} if dataset else {}) | {"metric": folder.metric} | config.named("classes"),
        "method": {"name": method_of(folder)} | ({"init": init} if (init := _init(folder)) else {}),
        "train": config.named(*TRAIN),
        "clock": None,
    }


def _init(folder: AuthorFolder) -> str | None:
    if method_of(folder) == "baseline" or folder.stats is None:
        return None  # what the author's loader did to a baseline is not in its files
    return {"normal": "gaussian", "orthogonal": "head-qr"}.get((folder.stats.init_method or "").lower())


def result_of(folder: AuthorFolder) -> Result:
    """The result as our worker writes it, with what is known."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    best, final = _best_and_final(folder)
    counts = folder.counts
    trainable = counts.trainable if counts else None
    return Result(
        imported=True,
        metric=Headline(folder.metric, best.get(folder.metric), metric_named(folder.metric).direction),
        best=best,
        final=final,
        parameters=Census(
            total=counts.total if counts else None,
            trainable=trainable,
            frozen=counts.total - trainable if counts and trainable is not None else None,
        ),
        timing=StepTiming(
            step_time_mean=stats.mean_step_time or stats.mean_time_per_step or results.avg_step_time,
            step_time_std=_first(stats.std_step_time, stats.std_time_per_step),
            step_time_median=_first(stats.median_step_time, stats.median_time),
            step_time_p95=_first(stats.p95_step_time, stats.p95_time),
            step_time_p99=_first(stats.p99_step_time, stats.p99_time),
            steps_measured=stats.num_steps_measured,
        ),
        seconds=Seconds(
            total=stats.total_wall_time or results.total_time_seconds,
            training=stats.pure_training_time,
            validation=stats.total_validation_time,
        ),
        checkpoint_bytes=folder.checkpoint_bytes,
    )


def _best_and_final(folder: AuthorFolder) -> tuple[Evaluated, Evaluated]:
    metric, results = folder.metric, folder.results or AuthorResults()
    evaluations: list[Evaluated] = [{"step": line.step, **line.values} for line in folder.log.evals]
    scored = [one for one in evaluations if math.isfinite(one.get(metric) or math.nan)]
    best, final = dict(best_of(scored, metric) or {}), dict(scored[-1]) if scored else {}
    summary, in_log = _summary(folder), best.get(metric)
    if summary is not None and in_log is None:
        best = {metric: summary}
        if folder.kind == "gpt" and folder.stats and folder.stats.best_val_loss is not None:
            best["loss"] = folder.stats.best_val_loss
    elif summary is not None and in_log is not None and abs(in_log / summary - 1) > 0.005:
        folder.notes.append(f"best {metric} is {in_log:g} in the log and {summary:g} in the summary; the log counts.")
    if not final and results.final_val_accuracy is not None:
        final = {"accuracy": _fraction(results.final_val_accuracy)}
        if results.final_val_loss is not None:
            final["loss"] = results.final_val_loss
    return best, final


def _summary(folder: AuthorFolder) -> float | None:
    """The best of the headline metric as the summary files have it."""
    if folder.metric == "perplexity":
        return folder.stats.final_perplexity if folder.stats else None
    best = folder.results.best_accuracy if folder.results else None
    return None if best is None else _fraction(best)


def _fraction(value: float) -> float:
    return value / 100 if value > 1 else value


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
