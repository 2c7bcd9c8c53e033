"""Runs of a Trainer, TensorBoard, W&B and MLflow as read-only runs. Files in golden/logged were written by them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oelm_core.config.catalogue import Catalogue
from oelm_core.errors import BadInput
from oelm_core.published import wire_format
from oelm_core.published.import_runs import Imported, import_folders
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Result, RunRecord

LOGGED = Path(__file__).parents[1] / "golden" / "logged"


def imported(path: Path, root: Path) -> list[Imported]:
    found = list(import_folders([path], Catalogue(), root))
    assert all(isinstance(one, Imported) for one in found), found
    return [one for one in found if isinstance(one, Imported)]


def curve(one: Imported, name: str, kind: str = "eval") -> list[tuple[int, float]]:
    lines = read_metrics(one.run.folder.metrics)
    return [(line.step, round(line.values[name], 6)) for line in lines if line.kind == kind and name in line.values]


def test_a_trainers_newest_checkpoint_tells_the_whole_run(tmp_path: Path) -> None:
    (one,) = imported(LOGGED / "sst2-bert-seed5", tmp_path)
    run = one.run
    assert (run.preset, run.seed, run.state, run.step, run.total) == ("sst2-bert", 5, "finished", 8, 8)
    assert (run.metric_name, run.metric_value) == ("accuracy", 0.359375)
    assert curve(one, "accuracy")[0] == (2, 0.34375)
    assert [step for step, _ in curve(one, "loss", "train")] == [2, 4, 6, 8]
    record = run.folder.read(RunRecord)
    assert record is not None
    assert record.imported is not None
    assert record.imported.kind == "trainer"
    assert (record.setting("family"), record.setting("model.shape.layers"), record.setting("data.classes")) == (
        "bert",
        2,
        3,
    )
    assert record.setting("train.batch_size") == 8


def test_event_files_of_tensorboard_are_read_without_it(tmp_path: Path) -> None:
    (one,) = imported(LOGGED / "tensorboard", tmp_path)
    assert curve(one, "accuracy") == [(20, 0.833333), (40, 0.866667), (60, 0.9)]
    assert curve(one, "f1") == [(60, 0.91)]  # a tensor, as TensorFlow 2 writes scalars
    assert curve(one, "loss", "train")[0] == (10, 2.0)
    assert one.run.created == 1_770_000_001
    assert one.run.state == "stopped"  # event files do not say how a run ended


def test_folders_train_and_validation_are_parts_of_one_run(tmp_path: Path) -> None:
    for part in ("train", "validation"):
        shutil.copytree(LOGGED / "tensorboard", tmp_path / "keras-s3" / part)
    (one,) = imported(tmp_path / "keras-s3", tmp_path / "runs")
    assert one.run.seed == 3


def test_an_offline_run_of_wandb_is_read_without_it(tmp_path: Path) -> None:
    (one,) = imported(LOGGED / "wandb", tmp_path)
    run = one.run
    assert (run.preset, run.seed, run.state) == ("bert-oelm", 43, "finished")
    assert curve(one, "accuracy") == [(20, 0.833333), (40, 0.866667), (60, 0.9)]
    assert (run.setting("train.lr"), run.setting("train.batch_size"), run.setting("train.max_steps")) == (2e-5, 16, 60)


def message(*parts: tuple[int, bytes | int]) -> bytes:
    """A protobuf message, as its specification says."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    found = b""
    for number, value in parts:
        content = varint(value) if isinstance(value, int) else varint(len(value)) + value
        found += varint(number << 3 | (0 if isinstance(value, int) else 2)) + content
    return found


def item(key: str, value: str) -> bytes:
    return message((1, key.encode()), (16, value.encode()))


