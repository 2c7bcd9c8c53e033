"""Reads one of the author's output folders into facts; what it does not say stays unknown."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oelm_core.errors import BadInput
from oelm_core.published.import_checkpoint import Counts, count_parameters
from oelm_core.published.import_log import LogContent, read_log
from oelm_core.runs.folder import read_json

JSON_FILES = ("timing_stats.json", "config.json", "results.json")
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


@dataclass
class Folder:
    """Everything one folder says."""

    path: Path
    stats: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    log: LogContent = field(default_factory=LogContent)
    logs: list[Path] = field(default_factory=list)
    counts: Counts | None = None
    checkpoint_bytes: int | None = None
    notes: list[str] = field(default_factory=list)
    fingerprint: str = ""

    @property
    def kind(self) -> str:
        """gpt, bert or later: which of the author's programs wrote it."""
        if "mode" in self.stats or "mean_time_per_step" in self.stats:
            return "bert"
        if self.results or self.config:
            return "later"
        if "model_type" in self.stats or any("perplexity" in record for record in self.log.evals):
            return "gpt"
        return "bert" if any("accuracy" in record for record in self.log.evals) else "unknown"


def looks_like_output(path: Path) -> bool:
    return any((path / name).is_file() for name in (*JSON_FILES[:1], "results.json", *LOGS))


def read_folder(path: Path) -> Folder:
    """Reads the folder's files; a torn one is noted and left out."""
    folder = Folder(path)
    digest = hashlib.sha256()
    for name in JSON_FILES:
        file = path / name
        if not file.is_file():
            continue
        digest.update(name.encode() + file.read_bytes())
        content = read_json(file)
        if content is None:
            folder.notes.append(f"{name} cannot be read and is left out.")
            continue
        setattr(folder, {"timing_stats.json": "stats"}.get(name, name.removesuffix(".json")), content)
    for name in LOGS:
        file = path / name
        if file.is_file():
            digest.update(name.encode() + file.read_bytes())
            folder.logs.append(file)
            folder.log = read_log(file, folder.log)
    if not folder.config and isinstance(folder.results.get("config"), dict):
        folder.config = folder.results["config"]
    if not (folder.stats or folder.results or folder.log.evals):
        raise BadInput(f"{path}: nothing to import; its files hold no timing, no results and no validation.")
    _read_checkpoint(folder)
    folder.fingerprint = digest.hexdigest()
    return folder


def _read_checkpoint(folder: Folder) -> None:
    for name in CHECKPOINTS:
        file = folder.path / name
        if file.is_file():
            folder.checkpoint_bytes = folder.checkpoint_bytes or file.stat().st_size
            folder.counts = folder.counts or count_parameters(file)
            if folder.counts is None:
                folder.notes.append(f"{name}: its parameters cannot be counted without running what is pickled in it.")


def method_of(folder: Folder) -> str:
    """The method the files name. BERT's `oelm` may be random too, so its init must say which."""
    said = str(folder.stats.get("model_type") or folder.results.get("model_type") or folder.stats.get("mode") or "")
    name = METHODS.get(said.lower(), said.lower().replace("_", "-"))
    if folder.kind == "bert" and name == "oelm-freeze" and not folder.stats.get("init_method"):
        return "unknown"  # the author's mode `oelm` covers orthonormal and random starts alike
    return name or "unknown"


def config_of(folder: Folder) -> dict[str, Any]:
    """Our configuration with the parts that are known; the rest is absent."""
    said = folder.config
    dataset = folder.stats.get("dataset") or folder.results.get("dataset") or said.get("dataset")
    shape = {
        "layers": said.get("num_layers"),
        "d_model": said.get("d_model"),
        "heads": said.get("num_heads"),
        "d_ff": said.get("d_ff"),
        "vocab": said.get("vocab_size"),
        "positions": said.get("max_seq_len"),
    }
    classes = said.get("num_classes")
    kind = folder.kind
    train = {
        "lr": said.get("learning_rate"),
        "batch_size": said.get("batch_size"),
        "epochs": said.get("num_epochs"),
        "warmup_steps": said.get("warmup_steps"),
        "weight_decay": said.get("weight_decay"),
        "eval_every": said.get("eval_interval"),
        "accumulate": said.get("gradient_accumulation_steps"),
    }
    metric = "perplexity" if kind == "gpt" else "accuracy"
    return {
        "id": folder.path.name,
        "title": folder.path.name,
        "family": kind if kind in ("gpt", "bert") else "unknown",
        "baseline": None,
        "model": _known({"shape": shape if all(shape.values()) else None, "dropout": said.get("dropout")}),
        "data": _known({"name": str(dataset).lower() if dataset else None, "metric": metric, "classes": classes}),
        "method": {"name": method_of(folder), **_known({"init": _init(folder)})},
        "train": _known(train),
        "clock": None,
    }


