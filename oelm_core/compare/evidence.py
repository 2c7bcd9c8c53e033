"""What one run's folder proves: its records, what was measured, and what is missing, with the reason."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oelm_core.compare.settings import Config, readable_config
from oelm_core.method.facts import Census
from oelm_core.metric import best_of
from oelm_core.runs import attempts
from oelm_core.runs.evaluations import last_attention
from oelm_core.runs.folder import problem_of
from oelm_core.runs.metrics_file import read_curves
from oelm_core.runs.schema import (
    Attempt,
    AttentionLook,
    Checks,
    Evaluated,
    Headline,
    MetricLine,
    Record,
    Result,
    RunRecord,
)
from oelm_core.runs.store import headline_metric

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

TRAIN_POINTS = 400
"""Points of a training curve kept for plots."""


@dataclass(frozen=True)
class Evidence:
    """One run, as its own records show it. Unknown things are None or absent, never guessed."""

    run: Run
    record: RunRecord
    config: Config
    result: Result
    """Where there is none yet, the best and the last evaluation stand in."""
    checks: Checks
    attempts: tuple[Attempt, ...]
    metric: str
    """Name of the headline metric."""
    step: int | None
    """The last one."""
    evaluations: tuple[MetricLine, ...] = ()
    train: tuple[MetricLine, ...] = ()
    """Thinned to a plot's worth."""
    attention: AttentionLook | None = None
    values: dict[str, float] = field(default_factory=dict)
    """By the names in MEASURES, and every metric of the best evaluation by its own name; finite numbers only."""
    missing: tuple[str, ...] = ()
    older: tuple[Evidence, ...] = ()
    """Earlier runs of the same recipe and seed, which this one stands for."""

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def preset(self) -> str:
        return self.run.preset

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def has_result(self) -> bool:
        return "metric" in self.values

    @property
    def score(self) -> float:
        """The headline metric at the best validation; only where `has_result`."""
        return self.values["metric"]

    @property
    def diverged(self) -> bool:
        """Whether it ended in numbers that are not finite: told by its reason, or seen in its validations."""
        if not self.run.is_over or self.run.reason == "nonfinite":
            return self.run.is_over
        seen = [line.values[self.metric] for line in self.evaluations if self.metric in line.values]
        return bool(seen) and not any(map(is_finite, seen)) and not self.has_result

    @property
    def started(self) -> float:
        return min((made.started for made in self.attempts if made.started is not None), default=self.run.created)

    @property
    def qk_untouched(self) -> bool | None:
        """Whether Q and K started as they were loaded or drawn; None where nobody looked."""
        return self.checks.qk_untouched if self.result.qk_untouched is None else self.result.qk_untouched

    @property
    def weights(self) -> str | None:
        """Fingerprint of the network that was loaded or drawn."""
        return self.result.model.fingerprint or self.checks.model.fingerprint

    @property
    def text(self) -> str | None:
        """Fingerprint of the data that was read."""
        return self.result.data.fingerprint or self.checks.data.fingerprint

    @property
    def steps(self) -> int | None:
        """Optimiser steps done by a run that came to its end; None for the others."""
        return (self.result.steps or self.step) if self.run.state == "finished" else None

    @property
    def eval_examples(self) -> int | None:
        """Validation examples, or sequences, that it was judged on."""
        return self.result.data.eval_examples or self.checks.data.eval_examples

    @property
    def versions(self) -> dict[str, str]:
        return self.result.versions or self.record.versions


def gather(run: Run) -> Evidence:
    """Reads everything the comparison needs from a run's folder; a torn or missing file only costs its own numbers."""
    folder = run.folder
    record = folder.read(RunRecord) or RunRecord(config={})
    found = folder.read(Result)
    config = readable_config(record.config)
    evaluations, train = read_curves(folder.metrics, TRAIN_POINTS)
    metric = found.metric.name if found and found.metric else headline_metric(config)
    last = (found.final if found else None) or {}
    evidence = Evidence(
        run=run,
        record=record,
        config=config,
        result=_with_evaluations(found or Result(), metric, evaluations),
        checks=folder.read(Checks) or Checks(),
        attempts=tuple(attempts.read_all(folder)),
        metric=metric,
        step=int(last.get("step") or run.step or (evaluations[-1].step if evaluations else 0)) or None,
        evaluations=tuple(evaluations),
        train=tuple(train),
        attention=last_attention(folder),
        missing=(*_missing(run, found, evaluations), *_unreadable_proofs(run)),
    )
    return dataclasses.replace(evidence, values=_values(evidence))


def is_finite(value: float | None) -> bool:
    """NaN and infinity stay out of tables, axes and JSON."""
    return value is not None and math.isfinite(value)


def _with_evaluations(result: Result, metric: str, evaluations: list[MetricLine]) -> Result:
    """The result; where it has no best evaluation, those of metrics.jsonl stand in."""
    if not result.best:
        scored = [_evaluated(line) for line in evaluations if is_finite(line.values.get(metric))]
        if scored:
            result = replace(result, best=best_of(scored, metric), final=scored[-1])
    if result.metric is None:
        result = replace(result, metric=Headline(metric, (result.best or {}).get(metric)))
    return result