@pytest.mark.parametrize("name", ["../../outside", "a/b\x1b[31m s4", "..", "", "x" * 5000], ids=range(5))
def test_names_and_numbers_of_strangers_stay_in_their_place(name: str, tmp_path: Path) -> None:
    strange = (("seed", "1" + "0" * 40), ("model_name", '"\\ud800"'), ("dataset", "{}"), ("max_steps", "1e400"))
    config = message(*((1, item(key, value)) for key, value in strange))
    points = (("eval/accuracy", "0.5"), ("_timestamp", "1e300"), ("../loss\n", "1"), ("eval/f1", '"high"'))
    history = message(*((1, item(key, value)) for key, value in points), (2, message((1, 7))))
    run = message((17, message((8, name.encode()), (4, config), (17, message((1, 2**62))))))
    records = [run, message((2, history)), message((18, message((1, 0))))]
    framed = b"".join(b"\0" * 4 + len(record).to_bytes(2, "little") + b"\1" + record for record in records)
    folder = tmp_path / "there" / "run-1"
    folder.mkdir(parents=True)
    (folder / "run-1.wandb").write_bytes(b":W&B\xe1\xbe\0" + framed)
    (one,) = imported(folder, tmp_path / "runs")
    assert curve(one, "accuracy") == [(7, 0.5)]
    assert [path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")] == [one.run.id]
    assert "/" not in one.run.id
    assert (one.run.state, len(one.run.id) < 200) == ("finished", True)


def mlflow_run(folder: Path, status: int = 3) -> Path:
    for name in ("metrics/eval", "params"):
        (folder / name).mkdir(parents=True)
    meta = f"run_name: gpt-oelm-s7\nstart_time: 1794972587491\nstatus: {status}\n"
    (folder / "meta.yaml").write_text(meta)
    (folder / "params" / "learning_rate").write_text("0.001")
    (folder / "params" / "batch_size").write_text("007")
    (folder / "metrics" / "train_loss").write_text("1794972587508 2.0 10\n1794972587509 1.0 20\n")
    (folder / "metrics" / "eval" / "perplexity").write_text("1794972587518 2.8 10\n1794972587520 2.4 20\ntorn")
    return folder


@pytest.mark.parametrize(("status", "state"), [(3, "finished"), (4, "failed"), (1, "stopped")])
def test_a_file_store_of_mlflow_is_read_without_it(status: int, state: str, tmp_path: Path) -> None:
    mlflow_run(tmp_path / "mlruns" / "0" / "536f", status)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default\n")
    (one,) = imported(tmp_path / "mlruns", tmp_path / "runs")
    assert (one.run.preset, one.run.seed, one.run.state) == ("gpt-oelm", 7, state)
    assert (one.run.metric_name, one.run.metric_value, one.run.setting("train.lr")) == ("perplexity", 2.4, 1e-3)
    assert curve(one, "loss", "train") == [(10, 2.0), (20, 1.0)]


def test_every_run_of_an_mlflow_database_is_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.executescript(
            "CREATE TABLE runs (run_uuid, name, status, start_time, lifecycle_stage);"
            "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan);"
            "CREATE TABLE params (key, value, run_uuid);"
        )
        for number, seed in enumerate((7, 8)):
            row = (f"u{number}", f"gpt-s{seed}", "FINISHED", 1794972587491 + number, "active")
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", row)
            database.execute("INSERT INTO params VALUES ('seed', ?, ?)", (str(seed), f"u{number}"))
            point = ("eval_perplexity", 2.0 + number, 1794972587500, f"u{number}", 10)
            database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", point)
    database.close()
    before = (tmp_path / "mlflow.db").read_bytes()
    runs = [one.run for one in imported(tmp_path, tmp_path / "runs")]
    assert [(run.preset, run.seed, run.metric_value) for run in runs] == [("gpt", 7, 2.0), ("gpt", 8, 3.0)]
    assert (tmp_path / "mlflow.db").read_bytes() == before


def test_importing_again_changes_nothing_and_a_folder_of_all_is_imported_whole(tmp_path: Path) -> None:
    first = imported(LOGGED, tmp_path)
    assert [one.run.preset for one in first] == ["sst2-bert", "tensorboard", "bert-oelm"]
    assert [(one.run.id, one.created) for one in imported(LOGGED, tmp_path)] == [(one.run.id, False) for one in first]


def test_a_language_models_loss_becomes_its_perplexity(tmp_path: Path) -> None:
    history = [{"step": 5, "eval_loss": 1.0}, {"step": 10, "eval_loss": 0.5}]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": history, "global_step": 10, "max_steps": 20})
    )
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (one,) = imported(tmp_path, tmp_path / "runs")
    assert (one.run.metric_name, one.run.metric_value) == ("perplexity", pytest.approx(1.648721))
    assert (one.run.state, one.run.step, one.run.total) == ("stopped", 10, 20)
    assert "the perplexity is exp of the validation loss." in one.notes


