"""Scores a finished run on other text, in a process of its own: `python -m oelm_core.training.later_score`.

Its last line on stdout is the answer, or why there is none; the light side is `oelm_core/launch/later_score.py`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from oelm_core.errors import BadInput
from oelm_core.runs import ledger
from oelm_core.runs.evaluations import ScoreAnswer, later_scores
from oelm_core.runs.folder import RunFolder, replace_file
from oelm_core.runs.schema import LaterScore, Predictions, encode
from oelm_core.training.answering import answer
from oelm_core.training.supervision import StopRequest

SETTABLE = ("data.text", "data.label", "data.labels")
"""What of a run's settings other text may have otherwise: the names of its columns and labels."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="oelm_core.training.later_score", description="Scores a finished run.")
    parser.add_argument("--run-folder", required=True, type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args(arguments)
    folder = RunFolder(asked.run_folder)
    return answer([folder], lambda: score(folder, asked.data, asked.split, asked.again, asked.set))


def score(folder: RunFolder, data: str, split: str | None, again: bool, settings: list[str]) -> ScoreAnswer:
    """The score of the best checkpoint; one that was kept before is given again, unless `again` asks for a new look."""
    from oelm_core.config import override
    from oelm_core.data import sets
    from oelm_core.training.distributed import join
    from oelm_core.training.finished import load_finished
    from oelm_core.training.precision import Precision, choose_precision
    from oelm_core.training.session import device_kind
    from oelm_core.training.tasks import load_scored
    from oelm_core.training.test_score import note_look, score_of

    for one in settings:
        if one.partition("=")[0].strip() not in SETTABLE:
            raise BadInput(f"--set {one}: a finished run keeps its settings; only {', '.join(SETTABLE)} can be given.")
    found = load_finished(folder)
    experiment = override(found.experiment, settings) if settings else found.experiment
    text = load_scored(experiment, found.tokenizer, found.model, sets.cache_dir(), _say, data, split)
    events = list(ledger.read_ledger(folder.path.parent).of("looked-at-test"))
    before = [event for event in events if event.data == text.fingerprint]
    kept = next((one for one in later_scores(folder) if one.score.fingerprint == text.fingerprint), None)
    looks = ScoreAnswer(looks=len(before), own_looks=sum(event.run == folder.id for event in before))
    if kept is not None and kept.score.step == found.step and not again:
        looks.kept, looks.file = kept, str(_file(folder, kept))
        return looks
    ranks = join(device_kind())
    note = None
    precision = Precision("fp32", ranks.device)
    if ranks.device.type == "cuda":
        precision = choose_precision(experiment.train.precision, ranks.device)
    elif experiment.train.precision != "fp32":
        note = f"scored in fp32 on a CPU; the recipe's precision is {experiment.train.precision}"
    precision.engage()
    model = found.model.to(ranks.device)
    evaluation = text.score(model, ranks, precision, StopRequest())
    note_look(folder, found.run, text.fingerprint)
    details = evaluation.details
    details.step = found.step
    scored = LaterScore(
        score=score_of(evaluation, text, found.step, note),
        metric=experiment.metric,
        looked=[*(kept.looked if kept else []), round(time.time(), 3)],
        predictions=details if isinstance(details, Predictions) else None,
        losses=None if isinstance(details, Predictions) else details,
    )
    file = _file(folder, kept or scored)
    file.parent.mkdir(exist_ok=True)
    replace_file(file, encode(scored) + b"\n")
    looks.scored, looks.kept, looks.file = True, scored, str(file)
    return looks


def _file(folder: RunFolder, scored: LaterScore) -> Path:
    """Named after the text, and after what is in it: two files of one name do not meet."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(scored.score.source).name).strip("-").lower()[:40] or "text"
    return folder.later_scores / f"{name}-{scored.score.fingerprint[:8]}.json"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
