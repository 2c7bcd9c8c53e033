"""Runs that other programs logged, as drafts of ours: what their names mean, which metric counts, what is unknown."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oelm_core.formatting import metric_value
from oelm_core.method.facts import Census
from oelm_core.metric import METRICS, best_of, metric_named
from oelm_core.published.import_checkpoint import CheckpointCounts
from oelm_core.published.import_draft import Draft
from oelm_core.published.import_model import Network, model_section
from oelm_core.published.import_names import recipe_name, seed_in_name
from oelm_core.published.import_settings import (
    OTHER_NAMES,
    SHAPE,
    TRAIN,
    AuthorConfig,
    one_line,
    read_settings,
    unreadable,
)
from oelm_core.runs.schema import (
    Evaluated,
    Headline,
    MetricLine,
    Result,
    RunState,
    Seconds,
)

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

Part = Literal["train", "eval"]
End = Literal["finished", "failed", "stopped"]
MOST_NAMES = 200
"""Different metrics of one run that are kept."""
MOST_STEPS = 10**15
LAST_TIME = 1e11
"""Seconds since 1970 that a clock may show."""
_PREFIX = re.compile(r"(train|training|eval|evaluation|val|valid|validation|dev|test)[/_. ](.+)", re.I)
_NAMES = {
    "learning_rate": "lr",
    "acc": "accuracy",
    "ppl": "perplexity",
    "f1_score": "f1",
    "matthews_correlation": "matthews",
    "mcc": "matthews",
    "runtime": "seconds",
    "samples_per_second": "examples_per_s",
}
"""Other programs' names -> ours."""
_PASSED_OVER = {"epoch", "global_step", "step", "t", "kind", "what", "message", "total_flos"}
_OF_TRAINING = {"loss", "lr", "grad_norm", "train_loss", "step_time", "tokens_per_s"}
"""What a name without a prefix is of."""
_SETTINGS = {
    **OTHER_NAMES,
    "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size",
    "num_train_epochs": "num_epochs",
    "eval_steps": "eval_interval",
    "model_name_or_path": "model_name",
    "_name_or_path": "model_name",
    "task_name": "dataset",
    "dataset_name": "dataset",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
    "max_position_embeddings": "max_seq_len",
    "num_labels": "num_classes",
    # our own, as `oelm mirror` hands them on
    "train.lr": "learning_rate",
    "train.batch_size": "batch_size",
    "train.max_steps": "max_steps",
    "train.epochs": "num_epochs",
    "train.accumulate": "gradient_accumulation_steps",
    "data.name": "dataset",
    "data.classes": "num_classes",
    "model.name": "model_name",
}
_METHODS = ("method.name", "method")
"""Where a method's name is found, if anywhere."""


@dataclass
class LoggedRun:
    """What one run's files say, under the names that the other program used."""

    path: Path
    kind: str
    name: str = ""
    points: dict[tuple[Part, int], MetricLine] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    told_by: dict[str, str] = field(default_factory=dict)
    """Setting -> the file it is from."""
    file: str = ""
    """The file that is being read."""
    created: float | None = None
    ended: End = "stopped"
    total: int | None = None
    seconds: float | None = None
    counts: CheckpointCounts | None = None
    is_language_model: bool = False
    is_encoder: bool = False
    notes: list[str] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, name: str, value: object, step: object, t: float = 0.0, prefix: str = "") -> None:
        """One number. What is no number, or of a step that no run has, is left out, and noted if it should be one."""
        part, ours = named(f"{prefix}/{name}" if prefix else name)
        if ours is None or part is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
            if ours in _OF_TRAINING or ours in METRICS:  # others may be words or pictures
                self.leave_out(name, "a value is not a number")
            return
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MOST_STEPS:
            self.leave_out(name, "a step is not a whole number")
            return
        t = t if 0 <= t < LAST_TIME else 0.0
        line = self.points.setdefault((part, step), MetricLine(step, part, t, {}))
        if len(line.values) < MOST_NAMES:
            line.values[ours] = float(value)
            line.t = line.t or t

    def tell(self, settings: Mapping[str, Any], file: str | None = None) -> None:
        """Settings, which replace those of the same name."""
        self.settings |= settings
        self.told_by |= dict.fromkeys(settings, file or self.file)

    def leave_out(self, key: str, why: str) -> None:
        """Notes, once, what the file that is being read has under a key and should not."""
        note = unreadable(self.file, key, why)
        if note not in self.notes and len(self.notes) < MOST_NAMES:
            self.notes.append(note)

    @property
    def lines(self) -> list[MetricLine]:
        return sorted(self.points.values(), key=lambda line: (line.step, line.kind == "eval"))


def named(name: str) -> tuple[Part | None, str | None]:
    """(train or eval, our name); None for what is not a metric of either.

    >>> named("eval/matthews_correlation"), named("train_loss"), named("learning_rate"), named("test/accuracy")
    (('eval', 'matthews'), ('train', 'loss'), ('train', 'lr'), (None, None))
    """
    found = _PREFIX.fullmatch(name)
    rest = (found[2] if found else name).strip().lower()
    ours = _NAMES.get(rest, re.sub(r"[^a-z0-9_./-]+", "-", rest))[:60]
    if not ours or ours in _PASSED_OVER:
        return None, None
    if found is None:
        return "train" if ours in _OF_TRAINING else "eval" if ours in METRICS else "train", ours
    prefix = found[1].lower()
    if prefix == "test":  # a score on a test set is no validation to choose by
        return None, None
    return "train" if prefix.startswith("train") else "eval", ours