def _evaluated(line: MetricLine) -> Evaluated:
    """A line of metrics.jsonl as result.json has it. Its `seconds` are those of the evaluation, not of the run."""
    values = {name: value if is_finite(value) else None for name, value in line.values.items() if name != "seconds"}
    return {"step": line.step, **values}


def _missing(run: Run, result: Result | None, evaluations: list[MetricLine]) -> list[str]:
    """What a reader of the table should know is not there, a sentence each."""
    scored = evaluations or (result is not None and result.metric is not None and result.metric.value is not None)
    if run.state != "finished":
        rest = "its best validation so far is shown" if scored else "no evaluation was recorded"
        return [f"{run.id}: {run.state_and_reason}, so not complete; {rest}."]
    missing = [f"{run.id}: imported; what its files do not say is unknown."] if run.imported else []
    if result is None:
        why = _unreadable(run, Result) or f"{Result.FILE} is not there"
        rest = "its best validation is taken from metrics.jsonl" if evaluations else "no numbers"
        missing.append(f"{run.id}: {why}; {rest}.")
    if not scored:
        missing.append(f"{run.id}: no evaluation was recorded.")
    return missing


def _unreadable_proofs(run: Run) -> list[str]:
    """Of what else is in the folder, what is there and cannot be read."""
    checks = _unreadable(run, Checks)
    lost = [f"{run.id}: {checks}; what it proves is unknown."] if checks else []
    made = (attempts.path_of(run.folder, number) for number in attempts.numbers(run.folder))
    return lost + [f"{run.id}: {problem}" for path in made if (problem := problem_of(path, Attempt))]


def _unreadable(run: Run, kind: type[Record]) -> str | None:
    """Why a record that is there cannot be read, with the key that does not fit; None for the others."""
    problem = run.folder.unreadable(kind)
    return problem.rstrip(".") if problem else None


# -- what is measured on a run -----------------------------------------------------------------------------------------


def _at(evaluated: Evaluated | None, name: str) -> float | None:
    return (evaluated or {}).get(name)


def _validations(e: Evidence) -> int | None:
    return sum(is_finite(line.values.get(e.metric)) for line in e.evaluations) or None


def _headline(e: Evidence) -> float | None:
    return e.result.metric.value if e.result.metric else None


def _census(e: Evidence) -> Census:
    return e.checks.census if e.result.parameters.total is None else e.result.parameters


# name -> what it is, and where it is read
MEASURES: dict[str, tuple[str, Callable[[Evidence], float | None]]] = {
    "metric": ("the headline metric at the best validation", _headline),
    "best_step": ("step of the best validation", lambda e: _at(e.result.best, "step")),
    "best_seconds": ("wall clock until then", lambda e: _at(e.result.best, "seconds")),
    "final": ("the headline metric at the last validation", lambda e: _at(e.result.final, e.metric)),
    "final_step": ("step of the last validation", lambda e: _at(e.result.final, "step")),
    "final_loss": ("loss at the last validation", lambda e: _at(e.result.final, "loss")),
    "validations": ("validations that the best was chosen from", _validations),
    "eval_examples": ("validation examples", lambda e: e.eval_examples),
    "train_examples": ("training examples", lambda e: e.result.data.train_examples or e.checks.data.train_examples),
    "steps": ("optimiser steps done", lambda e: e.steps),
    "effective_batch": ("examples in an optimiser step", lambda e: e.result.effective_batch),
    "total": ("parameters", lambda e: _census(e).total),
    "trainable": ("parameters that train", lambda e: _census(e).trainable),
    "frozen": ("parameters that do not", lambda e: _census(e).frozen),
    "step_time": ("mean seconds per optimiser step", lambda e: e.result.timing.step_time_mean),
    "step_time_std": ("standard deviation of the steps", lambda e: e.result.timing.step_time_std),
    "step_time_median": ("median seconds per step", lambda e: e.result.timing.step_time_median),
    "step_time_p95": ("95th percentile", lambda e: e.result.timing.step_time_p95),
    "step_time_p99": ("99th percentile", lambda e: e.result.timing.step_time_p99),
    "steps_measured": ("steps that were timed", lambda e: e.result.timing.steps_measured),
    "tokens_per_s": ("tokens a second", lambda e: e.result.timing.tokens_per_s),
    "examples_per_s": ("examples a second", lambda e: e.result.timing.examples_per_s),
    "data_wait_share": ("share of the time spent waiting for data", lambda e: e.result.timing.data_wait_share),
    "seconds": ("wall clock of the run", lambda e: e.result.seconds.total),
    "training_seconds": ("of that, training steps", lambda e: e.result.seconds.training),
    "validation_seconds": ("of that, validations", lambda e: e.result.seconds.validation),
    "memory": ("peak bytes, of the card if any", lambda e: e.result.memory.device_peak or e.result.memory.host_peak),
    "checkpoint_bytes": ("size of a checkpoint", lambda e: e.result.checkpoint_bytes),
    "qk_row_norm": ("mean norm of a Q/K row at the start", lambda e: e.checks.qk_scale.mean_row_norm),
}


def _values(e: Evidence) -> dict[str, float]:
    found = {name: read(e) for name, (_, read) in MEASURES.items()}
    found |= {name: value for name, value in (e.result.best or {}).items() if name not in ("step", "seconds")}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
