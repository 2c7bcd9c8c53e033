"""What evaluations leave in a run folder: generated samples, per-example predictions, per-sequence losses."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct, structs

from oelm_core.metric import best_of, default_metric
from oelm_core.runs.folder import RunFolder, numbered, read_record
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import (
    AttentionLook,
    LaterScore,
    Losses,
    Misfit,
    Predictions,
    Result,
    RunRecord,
    Sample,
    decode,
)
from oelm_core.small_files import open_plain_file

SCORE = "score.json"
"""In test/: the score as result.json repeats it. A run that ended between the two does not look a second time."""
TAIL = 4_000_000
"""Bytes looked at from the end of samples.jsonl."""
_STEP_FILE = re.compile(r"^step-(\d+)\.json$")


class Answer(Struct, kw_only=True, omit_defaults=True):
    """What a process that works on finished runs says to the command that began it."""

    error: str | None = None
    """Why there is nothing else."""
    code: int = 0
    """Exit code of the command."""


class ScoreAnswer(Answer):
    """A score, new or kept from before."""

    scored: bool = False
    """Whether it was scored now."""
    kept: LaterScore | None = None
    file: str | None = None
    looks: int = 0
    """Lines of the ledger that tell of a look at this text before this one."""
    own_looks: int = 0
    """Those of this run."""


class PublishAnswer(Answer):
    """A network was written for others."""

    step: int = 0
    """Of the checkpoint."""
    network: str = ""
    """Its class."""
    loader: str = ""
    """Who can load the folder: transformers alone, or oelm_core."""


class GeneratedPiece(Answer):
    """A line of the process that continues a prompt: a run begins (`step`), some of its text, or an error, the last."""

    run: str = ""
    step: int | None = None
    text: str = ""
    note: str = ""


def read_samples(path: Path, most: int) -> list[Sample]:
    """The newest generated texts of a run, oldest first; torn lines are passed over."""
    try:
        with open(open_plain_file(path), "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines[-most - 1 :]:
        try:
            found.append(decode(line, Sample))
        except Misfit:
            continue
    return found


def kept_predictions(folder: RunFolder) -> list[Predictions]:
    """Those of every evaluation, ascending by step; torn files are passed over. Older runs kept only the best so far.

    A file says its step by its name.
    """
    return [found for step in _steps(folder.predictions) if (found := _predictions(folder.predictions, step))]


def kept_losses(folder: RunFolder) -> list[Losses]:
    """As `kept_predictions`, of a language model."""
    return [found for step in _steps(folder.losses) if (found := _losses(folder.losses, step))]


def best_predictions(folder: RunFolder) -> Predictions | None:
    """Those of the best evaluation; where that file is torn, of the one before it. Their `step` says which."""
    steps = _up_to_best(folder, folder.predictions)
    return next((found for step in steps if (found := _predictions(folder.predictions, step))), None)


def best_losses(folder: RunFolder) -> Losses | None:
    """As `best_predictions`, of a language model."""
    steps = _up_to_best(folder, folder.losses)
    return next((found for step in steps if (found := _losses(folder.losses, step))), None)


def test_predictions(folder: RunFolder) -> Predictions | None:
    """Of the test text (`data.test`), by the checkpoint that `result.json` names."""
    return _checked_predictions(folder.test / "predictions.json")


def test_losses(folder: RunFolder) -> Losses | None:
    return _checked_losses(folder.test / "losses.json")


def last_attention(folder: RunFolder) -> AttentionLook | None:
    """The last look at what the heads of a run attend to; None where it took none (`train.attention_stats`)."""
    steps = _steps(folder.attention)
    return read_record(step_file(folder.attention, steps[-1]), AttentionLook, size="details") if steps else None


def later_scores(folder: RunFolder) -> list[LaterScore]:
    """What `oelm evaluate` kept: the best checkpoint on other texts, by file name."""
    files = sorted(folder.later_scores.glob("*.json")) if folder.later_scores.is_dir() else []
    return [found for file in files if (found := read_record(file, LaterScore, size="details"))]


def step_file(folder: Path, step: int) -> Path:
    """Where an evaluation's details are kept: `predictions/step-500.json`."""
    return folder / f"step-{step}.json"


def step_of(path: Path) -> int | None:
    """The step in `step-500.json`; None for other files."""
    match = _STEP_FILE.match(path.name)
    return int(match[1]) if match else None


def _steps(folder: Path) -> list[int]:
    return numbered(folder, "step-", ".json")


def _predictions(folder: Path, step: int) -> Predictions | None:
    found = _checked_predictions(step_file(folder, step))
    return structs.replace(found, step=step) if found else None


def _losses(folder: Path, step: int) -> Losses | None:
    found = _checked_losses(step_file(folder, step))
    return structs.replace(found, step=step) if found else None


def _checked_predictions(path: Path) -> Predictions | None:
    found = read_record(path, Predictions, size="details")
    if not found or not found.labels or len(found.labels) != len(found.predictions):
        return None
    return found if min(*found.labels, *found.predictions) >= 0 else None


def _checked_losses(path: Path) -> Losses | None:
    found = read_record(path, Losses, size="details")
    if found is None or not found.losses or len(found.losses) != len(found.tokens):
        return None
    if found.documents and len(found.documents.losses) != len(found.documents.tokens):
        found.documents = None
    return found


def _up_to_best(folder: RunFolder, kept: Path) -> list[int]:
    """Steps whose details are kept, the best one first, then those before it; all, newest first, if none is known."""
    best = best_step(folder)
    return [step for step in reversed(_steps(kept)) if best is None or step <= best]


def best_step(folder: RunFolder) -> int | None:
    """The step a run's headline is of: as its result says, else by the evaluations so far; None before the first."""
    result = folder.read(Result)
    if result is not None and result.best:
        step = result.best.get("step")
        return None if step is None else int(step)
    run = folder.read(RunRecord)
    name = (run.setting("data.metric") if run else None) or default_metric(run.setting("data.classes") if run else None)
    lines = read_metrics(folder.metrics, "eval")
    found = best_of([{**line.values, "step": line.step} for line in lines], name)
    return int(found["step"]) if found else None