def test_a_score_in_percent_becomes_a_fraction_and_a_test_score_chooses_nothing(tmp_path: Path) -> None:
    history = [{"step": 5, "eval_accuracy": 91.5, "test_accuracy": 99.0}, {"step": 6, "eval_accuracy": 0.9}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (one,) = imported(tmp_path, tmp_path / "runs")
    assert one.run.metric_value == 0.915
    result = one.run.folder.read(Result)
    assert result is not None
    assert result.test is None


def test_a_value_of_the_wrong_kind_is_named_with_its_file(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer"
    trainer.mkdir()
    history = [{"step": 5, "loss": 1.0}, {"step": 6, "loss": "high"}, {"step": [7], "eval_loss": 1.0}, 3]
    state = {"log_history": [*history, {"train_runtime": "long"}], "num_train_epochs": [1]}
    (trainer / "trainer_state.json").write_text(json.dumps(state))
    (trainer / "config.json").write_text('{"hidden_size": [64], "vocab_size": 1' + "0" * 30 + ', "torch_dtype": [1]}')
    (one,) = imported(trainer, tmp_path / "runs")
    said = sorted(note.split(":")[1].strip() for note in one.notes if note.startswith("unreadable: trainer_state.json"))
    keys = ["eval_loss", "log_history", "loss", "num_train_epochs", "train_runtime"]
    assert said == [f"trainer_state.json, {key}" for key in keys]
    assert [note for note in one.notes if "config.json" in note] == [
        "unreadable: config.json, vocab_size: a number beyond 64 bits; it is left out."
    ]
    store = mlflow_run(tmp_path / "store")
    (store / "params" / "epochs").write_text("[1]")
    (one,) = imported(store, tmp_path / "runs")
    assert "unreadable: params, epochs: expected `float | null`, got `str`; it is left out." in one.notes
    assert "unreadable: perplexity, eval/perplexity: a line is not a time, a number and a step" in str(one.notes)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"log_history": 3}',
        '{"log_history": [3, {"step": "x", "loss": 1}, {"step": -1, "loss": 1}, {"step": 1, "loss": "high"}]}',
        '{"log_history": [{"step": 1e9, "loss": NaN}], "max_steps": "many"}',
    ],
)
def test_a_state_that_says_nothing_is_a_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(content)
    (found,) = import_folders([tmp_path], Catalogue(), tmp_path / "runs")
    assert isinstance(found, BadInput)
    assert "nothing to import; its files hold no training loss and no validation" in str(found)


@pytest.mark.parametrize("name", ["mlflow.db", "run-1.wandb"])
def test_what_is_not_what_its_name_says_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not a store" * 100)
    (found,) = import_folders([tmp_path], Catalogue(), tmp_path / "runs")
    assert isinstance(found, BadInput)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    secret = {"log_history": [{"step": 1, "loss": 1.0}]}
    (tmp_path / "secret.json").write_text(json.dumps(secret))
    (tmp_path / "there" / "trainer_state.json").symlink_to(tmp_path / "secret.json")
    (found,) = import_folders([tmp_path / "there"], Catalogue(), tmp_path / "runs")
    assert isinstance(found, BadInput)
    assert "it is a link, which is not followed" in str(found)


@given(st.binary(max_size=300), st.integers(0, 5000))
def test_no_bytes_end_the_readers_but_in_their_own_error(noise: bytes, place: int) -> None:
    for file, read in (
        (LOGGED / "tensorboard" / "events.out.tfevents.1770000000.lab.1.0", wire_format.tensorboard_records),
        (next(LOGGED.glob("wandb/*/*.wandb")), wire_format.wandb_records),
    ):
        content = file.read_bytes()
        damaged = content[: place % len(content)] + noise + content[place % len(content) + len(noise) :]
        try:
            for record in read(damaged):
                for _, value in wire_format.fields(record):
                    assert isinstance(value, int | bytes)
        except wire_format.BrokenRecord:
            pass
