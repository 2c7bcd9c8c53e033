"""The test text, scored once: by the best checkpoint, when training has ended. Every look is a line of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm_core.runs import ledger
from oelm_core.runs.evaluations import SCORE
from oelm_core.runs.folder import RunFolder, read_record, replace_file, write_record
from oelm_core.runs.schema import Predictions, RunRecord, TestScore, encode, is_draw
from oelm_core.training import checkpoint
from oelm_core.training.checkpoint import Checkpoint
from oelm_core.training.evaluation import Evaluation, TestText

if TYPE_CHECKING:
    from oelm_core.training.session import Session


def score_test(s: Session) -> TestScore | None:
    """Scores `data.test`, on every rank. The model is left with the weights that were scored.

    A draw of a tuning chooses a setting, so the test text stays unseen.
    """
    text = s.task.test
    if text is None or is_draw(s.run.tuning):
        return None
    step, note = _load_best(s)
    kept = s.ranks.gather(read_record(s.folder.test / SCORE, TestScore))[0]
    if kept is not None and (kept.step, kept.fingerprint) == (step, text.fingerprint):
        return kept
    s.recorder.progress(s.progress.step, phase="testing", force=True)
    s.model.eval()
    with s.memory.evaluating(), s.uncompiled():
        found = text.score(s.model, s.ranks, s.precision, s.stop)
    score = score_of(found, text, step, note)
    if s.ranks.main:
        note_look(s.folder, s.run, text.fingerprint)
        s.folder.test.mkdir(exist_ok=True)
        found.details.step = step
        name = "predictions" if isinstance(found.details, Predictions) else "losses"
        replace_file(s.folder.test / f"{name}.json", encode(found.details) + b"\n")
        write_record(s.folder.test / SCORE, score)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in found.values.items())
        s.recorder.say(f"test ({text.source}, {text.examples:,} examples) of step {step}  {shown}")
        if note:
            s.recorder.event(s.progress.step, "test", note)
    return score


def score_of(found: Evaluation, text: TestText, step: int, note: str | None = None) -> TestScore:
    return TestScore(
        values={**found.values},
        step=step,
        examples=text.examples,
        source=text.source,
        fingerprint=text.fingerprint,
        note=note,
    )


def note_look(folder: RunFolder, run: RunRecord, fingerprint: str) -> None:
    """A line of the ledger, before anybody can see the score."""
    event = ledger.about_run("looked-at-test", folder.id, run)
    event.data = fingerprint
    ledger.append(event, folder.path.parent)


def _load_best(s: Session) -> tuple[int, str | None]:
    """(step of the weights now in the model, what must be said of them): the best's, else the final ones."""
    best, last = s.progress.best_step, s.progress.step
    if best is None or best == last:
        return last, None
    path = s.folder.checkpoints / f"step-{best}"
    found = checkpoint.verify(path) if s.ranks.main else None
    problem = s.ranks.gather(found if isinstance(found, str) else None)[0]
    if problem is not None:
        return last, f"the best checkpoint (step {best}) is gone or damaged ({problem}); the final weights were scored"
    state = found.state if isinstance(found, Checkpoint) else checkpoint.CheckpointState(step=best)
    checkpoint.load_model(s.model, Checkpoint(path, state).tensors("model"), path)
    return best, None
