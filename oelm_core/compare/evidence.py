"""What one run's folder proves: its numbers, what it was trained on, and what is missing, with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oelm_core.registry import models_language
from oelm_core.runs.folder import RunFolder, read_json

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

LOWER_IS_BETTER = {"perplexity", "loss"}
ENDED = ("finished", "failed", "stopped")
TRAIN_POINTS = 400
"""Points of a training curve kept for plots."""


@dataclass(frozen=True)
class Evidence:
    """One run, as its own records show it. Unknown things are None or absent, never guessed."""

    id: str
    preset: str
    seed: int
    method: str
    config: dict[str, Any]
    config_hash: str
    created: float
    state: str
    reason: str | None
    message: str | None
    imported: bool
    folder: RunFolder
    metric: str
    direction: Literal["higher", "lower"]
    values: dict[str, float]
    evals: tuple[dict[str, Any], ...]
    train: tuple[dict[str, Any], ...]
    step: int | None
    total: int | None
    true_baseline: bool | None
    facts: dict[str, Any]
    """effective_batch, precision, device, threads, world_size, versions, git_commit, host, fingerprints."""
    attempts: tuple[dict[str, Any], ...]
    missing: tuple[str, ...]
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def started(self) -> float:
        return min((a["started"] for a in self.attempts if is_number(a.get("started"))), default=self.created)


def gather(run: Run) -> Evidence:
    """Reads everything the comparison needs from a run's folder; a torn or missing file only costs its own numbers."""
    folder: RunFolder = run.folder
    meta = folder.read_dict("run") or {}
    config = _readable(run.config, ("model", "data", "method", "train"))
    result, checks = (
        folder.read_dict("result"),
        _readable(folder.read_dict("checks"), ("census", "qk_scale", "data", "model")),
    )
    if result is not None:
        result = _readable(result, _RESULT_PARTS)
    evals, train = read_curves(folder.metrics)
    missing = _missing(run, folder, result, evals)
    metric, direction = headline(result or {}, config, evals)
    values = _values(result or {}, checks, evals, metric, direction)
    return Evidence(
        id=run.id,
        preset=run.preset,
        seed=run.seed,
        method=run.method or (config.get("method") or {}).get("name") or "unknown",
        config=config,
        config_hash=run.config_hash,
        created=run.created,
        state=run.state,
        reason=run.reason,
        message=run.message,
        imported=run.imported,
        folder=folder,
        metric=metric,
        direction=direction,
        values=values,
        evals=tuple(evals),
        train=tuple(train),
        step=_final_step(result or {}, run, evals),
        total=run.total,
        true_baseline=_first(result or {}, checks, "true_baseline"),
        facts=_facts(meta, result or {}, checks),
        attempts=tuple(_attempts(folder)),
        missing=tuple(missing),
        run=meta,
    )


_RESULT_PARTS = (
    *("metric", "best", "final", "reached", "parameters", "timing", "seconds", "memory", "frozen", "data", "model"),
    *("device", "versions"),
)


def _readable(content: Mapping[str, Any] | None, parts: tuple[str, ...]) -> dict[str, Any]:
    """The content with every part that should be a mapping being one: a stranger's file must not stop the table."""
    kept = dict(content or {})
    return kept | {part: kept[part] if isinstance(kept.get(part), dict) else {} for part in parts if part in kept}


