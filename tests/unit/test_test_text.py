"""A test set that is used once: what `data.test` may say, the held-out part, and the score at the end of a run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from oelm_core.config import as_dict, config_hash
from oelm_core.config.limits import known_examples
from oelm_core.data import classification, language, prepare
from oelm_core.data.tokenizers import demo_tokenizer
from oelm_core.errors import BadInput
from oelm_core.runs import evaluations
from oelm_core.runs.folder import RunFolder, create, write_record
from oelm_core.runs.ledger import read_ledger
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Result, RunRecord, TestScore, Tuning
from oelm_core.training.evaluation import TestText
from oelm_core.training.recorder import cut_after
from oelm_core.training.sentence_scores import SentenceScorer
from oelm_core.training.supervision import Interrupted, StopRequest
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, GPT, experiment, run_folder, texts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = texts(tmp_path_factory.mktemp("texts"))
    for kind in ("reviews", "stories"):
        file = next((folder / kind).glob("val*"))
        # What was validated on, and a line more: the two can be compared.
        again = file.read_text().splitlines()[1 if kind == "reviews" else 0]
        (folder / f"{kind}-test{file.suffix}").write_text(f"{file.read_text().rstrip()}\n{again}\n")
    return folder


# -- what a preset may say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "said", "sentence"),
    [
        (BERT, "tset", r"data\.test: 'tset' is neither a split"),
        (BERT, "held-out 1.2", r"data\.test: 'held-out 1\.2' keeps 1\.2"),
        (BERT, "validation", r"test is the validation split, which chooses"),
        (GPT, "held-out 0.1", r"held-out, which is for classification"),
    ],
)
def test_what_cannot_be_a_test_is_refused_in_a_sentence(data: Path, base: dict, said: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        experiment(base, data, f"data.test={said}")


def test_a_test_split_without_labels_is_refused_before_anything_is_launched(data: Path) -> None:
    named = ("data.path=null", "data.name=sst2", "data.test=test")
    with pytest.raises(BadInput, match=r"the test split of SST-2 has no labels; hold a part .*\(held-out 0\.1\)"):
        experiment(BERT, data, *named)
    assert experiment(BERT, data, "data.path=null", "data.name=xnli", "data.test=test").data.test == "test"
    with pytest.raises(BadInput, match="TinyStories has no test split"):
        experiment(GPT, data, "data.path=null", "data.name=tinystories", "data.test=test")


def test_only_a_held_out_part_changes_the_configuration(data: Path) -> None:
    def hash_with(*settings: str) -> str:
        return config_hash(as_dict(experiment(BERT, data, *settings)))

    assert hash_with() == hash_with("data.test=test") == hash_with("data.test=/some/file.tsv")
    assert len({hash_with(), hash_with("data.test=held-out 0.1"), hash_with("data.test=held-out 0.2")}) == 3


def test_steps_are_planned_with_what_is_left_of_the_training_file(data: Path) -> None:
    settings = ("data.path=null", "data.name=sst2", "data.train_examples=1000", "data.test=held-out 0.1")
    assert known_examples(experiment(BERT, data, *settings).data) == 900
    assert known_examples(experiment(BERT, data, *settings, "data.limit=600").data) == 600


# -- the held-out part -------------------------------------------------------------------------------------------------


def load(data: Path, tmp_path: Path, *settings: str) -> classification.ClassificationData:
    return classification.load(experiment(BERT, data, *settings), demo_tokenizer(), tmp_path / "cache")


def rows(examples: classification.Examples) -> set[bytes]:
    starts = examples.starts
    return {examples.tokens[starts[i] : starts[i + 1]].tobytes() for i in range(len(examples))}


def test_the_held_out_part_is_disjoint_and_the_same_whatever_the_limit_and_the_seed(data: Path, tmp_path: Path) -> None:
    whole = load(data, tmp_path)
    found = load(data, tmp_path, "data.test=held-out 0.2")
    assert found.test is not None
    assert len(found.train) == len(whole.train) - round(0.2 * len(whole.train))
    assert not rows(found.test) & (rows(found.train) | rows(found.validation["validation"]))
    assert rows(found.test) | rows(found.train) <= rows(whole.train)
    assert found.fingerprint != whole.fingerprint
    again = load(data, tmp_path, "data.test=held-out 0.2", "data.limit=10", "seed=7")
    assert again.test is not None
    assert classification.fingerprint([again.test]) == classification.fingerprint([found.test])
    assert len(again.train) == 10


def test_a_sentence_that_stands_twice_in_the_file_is_never_tested_on_and_trained_on(tmp_path: Path) -> None:
    (tmp_path / "reviews").mkdir()
    words = ["the film was good .", "the film was bad ."] * 20 + [
        f"the film was {'very ' * i}good ." for i in range(20)
    ]
    table = "".join(f"{sentence}\t1\n" for sentence in words)
    (tmp_path / "reviews" / "train.tsv").write_text(f"sentence\tlabel\n{table}")
    (tmp_path / "reviews" / "validation.tsv").write_text(f"sentence\tlabel\n{words[0]}\t1\n")
    said: list[str] = []
    exp = experiment(BERT, tmp_path, "data.test=held-out 0.5")
    found = classification.load(exp, demo_tokenizer(), tmp_path / "cache", said.append)
    assert found.test is not None
    assert not rows(found.test) & rows(found.train)
    assert "are left out" in said[-1]


def test_the_validation_part_is_drawn_from_what_the_test_leaves(data: Path, tmp_path: Path) -> None:
    settings = ("data.test=held-out 0.3", "data.validation=random", "data.validation_fraction=0.3")
    found = load(data, tmp_path, *settings)
    assert found.test is not None
    parts = [rows(found.train), rows(found.validation["validation"]), rows(found.test)]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_what_chose_the_checkpoint_is_no_test(data: Path, tmp_path: Path) -> None:
    file = next((data / "reviews").glob("val*"))
    with pytest.raises(BadInput, match="the very examples that the run trains on or is chosen by"):
        load(data, tmp_path, f"data.test={file}")


def test_unlabelled_rows_of_a_file_are_refused(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "test.tsv"
    file.write_text("sentence\tlabel\nthe film was good .\t-1\n")
    with pytest.raises(BadInput, match=r"test\.tsv: row 1 has no label \(-1\)"):
        load(data, tmp_path, f"data.test={file}")


# -- the end of a run --------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    return tmp_path / "runs"


def score_of(folder: RunFolder) -> TestScore:
    result = folder.read(Result)
    assert result is not None
    assert result.test is not None
    return result.test


def looks(root: Path) -> list[str | None]:
    return [event.data for event in read_ledger(root).of("looked-at-test")]


def test_the_best_checkpoint_is_scored_once_and_a_look_is_never_forgotten(data: Path, lab: Path) -> None:
    # A rate this high unlearns: the best evaluation is not the last.
    settings = (f"data.test={data / 'reviews-test.tsv'}", "train.lr=0.03", "train.eval_every=2", "train.max_steps=8")
    folder = run_folder(lab, experiment(BERT, data, *settings))
    outcome, _ = train_run(folder, StopRequest())
    assert outcome.state == "finished"
    score, kept, best = score_of(folder), evaluations.test_predictions(folder), evaluations.best_predictions(folder)
    assert kept is not None
    assert best is not None
    assert score.step == kept.step == best.step < 8
    assert kept.predictions[: len(best.predictions)] == best.predictions
    right = np.mean(np.array(kept.predictions) == np.array(kept.labels))
    assert score.values["accuracy"] == pytest.approx(right)
    assert (score.examples, score.source, score.note) == (21, str(data / "reviews-test.tsv"), None)
    assert looks(lab) == [score.fingerprint]

    (folder.path / "result.json").unlink()  # ended between the score and the result: it is not looked at again
    train_run(folder, StopRequest())
    assert score_of(folder) == score
    assert looks(lab) == [score.fingerprint]

    shutil.rmtree(folder.checkpoints / f"step-{score.step}")
    shutil.rmtree(folder.test)
    train_run(folder, StopRequest())
    without = score_of(folder)
    assert without.step == 8
    assert without.note is not None
    assert without.note.startswith(f"the best checkpoint (step {score.step}) is gone or damaged")
    assert looks(lab) == [score.fingerprint] * 2
    assert [line.message for line in read_metrics(folder.metrics, "event") if line.what == "test"] == [without.note]


def test_a_language_model_is_scored_by_sequence_and_by_document(data: Path, lab: Path) -> None:
    exp = experiment(GPT, data, f"data.test={data / 'stories-test.txt'}", "train.max_steps=4", "train.samples=0")
    folder = run_folder(lab, exp)
    train_run(folder, StopRequest())
    score, kept = score_of(folder), evaluations.test_losses(folder)
    assert kept is not None
    assert kept.documents is not None
    assert score.examples == len(kept.losses)
    for part in (kept, kept.documents):
        assert sum(part.losses) / sum(part.tokens) == pytest.approx(score.values["loss"], abs=1e-5)


def test_a_draw_of_a_tuning_leaves_the_test_unseen(data: Path, lab: Path) -> None:
    exp = experiment(BERT, data, "data.test=held-out 0.2", "train.max_steps=2")
    config = as_dict(exp)
    tuning = Tuning("study-1234", "draw", 1)
    record = RunRecord(preset=exp.id, config=config, config_hash=config_hash(config), seed=1, tuning=tuning)
    folder = create(lab, record, None)
    outcome, _ = train_run(folder, StopRequest())
    result = folder.read(Result)
    assert outcome.state == "finished"
    assert result is not None
    assert result.test is None
    assert not folder.test.exists()
    assert looks(lab) == []


def test_a_run_without_a_test_says_nothing_of_one(data: Path, lab: Path) -> None:
    folder = run_folder(lab, experiment(BERT, data, "train.max_steps=2"))
    train_run(folder, StopRequest())
    result = folder.read(Result)
    assert result is not None
    assert result.test is None
    assert not folder.test.exists()
    assert looks(lab) == []


def test_a_stop_while_the_test_is_scored_leaves_it_to_a_resume(
    data: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(lab, experiment(BERT, data, "data.test=held-out 0.2", "train.max_steps=2"))
    stop = StopRequest()

    def stopped(model: object, ranks: object, precision: object, stop: StopRequest) -> None:
        stop.request(signal.SIGTERM)
        raise Interrupted

    text = TestText("held-out 0.2", 18, "0", stopped)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(SentenceScorer, "test_text", lambda *given: text)
        outcome, _ = train_run(folder, stop)
    assert (outcome.state, outcome.message) == ("stopped", "stopped at step 2 of 2 with a checkpoint")
    assert looks(lab) == []
    outcome, _ = train_run(folder, StopRequest())
    assert outcome.state == "finished"
    assert score_of(folder).examples == 18


def test_a_score_past_the_step_resumed_from_goes_with_what_else_was_recorded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.test.mkdir()
    kept = TestScore(values={}, step=8, examples=1, source="test", fingerprint="f")
    write_record(folder.test / evaluations.SCORE, kept)
    cut_after(folder, 8)
    assert folder.test.exists()
    cut_after(folder, 6)
    assert not folder.test.exists()


def test_what_a_language_recipe_holds_out_leaves_the_own_validation_text_for_the_test(
    data: Path, tmp_path: Path
) -> None:
    settings = ("data.name=own", "data.validation=random", "data.validation_fraction=0.2", "data.test=validation")
    exp = experiment(GPT, data, *settings)
    tokenizer = demo_tokenizer()
    raw = language.load(exp, tokenizer, tmp_path / "cache")
    assert raw.test is not None
    prepared = prepare.prepare(exp, tmp_path / "prepared")
    assert sorted(one.name for one in prepared.iterdir() if one.is_dir()) == ["validation"]
    again = language.load(experiment(GPT, data, *settings, f"data.path={prepared}"), tokenizer, tmp_path / "cache")
    assert again.test is not None
    assert np.array_equal(again.test, raw.test)
    assert not np.array_equal(again.test, again.validation)