def plain_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were kept as text, as what they say: "0.001" is a number."""
    found = dict(settings)
    for key, value in settings.items():
        if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?|true|false|null", value.strip()):
            with contextlib.suppress(ValueError):  # 007 is no number of JSON
                found[key] = json.loads(value)
    return found


def draft_of(run: LoggedRun, catalogue: Catalogue) -> Draft:
    """The run in our words; nothing is guessed beyond what the names say."""
    settings = plain_values(run.settings)
    known, misfits = read_settings(settings, _SETTINGS)
    notes = [*run.notes, *(unreadable(run.told_by.get(key, run.file), key, why) for key, why in misfits.items())]
    lines = run.lines
    evaluations = [line for line in lines if line.kind == "eval"]
    metric = _headline(run, evaluations, notes)
    kind = "gpt" if run.is_language_model else "bert" if run.is_encoder else None
    family, model = model_section(Network(family=kind, **known.named(*SHAPE)), catalogue)
    if known.model_name and "name" not in model:
        model["name"] = known.model_name
    place = run.path.parent / (re.sub(r"[/\\]+", "-", one_line(run.name)).strip(". ") or run.path.name)
    seed = known.seed
    if seed is None and (seed := seed_in_name(place)) is not None:
        notes.append(f"the seed is taken from the run's name, {seed}.")
    recipe = recipe_name(place, seed)
    method = next((settings[key] for key in _METHODS if isinstance(settings.get(key), str)), "unknown")
    config = {
        "imported": True,
        "id": recipe,
        "title": recipe,
        "family": family or "unknown",
        "baseline": None,
        "model": model,
        "data": _data(known, metric),
        "method": {"name": one_line(method)},
        "train": known.named(*TRAIN),
        "clock": None,
    }
    known_time = run.created is not None and 0 <= run.created < LAST_TIME
    created = run.created if known_time and run.created is not None else _age(run.path)
    return Draft(
        path=run.path,
        kind=run.kind,
        fingerprint=run.digest.hexdigest(),
        recipe=recipe,
        config=config,
        result=_result(run, metric, evaluations, notes),
        state=_state(run, lines, created),
        created=created,
        seed=seed,
        lines=lines,
        notes=notes,
    )


def _data(known: AuthorConfig, metric: str) -> dict[str, Any]:
    classes = known.classes if metric not in ("perplexity", "loss") else None
    data = {"name": known.dataset.lower() if known.dataset else None, "metric": metric, "classes": classes}
    return {name: value for name, value in data.items() if value is not None}


def _headline(run: LoggedRun, evaluations: list[MetricLine], notes: list[str]) -> str:
    """The metric that counts; accuracies in percent become fractions, and a language model's loss a perplexity."""
    for name in (one.name for one in METRICS.values() if one.is_share):
        values = [line.values[name] for line in evaluations if name in line.values]
        if any(1 < abs(value) <= 100 for value in values):
            notes.append(f"{name} is in percent there, and a fraction here.")
            for line in evaluations:
                if name in line.values:
                    line.values[name] /= 100
    there = {name for line in evaluations for name in line.values}
    for name in ("accuracy", "perplexity", "matthews", "f1"):
        if name in there:
            return name
    if run.is_language_model and "loss" in there:
        for line in evaluations:
            if line.values.get("loss", 1e9) < 700:
                line.values["perplexity"] = math.exp(line.values["loss"])
        notes.append("the perplexity is exp of the validation loss.")
        return "perplexity"
    return "loss"


def _result(run: LoggedRun, metric: str, evaluations: list[MetricLine], notes: list[str]) -> Result:
    scored: list[Evaluated] = [
        {"step": line.step, **line.values} for line in evaluations if math.isfinite(line.values.get(metric, math.nan))
    ]
    best, final = best_of(scored, metric), scored[-1] if scored else None
    value = best[metric] if best else None
    if best is None:
        notes.append("there is no validation in its files.")
    elif len(scored) > 1:
        shown = metric_value(metric, value, unit=True)
        notes.append(
            f"the {metric} is that of the best of {len(scored)} validations, {shown} at step {best['step']:,}."
        )
    counts = run.counts
    return Result(
        imported=True,
        metric=Headline(metric, value, metric_named(metric).direction),
        best=best,
        final=final,
        parameters=Census(total=counts.total if counts else None),
        seconds=Seconds(total=run.seconds),
    )


def _state(run: LoggedRun, lines: Iterable[MetricLine], created: float) -> RunState:
    return RunState(
        state=run.ended,
        reason={"finished": "completed", "failed": "error"}.get(run.ended),
        message="Imported; its files do not say that it came to its end." if run.ended == "stopped" else None,
        step=max((line.step for line in lines), default=0),
        total=run.total,
        started=created,
        heartbeat=created,
    )


def _age(path: Path) -> float:
    folder = path if path.is_dir() else path.parent
    ages = [file.lstat().st_mtime for file in folder.iterdir()]
    return float(int(min(ages))) if ages else 0.0
