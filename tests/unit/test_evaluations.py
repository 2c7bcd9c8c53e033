"""What evaluations leave in a run folder, read back: every one, the best one, and those of the test text."""

from __future__ import annotations

from pathlib import Path

from oelm_core.runs import evaluations
from oelm_core.runs.evaluations import best_losses, best_predictions, kept_losses, kept_predictions
from oelm_core.runs.folder import RunFolder, write_record
from oelm_core.runs.schema import DocumentLosses, Losses, Predictions
from tests.run_factory import GPT, experiment, write_run

LABELS = [0, 1, 1, 0]


def classifier(root: Path, curve: list[float], **more: object) -> RunFolder:
    """A run with predictions of every evaluation: the first label is predicted as many times as its number."""
    folder = write_run(root, experiment("reviews-baseline"), curve=curve, **more).folder
    for number in range(1, len(curve) + 1):
        write_record(folder.predictions / f"step-{100 * number}.json", Predictions(LABELS, [number % 2] * 4))
    return folder


def test_every_evaluation_is_read_in_order_and_torn_ones_are_passed_over(tmp_path: Path) -> None:
    folder = classifier(tmp_path, [0.5, 0.7, 0.6, 0.65])
    (folder.predictions / "step-300.json").write_text('{"labels": [0, 1')
    write_record(folder.predictions / "step-1000.json", Predictions(LABELS, [1, 1]))  # cut short
    assert [found.step for found in kept_predictions(folder)] == [100, 200, 400]
    assert kept_losses(folder) == []


def test_the_best_is_the_one_of_the_best_step_and_not_the_newest(tmp_path: Path) -> None:
    folder = classifier(tmp_path, [0.5, 0.7, 0.6, 0.65])
    found = best_predictions(folder)
    assert found is not None
    assert found.step == 200
    (folder.path / "result.json").unlink()  # still training: by its evaluations so far
    found = best_predictions(folder)
    assert found is not None
    assert found.step == 200


def test_of_a_torn_best_the_one_before_it_counts_and_says_so(tmp_path: Path) -> None:
    folder = classifier(tmp_path, [0.5, 0.7, 0.6, 0.65])
    (folder.predictions / "step-200.json").write_text("")
    found = best_predictions(folder)
    assert found is not None
    assert found.step == 100


def test_losses_bring_their_documents(tmp_path: Path) -> None:
    folder = write_run(tmp_path, experiment("stories-baseline", GPT), curve=[9.0, 8.0, 8.5]).folder
    for step in (100, 200, 300):
        write_record(folder.losses / f"step-{step}.json", Losses([1.0, 2.0], [3, 3], step, DocumentLosses([3.0], [6])))
    write_record(folder.losses / "step-300.json", Losses([1.0, 2.0], [3, 3], 300, DocumentLosses([3.0], [5, 1])))
    assert [found.documents for found in kept_losses(folder)] == [DocumentLosses([3.0], [6])] * 2 + [None]
    best = best_losses(folder)
    assert best is not None
    assert best.step == 200


def test_the_test_text_has_its_own_files(tmp_path: Path) -> None:
    folder = classifier(tmp_path, [0.5])
    assert evaluations.test_predictions(folder) is None
    folder.test.mkdir()
    write_record(folder.test / "predictions.json", Predictions(LABELS, LABELS, 100))
    found = evaluations.test_predictions(folder)
    assert found is not None
    assert (found.predictions, found.step) == (LABELS, 100)
    assert evaluations.test_losses(folder) is None
