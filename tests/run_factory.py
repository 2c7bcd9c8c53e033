"""Complete run folders without training: chosen configuration, metrics, predictions, losses and result."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oelm_core.config import Experiment, as_dict, build_experiment, config_hash, override
from oelm_core.runs.folder import RunFolder, write_json
from oelm_core.runs.store import Run, read_run

START = 1_770_000_000.0
"""Creation time of the first run; each further one is a minute later."""

BERT: dict[str, Any] = {
    "family": "bert",
    "model": {
        "name": "tiny-bert",
        "start": "pretrained",
        "shape": {"layers": 2, "d_model": 64, "heads": 4, "d_ff": 128, "vocab": 200, "positions": 64},
    },
    "data": {"name": "reviews", "classes": 2, "max_length": 32},
    "train": {"max_steps": 400, "batch_size": 16, "lr": 1e-3, "eval_every": 100, "warmup_ratio": 0.1},
    "target": {"metric": "accuracy", "above": 0.8},
}
GPT: dict[str, Any] = {
    "family": "gpt",
    "model": {
        "name": "tiny-gpt",
        "start": "scratch",
        "shape": {"layers": 2, "d_model": 64, "heads": 4, "d_ff": 128, "vocab": 200, "positions": 64},
    },
    "data": {"name": "stories", "max_length": 32},
    "train": {"max_steps": 400, "batch_size": 16, "lr": 1e-3, "eval_every": 100, "schedule": "cosine"},
}
FROZEN = {"name": "oelm-freeze", "init": "head-qr", "scale": "unit", "freeze": ["query", "key"]}
RANDOM = {"name": "oelm-random", "init": "gaussian", "scale": 0.02, "freeze": ["query", "key"]}


def experiment(name: str, base: Mapping[str, Any] = BERT, *settings: str, **parts: Any) -> Experiment:
    """An experiment like `base`; a method of FROZEN or RANDOM needs `baseline=`. `settings` are `--set` texts."""
    method = dict(parts.pop("method", {"name": "baseline"}))
    if method.get("init", "none") != "none" and base["family"] == "gpt":
        method.setdefault("from", "gaussian")
    raw = {**base, "id": name, "title": name.replace("-", " "), "method": method, **parts}
    return override(build_experiment(raw, name), settings)


def write_run(
    root: Path,
    exp: Experiment,
    *,
    seed: int = 42,
    number: int = 0,
    score: float = 0.9,
    curve: Sequence[float] | None = None,
    labels: Sequence[int] | None = None,
    predictions: Sequence[int] | None = None,
    losses: Sequence[float] | None = None,
    tokens: Sequence[int] | None = None,
    state: str = "finished",
    reason: str | None = "completed",
    step_time: float = 0.05,
    result: Mapping[str, Any] | None = None,
    checks: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    attempt: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Run:
    """One run folder under `root`, as the launcher, runner and worker leave it. `score` is the best headline value.

    `number` orders runs in time and makes the id unique; `result`, `checks`, `run`, `attempt` override keys of those
    files; `without` names files to leave out (result, checks, metrics, predictions, losses, timing_stats).
    """
    created = START + 60 * number
    run_id = f"{exp.id}-s{seed}-20260202-{number // 60:04d}{number % 60:02d}-{number:04x}"
    path = root / run_id
    for name in ("attempts", "checkpoints"):
        (path / name).mkdir(parents=True)
    config = {**as_dict(exp), "seed": seed}
    metric, total = exp.metric, exp.train.max_steps or 400
    _write(path / "run.json", _run_json(exp, config, run_id, seed, created) | dict(run or {}))
    done = total if state == "finished" else total // 2
    _write(
        path / "state.json",
        {"state": state, "reason": reason, "message": None, "host": "lab", "pid": 1, "step": done, "total": total}
        | {"started": created, "ended": created + 45, "heartbeat": created + 45, "devices": ["cpu"], "workers": []},
    )
    machine = {"load": [0.1, 0.1, 0.1], "memory_available": 8 * 2**30, "temperature": None, "busy": []}
    _write(
        path / "attempts" / "1.json",
        {"host": "lab", "devices": ["cpu"], "threads": 1, "world_size": 1, "from_step": 0, "started": created}
        | {"ended": created + 45, "exit_code": 0, "machine": {"before": machine, "after": machine}}
        | dict(attempt or {}),
    )
    values = list(curve) if curve is not None else _approach(score, metric, done // exp.train.eval_every)
    evals = [_eval(metric, exp.train.eval_every * (i + 1), value) for i, value in enumerate(values)]
    if "metrics" not in without:
        _write_metrics(path / "metrics.jsonl", evals, exp, done, step_time, created)
    pick = min if metric in ("perplexity", "loss") else max
    best = pick(evals, key=lambda record: record[metric]) if evals else None
    if best and labels is not None and predictions is not None and "predictions" not in without:
        content = {"step": best["step"], "labels": list(labels), "predictions": list(predictions)}
        _write(path / "predictions" / f"step-{best['step']}.json", content)
    if best and losses is not None and "losses" not in without:
        counts = list(tokens) if tokens is not None else [31] * len(losses)
        _write(
            path / "losses" / f"step-{best['step']}.json",
            {"step": best["step"], "losses": list(losses), "tokens": counts},
        )
    if "checks" not in without:
        _write(path / "checks.json", _checks_json(exp) | dict(checks or {}))
    if best and state == "finished" and "result" not in without:
        content = _result_json(exp, best, evals[-1], evals, step_time, total) | dict(result or {})
        _write(path / "result.json", content)
        _write(path / "outcome.json", {"state": state, "reason": reason, "message": None, "step": done})
    return read_run(RunFolder(path))


def predictions_with(labels: Sequence[int], wrong: Sequence[int]) -> list[int]:
    """The labels, flipped (0 <-> 1) at the places in `wrong`."""
    places = set(wrong)
    return [1 - label if place in places else label for place, label in enumerate(labels)]


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def _approach(score: float, metric: str, count: int) -> list[float]:
    """A curve that ends at `score`, from clearly worse."""
    worse = 2.0 if metric in ("perplexity", "loss") else 0.6
    return [score * (worse + (1 - worse) * (i + 1) / count) for i in range(count)]


def _eval(metric: str, step: int, value: float) -> dict[str, Any]:
    if metric == "perplexity":
        return {"step": step, "loss": math.log(value), "perplexity": value}
    return {"step": step, "loss": round(1 - value, 6), "accuracy": value, "f1": value, metric: value}


def _write_metrics(
    path: Path, evals: list[dict[str, Any]], exp: Experiment, done: int, step_time: float, created: float
) -> None:
    noise = random.Random(exp.id)
    records = []
    for step in range(exp.train.log_every, done + 1, exp.train.log_every):
        loss = 2.0 * math.exp(-3 * step / max(done, 1)) + 0.3 + noise.uniform(-0.05, 0.05)
        records.append(
            {"step": step, "kind": "train", "loss": round(loss, 4), "lr": exp.train.lr, "step_time": step_time}
        )
    records += [{**record, "kind": "eval", "seconds": 0.5} for record in evals]
    records.sort(key=lambda record: (record["step"], record["kind"] == "eval"))
    lines = (json.dumps({"t": created + record["step"] * step_time, **record}) for record in records)
    path.write_text("".join(line + "\n" for line in lines))


def _run_json(exp: Experiment, config: dict[str, Any], run_id: str, seed: int, created: float) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": run_id,
        "preset": exp.id,
        "study": None,
        "config": config,
        "config_hash": config_hash(config),
        "seed": seed,
        "command": ["oelm", "run", exp.id, "--seed", str(seed)],
        "cwd": "/lab",
        "host": "lab",
        "devices_asked": "cpu",
        "per_run": 1,
        "after": None,
        "after_any": False,
        "pause": 0,
        "launcher": "local",
        "git_commit": "0123456789abcdef",
        "versions": {"torch": "2.13.0", "transformers": "5.22.0"},
        "created": created,
    }


def _census(exp: Experiment) -> dict[str, Any]:
    shape = exp.model.shape
    assert shape is not None
    total = shape.vocab * shape.d_model + shape.layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.d_ff)
    frozen = shape.layers * len(exp.method.freeze) * shape.d_model**2
    return {"total": total, "trainable": total - frozen, "frozen": frozen, "by_component": {}}


def _checks_json(exp: Experiment) -> dict[str, Any]:
    return {
        "orthogonality": {"tolerance": 1e-5, "worst": 1e-7, "layers": []},
        "census": _census(exp),
        "frozen": {"names": [], "hash": "aa"},
        "true_baseline": exp.method.init == "none",
    }


def _result_json(
    exp: Experiment,
    best: dict[str, Any],
    final: dict[str, Any],
    evals: list[dict[str, Any]],
    step_time: float,
    total: int,
) -> dict[str, Any]:
    metric = exp.metric
    seconds = {"seconds": best["step"] * step_time}
    reached = {}
    if metric == "accuracy":
        for mark in (0.8, 0.9):
            hit = next((r for r in evals if r["accuracy"] >= mark), None)
            reached[str(mark)] = {"step": hit["step"], "seconds": hit["step"] * step_time} if hit else None
    census = _census(exp)
    return {
        "schema": 1,
        "metric": {
            "name": metric,
            "value": best[metric],
            "direction": "lower" if metric in ("perplexity", "loss") else "higher",
        },
        "best": best | seconds,
        "final": final | {"seconds": total * step_time},
        "reached": reached,
        "parameters": census,
        "timing": {
            "step_time_mean": step_time,
            "step_time_std": step_time / 50,
            "step_time_median": step_time,
            "step_time_p95": step_time * 1.05,
            "step_time_p99": step_time * 1.1,
            "steps_measured": total - 100,
            "outliers_dropped": 0,
            "tokens_per_s": 512 / step_time,
            "examples_per_s": 16 / step_time,
            "data_wait_share": 0.004,
        },
        "seconds": {"total": total * step_time + 5, "training": total * step_time, "validation": 2.0},
        "memory": {"device_peak": None, "host_peak": 300 * 2**20 + census["trainable"] * 8},
        "checkpoint_bytes": census["total"] * 4 + census["trainable"] * 8,
        "true_baseline": exp.method.init == "none",
        "frozen": {"hash_before": "aa", "hash_after": "aa", "unchanged": True},
        "data": {
            "name": exp.data.name,
            "fingerprint": f"{exp.data.name}-1",
            "train_examples": 4000,
            "eval_examples": 872,
        },
        "model": {"name": exp.model.name, "fingerprint": f"{exp.model.name}-1"},
        "effective_batch": exp.train.effective_batch,
        "precision": exp.train.precision,
        "device": {"kind": "cpu", "name": "a processor"},
        "threads": 1,
        "world_size": 1,
        "versions": {"torch": "2.13.0", "transformers": "5.22.0"},
    }