def read_curves(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Evaluation records whole, training records thinned to a plot's worth; only those lines are parsed."""
    evals: list[dict[str, Any]] = []
    train_lines: list[bytes] = []
    try:
        with open(path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # a torn tail
                if b'"eval"' in line:
                    evals.extend(_record(line, "eval"))
                elif b'"train"' in line:
                    train_lines.append(line)
    except OSError:
        return [], []
    stride = max(1, math.ceil(len(train_lines) / TRAIN_POINTS))
    kept = train_lines[::stride] + (train_lines[-1:] if (len(train_lines) - 1) % stride else [])
    train = [record for line in kept for record in _record(line, "train")]
    evals.sort(key=lambda record: record["step"])
    return evals, train


def newest_predictions(evidence: Evidence) -> dict[str, Any] | None:
    """{step, labels, predictions} at the best evaluation, or None."""
    return _newest(evidence.folder.predictions, ("labels", "predictions"))


def newest_losses(evidence: Evidence) -> dict[str, Any] | None:
    """{step, losses, tokens} at the best evaluation, or None."""
    return _newest(evidence.folder.losses, ("losses", "tokens"))


def headline(
    result: Mapping[str, Any], config: Mapping[str, Any], evals: list[dict[str, Any]]
) -> tuple[str, Literal["higher", "lower"]]:
    """The metric's name and which way is better."""
    told = result.get("metric") or {}
    data = config.get("data") or {}
    name = told.get("name") or data.get("metric")
    if not name:
        language = models_language(config) or any("perplexity" in record for record in evals)
        name = "perplexity" if language else "accuracy"
    lower = told.get("direction") == "lower" if told.get("direction") else name in LOWER_IS_BETTER
    return str(name), "lower" if lower else "higher"


def _newest(folder: Path, keys: tuple[str, str]) -> dict[str, Any] | None:
    def step(path: Path) -> int:
        tail = path.stem.rpartition("-")[2]
        return int(tail) if tail.isdigit() else -1

    for path in sorted(folder.glob("step-*.json"), key=step, reverse=True):
        content = read_json(path)  # a torn file: the one before it still tells something
        if content and all(isinstance(content.get(key), list) for key in keys):
            first, second = (content[key] for key in keys)
            if first and len(first) == len(second) and all(map(is_number, (*first, *second))):
                return content
    return None


def _record(line: bytes, kind: str) -> list[dict[str, Any]]:
    try:
        record = json.loads(line)
    except ValueError:
        return []
    good = isinstance(record, dict) and record.get("kind") == kind and isinstance(record.get("step"), int)
    return [record] if good else []


def is_number(value: Any) -> bool:
    """A finite number; NaN and infinity stay out of tables, axes and JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _missing(run: Run, folder: RunFolder, result: dict[str, Any] | None, evals: list[dict[str, Any]]) -> list[str]:
    """What a reader of the table should know is not there, a sentence each."""
    scored = evals or (result or {}).get("metric", {}).get("value") is not None
    if run.state != "finished":
        ended = run.state + (f" ({run.reason})" if run.reason else "")
        rest = "its best validation so far is shown" if scored else "no evaluation was recorded"
        return [f"{run.id}: {ended}, so not complete; {rest}."]
    missing = [f"{run.id}: imported; what its files do not say is unknown."] if run.imported else []
    if result is None:
        why = "cannot be read" if (folder.path / "result.json").exists() else "is not there"
        rest = "its best validation is taken from metrics.jsonl" if evals else "no numbers"
        missing.append(f"{run.id}: result.json {why}; {rest}.")
    if not scored:
        missing.append(f"{run.id}: no evaluation was recorded.")
    return missing


def _values(
    result: Mapping[str, Any], checks: Mapping[str, Any], evals: list[dict[str, Any]], metric: str, direction: str
) -> dict[str, float]:
    best, final = result.get("best") or {}, result.get("final") or {}
    scored = [record for record in evals if is_number(record.get(metric))]
    if not best and scored:
        best = (min if direction == "lower" else max)(scored, key=lambda record: record[metric])
        final = scored[-1]
    timing, seconds = result.get("timing") or {}, result.get("seconds") or {}
    memory, census = result.get("memory") or {}, result.get("parameters") or checks.get("census") or {}
    found: dict[str, Any] = {
        "metric": (result.get("metric") or {}).get("value", best.get(metric)),
        "best_step": best.get("step"),
        "final": final.get(metric),
        "final_step": final.get("step"),
        "final_loss": final.get("loss"),
        **{key: best.get(key) for key in best if key not in ("t", "step", "kind", "seconds")},
        "best_seconds": best.get("seconds") if "seconds" in (result.get("best") or {}) else None,
        "validations": len(scored) or None,
        **{name: census.get(name) for name in ("total", "trainable", "frozen")},
        "step_time": timing.get("step_time_mean"),
        **{
            key: timing.get(key)
            for key in ("step_time_std", "step_time_median", "step_time_p95", "step_time_p99", "steps_measured")
        },
        **{key: timing.get(key) for key in ("tokens_per_s", "examples_per_s", "data_wait_share")},
        "seconds": seconds.get("total"),
        "training_seconds": seconds.get("training"),
        "validation_seconds": seconds.get("validation"),
        "memory": memory.get("device_peak") or memory.get("host_peak"),
        "checkpoint_bytes": result.get("checkpoint_bytes"),
        "qk_row_norm": (checks.get("qk_scale") or {}).get("mean_row_norm"),
        "eval_examples": (result.get("data") or {}).get("eval_examples"),
    }
    for mark, percent in (("0.8", 80), ("0.9", 90)):
        when = (result.get("reached") or {}).get(mark)
        if isinstance(when, dict):
            found |= {f"reached_{percent}_step": when.get("step"), f"reached_{percent}_seconds": when.get("seconds")}
    return {name: float(value) for name, value in found.items() if is_number(value)}


def _facts(meta: Mapping[str, Any], result: Mapping[str, Any], checks: Mapping[str, Any]) -> dict[str, Any]:
    data, model = result.get("data") or checks.get("data") or {}, result.get("model") or checks.get("model") or {}
    device = result.get("device") or {}
    return {
        "data_fingerprint": data.get("fingerprint"),
        "model_fingerprint": model.get("fingerprint"),
        "eval_examples": data.get("eval_examples"),
        "train_examples": data.get("train_examples"),
        "effective_batch": result.get("effective_batch"),
        "precision": result.get("precision"),
        "device": " ".join(str(device[key]) for key in ("kind", "name") if device.get(key)) or None,
        "threads": result.get("threads"),
        "world_size": result.get("world_size"),
        "versions": result.get("versions") or meta.get("versions"),
        "git_commit": meta.get("git_commit"),
        "host": meta.get("host"),
        "frozen_unchanged": (result.get("frozen") or {}).get("unchanged"),
    }


def _attempts(folder: RunFolder) -> list[dict[str, Any]]:
    paths = sorted(folder.attempts.glob("*.json"), key=lambda path: (len(path.stem), path.stem))
    return [content for content in map(read_json, paths) if content]


def _first(result: Mapping[str, Any], checks: Mapping[str, Any], key: str) -> bool | None:
    for holder in (result, checks):
        if isinstance(holder.get(key), bool):
            return bool(holder[key])
    return None


def _final_step(result: Mapping[str, Any], run: Run, evals: list[dict[str, Any]]) -> int | None:
    step = (result.get("final") or {}).get("step") or run.step or (evals[-1]["step"] if evals else None)
    return int(step) if step else None
