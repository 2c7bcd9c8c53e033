"""Complete run folders without training: chosen configuration, metrics, predictions, losses and result."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from oelm_core.compare.audit_kept import score_of
from oelm_core.compare.config_values import steps_of
from oelm_core.config import Data, Experiment, as_dict, build_experiment, config_hash, override
from oelm_core.method.facts import Census, Orthogonality
from oelm_core.metric import metric_named
from oelm_core.runs import schema
from oelm_core.runs.attempts import path_of
from oelm_core.runs.folder import RunFolder, write_record
from oelm_core.runs.schema import (
    Attempt,
    Checks,
    DataFacts,
    DeviceFacts,
    FrozenProof,
    FrozenWeights,
    Headline,
    Losses,
    MachineState,
    MachineStates,
    MetricLine,
    ModelFacts,
    Outcome,
    PeakMemory,
    Predictions,
    Reached,
    Result,
    RunRecord,
    RunState,
    Seconds,
    StepTiming,
)
from oelm_core.runs.store import Run, read_run

R = TypeVar("R")

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
    score: float | None = None,
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
    """One run folder under `root`, as the launcher, runner and worker leave it.

    `score` is the best headline value; unless given, what the predictions or losses make, else 0.9.
    `number` orders runs in time and makes the id unique; `result`, `checks`, `run`, `attempt` override fields of those
    records; `without` names files to leave out (result, checks, metrics, predictions, losses).
    """
    created = START + 60 * number
    run_id = f"{exp.id}-s{seed}-20260202-{number // 60:04d}{number % 60:02d}-{number:04x}"
    folder = RunFolder(root / run_id)
    for path in (folder.attempts, folder.checkpoints, folder.predictions, folder.losses):
        path.mkdir(parents=True)
    metric, total, judged = exp.metric, exp.train.max_steps or 400, len(labels or losses or ()) or 872
    counts = list(tokens) if tokens is not None else [31] * len(losses or ())
    if score is None:
        score = _score_of(metric, labels, predictions, losses, counts)
    done = total if state == "finished" else total // 2
    folder.write(_with(_run(exp, run_id, seed, created), run))
    folder.write(_state(state, reason, done, total, created))
    write_record(path_of(folder, 1), _with(_attempt(created), attempt))
    values = list(curve) if curve is not None else _approach(score, metric, done // exp.train.eval_every)
    evals = [_eval(metric, exp.train.eval_every * (i + 1), value) for i, value in enumerate(values)]
    if evals:  # no two seeds have the same losses to the last bit, even where their scores are equal
        evals[0].values["loss"] += seed * 1e-9
    if "metrics" not in without:
        folder.metrics.write_bytes(_metrics(evals, exp, done, step_time, created))
    pick = max if metric_named(metric).higher_is_better else min
    best = pick(evals, key=lambda line: line.values[metric]) if evals else None
    if best and labels is not None and predictions is not None and "predictions" not in without:
        found = Predictions(list(labels), list(predictions), best.step)
        write_record(folder.predictions / f"step-{best.step}.json", found)
    if best and losses is not None and "losses" not in without:
        write_record(folder.losses / f"step-{best.step}.json", Losses(list(losses), counts, best.step))
    if "checks" not in without:
        folder.write(_with(_checks(exp, judged), checks))
    if best and state == "finished" and "result" not in without:
        folder.write(_with(_result(exp, best, evals, step_time, total, judged), result))
        folder.write(Outcome(state, reason, step=done))
    return read_run(folder)


def predictions_with(labels: Sequence[int], wrong: Sequence[int]) -> list[int]:
    """The labels, flipped (0 <-> 1) at the places in `wrong`."""
    places = set(wrong)
    return [1 - label if place in places else label for place, label in enumerate(labels)]


def _with(record: R, changes: Mapping[str, Any] | None) -> R:
    """The record with some of its fields given anew, as plain values or as parts of the schema."""
    plain = {**msgspec.to_builtins(record), **msgspec.to_builtins(dict(changes or {}))}
    return schema.convert(plain, type(record))


def _approach(score: float, metric: str, count: int) -> list[float]:
    """A curve that ends at `score`, from clearly worse."""
    worse = 0.6 if metric_named(metric).higher_is_better else 2.0
    return [score * (worse + (1 - worse) * (i + 1) / count) for i in range(count)]


def _eval(metric: str, step: int, value: float) -> MetricLine:
    if metric == "perplexity":
        values = {"loss": math.log(value), "perplexity": value}
    else:
        values = {"loss": round(1 - value, 6), "accuracy": value, "f1": value, metric: value}
    return MetricLine(step, "eval", values=values)


def _metrics(evals: list[MetricLine], exp: Experiment, done: int, step_time: float, created: float) -> bytes:
    noise = random.Random(exp.id)
    lines = []
    for step in range(exp.train.log_every, done + 1, exp.train.log_every):
        loss = 2.0 * math.exp(-3 * step / max(done, 1)) + 0.3 + noise.uniform(-0.05, 0.05)
        values = {"loss": round(loss, 4), "lr": exp.train.lr, "step_time": step_time}
        lines.append(MetricLine(step, "train", values=values))
    lines += [MetricLine(line.step, "eval", values={**line.values, "seconds": 0.5}) for line in evals]
    lines.sort(key=lambda line: (line.step, line.kind == "eval"))
    for line in lines:
        line.t = created + line.step * step_time
    return b"".join(map(schema.encode_metric, lines))


def _run(exp: Experiment, run_id: str, seed: int, created: float) -> RunRecord:
    config = {**as_dict(exp), "seed": seed}
    return RunRecord(
        id=run_id,
        preset=exp.id,
        config=config,
        config_hash=config_hash(config),
        seed=seed,
        command=["oelm", "run", exp.id, "--seed", str(seed)],
        cwd="/lab",
        host="lab",
        devices_asked="cpu",
        git_commit="0123456789abcdef",
        versions={"torch": "2.13.0", "transformers": "5.22.0"},
        created=created,
    )


def _state(state: str, reason: str | None, done: int, total: int, created: float) -> RunState:
    return RunState(
        state=state,
        reason=reason,
        host="lab",
        pid=1,
        started=created,
        devices=["cpu"],
        step=done,
        total=total,
        heartbeat=created + 45,
        ended=created + 45,
    )


def _attempt(created: float) -> Attempt:
    machine = MachineState(load=[0.1, 0.1, 0.1], memory_available=8 * 2**30)
    return Attempt(
        host="lab",
        devices=["cpu"],
        threads=1,
        world_size=1,
        from_step=0,
        started=created,
        ended=created + 45,
        exit_code=0,
        machine=MachineStates(machine, machine),
    )


def _census(exp: Experiment) -> Census:
    shape = exp.model.shape
    assert shape is not None
    total = shape.vocab * shape.d_model + shape.layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.d_ff)
    frozen = shape.layers * len(exp.method.freeze) * shape.d_model**2
    return Census(total=total, trainable=total - frozen, frozen=frozen)


def _checks(exp: Experiment, judged: int) -> Checks:
    return Checks(
        orthogonality=Orthogonality(tolerance=1e-5, worst=1e-7),
        census=_census(exp),
        frozen=FrozenWeights(hash="aa"),
        data=_data(exp, judged),
        model=_model(exp),
        qk_untouched=exp.method.init == "none",
    )


def _score_of(
    metric: str,
    labels: Sequence[int] | None,
    predictions: Sequence[int] | None,
    losses: Sequence[float] | None,
    tokens: Sequence[int],
) -> float:
    kept = Losses(list(losses), list(tokens)) if losses else Predictions(list(labels or ()), list(predictions or ()))
    found = score_of(metric, kept)
    return 0.9 if found is None or math.isnan(found) else found


def _fingerprint(exp: Experiment) -> str:
    """One for all that the data's settings make the same."""
    data = exp.data.model_dump(exclude={"name", "path", "metric", "train_examples", "eval_examples", "max_length"})
    other = {key: value for key, value in data.items() if value != Data(name="").model_dump().get(key)}
    other.pop("classes", None)
    return f"{exp.data.name}-{json.dumps(other) if other else 1}"