def _init(folder: Folder) -> str | None:
    said = str(folder.stats.get("init_method") or "").lower()
    if method_of(folder) == "baseline" or not said:
        return None  # what the author's loader did to a baseline is not in its files
    return {"normal": "gaussian", "orthogonal": "head-qr"}.get(said)


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def result_of(folder: Folder) -> dict[str, Any]:
    """result.json as our worker writes it, with what is known."""
    metric = "perplexity" if folder.kind == "gpt" else "accuracy"
    best, final = _best_and_final(folder, metric)
    stats, results = folder.stats, folder.results
    timing = {
        "step_time_mean": _first(stats, "mean_step_time", "mean_time_per_step") or results.get("avg_step_time"),
        "step_time_std": _first(stats, "std_step_time", "std_time_per_step"),
        "step_time_median": _first(stats, "median_step_time", "median_time"),
        "step_time_p95": _first(stats, "p95_step_time", "p95_time"),
        "step_time_p99": _first(stats, "p99_step_time", "p99_time"),
        "steps_measured": stats.get("num_steps_measured"),
    }
    seconds = {
        "total": stats.get("total_wall_time") or results.get("total_time_seconds"),
        "training": stats.get("pure_training_time"),
        "validation": stats.get("total_validation_time"),
    }
    counts = folder.counts
    parameters = {"total": counts.total} if counts else {}
    if counts and counts.trainable is not None:
        parameters |= {"trainable": counts.trainable, "frozen": counts.total - counts.trainable}
    return {
        "schema": 1,
        "imported": True,
        "metric": {
            "name": metric,
            "value": best.get(metric),
            "direction": "lower" if metric == "perplexity" else "higher",
        },
        "best": best,
        "final": final,
        "parameters": parameters,
        "timing": _known(timing),
        "seconds": _known(seconds),
        **_known({"checkpoint_bytes": folder.checkpoint_bytes}),
    }


def _best_and_final(folder: Folder, metric: str) -> tuple[dict[str, Any], dict[str, Any]]:
    scored = [record for record in folder.log.evals if math.isfinite(record.get(metric, math.nan))]
    lower = metric == "perplexity"
    best = dict((min if lower else max)(scored, key=lambda record: record[metric])) if scored else {}
    final = dict(scored[-1]) if scored else {}
    for record in (best, final):
        record.pop("t", None)
    told = _told(folder, metric)
    if told is not None and (not best or abs(best[metric] / told - 1) > 0.005):
        if best:
            folder.notes.append(
                f"best {metric} is {best[metric]:g} in the log and {told:g} in the summary; the log counts."
            )
        else:
            best = {metric: told}
            if folder.kind == "gpt" and folder.stats.get("best_val_loss") is not None:
                best["loss"] = folder.stats["best_val_loss"]
    if not final and folder.results.get("final_val_accuracy") is not None:
        results = folder.results
        final = _known({"accuracy": _fraction(results["final_val_accuracy"]), "loss": results.get("final_val_loss")})
    return best, final


def _told(folder: Folder, metric: str) -> float | None:
    if metric == "perplexity":
        value = folder.stats.get("final_perplexity")  # exp of the best loss, whatever its name says
        return float(value) if isinstance(value, (int, float)) else None
    value = folder.results.get("best_accuracy")
    return _fraction(value) if isinstance(value, (int, float)) else None


def _fraction(value: float) -> float:
    return value / 100 if value > 1 else float(value)


def _first(stats: dict[str, Any], *names: str) -> Any:
    return next((stats[name] for name in names if stats.get(name) is not None), None)