def _data(exp: Experiment, judged: int) -> DataFacts:
    return DataFacts(
        name=exp.data.name,
        fingerprint=_fingerprint(exp),
        train_examples=exp.data.train_examples or 4000,
        eval_examples=judged,
    )


def _model(exp: Experiment) -> ModelFacts:
    return ModelFacts(name=exp.model.name, fingerprint=f"{exp.model.name}-1")


def _result(
    exp: Experiment, best: MetricLine, evals: list[MetricLine], step_time: float, total: int, judged: int
) -> Result:
    metric, final = exp.metric, evals[-1]
    reached: dict[str, Reached | None] = {}
    if metric == "accuracy":
        for mark in (0.8, 0.9):
            hit = next((line for line in evals if line.values["accuracy"] >= mark), None)
            reached[str(mark)] = Reached(hit.step, hit.step * step_time) if hit else None
    census = _census(exp)
    parameters, trainable = census.total or 0, census.trainable or 0
    return Result(
        metric=Headline(metric, best.values[metric], metric_named(metric).direction),
        best={"step": best.step, **best.values, "seconds": best.step * step_time},
        final={"step": final.step, **final.values, "seconds": total * step_time},
        reached=reached,
        parameters=census,
        timing=StepTiming(
            step_time_mean=step_time,
            step_time_std=step_time / 50,
            step_time_median=step_time,
            step_time_p95=step_time * 1.05,
            step_time_p99=step_time * 1.1,
            steps_measured=total - 100,
            outliers_dropped=0,
            tokens_per_s=512 / step_time,
            examples_per_s=16 / step_time,
            data_wait_share=0.004,
        ),
        seconds=Seconds(total=total * step_time + 5, training=total * step_time, validation=2.0),
        memory=PeakMemory(host_peak=300 * 2**20 + trainable * 8),
        checkpoint_bytes=parameters * 4 + trainable * 8,
        qk_untouched=exp.method.init == "none",
        frozen=FrozenProof("aa", "aa", unchanged=True),
        data=_data(exp, judged),
        model=_model(exp),
        effective_batch=exp.train.effective_batch,
        steps=steps_of(as_dict(exp)) or total,
        precision=exp.train.precision,
        device=DeviceFacts("cpu", "a processor"),
        threads=1,
        world_size=1,
        versions={"torch": "2.13.0", "transformers": "5.22.0"},
    )
