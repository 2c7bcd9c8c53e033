"""What TensorBoard, W&B, Trackio and MLflow read back of a mirrored run. Each is skipped where it is missing."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oelm_core.mirror.bridge import carry
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import MetricsWriter, cut_lines, read_metrics
from oelm_core.runs.schema import Notes, RunState, decode_metric
from tests import needs
from tests.run_factory import FROZEN, START, experiment, write_run

ACCURACY = 0.9117
STEPS = list(range(10, 401, 10))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run that was stopped at step 400 of 500, with a tag."""
    for name in ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    arm = experiment("b", method=FROZEN, baseline="a")
    found = write_run(tmp_path / "runs", arm, curve=[0.8, ACCURACY]).folder
    found.write(Notes(tags=["look again"]))
    return found


def resumed(folder: RunFolder) -> None:
    """Its metrics after a resume from step 300 that went on to step 500, one line not finite."""
    cut_lines(folder.metrics, lambda line: (found := decode_metric(line)) is not None and found.step <= 300)
    writer = MetricsWriter(folder.metrics)
    writer.event(300, "resumed", "resumed from the checkpoint of step 300")
    for step in range(310, 501, 10):
        writer.write("train", step, loss=float("nan") if step == 500 else 0.25, lr=1e-3)
    writer.close()
    state = folder.read(RunState)
    assert state is not None
    state.step, state.ended = 500, START + 100
    folder.write(state)


def recorded(folder: RunFolder) -> dict[int, tuple[float, float]]:
    """(time stamp, loss) of the training lines by step, before the resume."""
    return {line.step: (line.t, line.values["loss"]) for line in read_metrics(folder.metrics, "train")}


@needs.tensorboard
def test_tensorboard_reads_back_curves_configuration_and_result(folder: RunFolder, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    lines = recorded(folder)
    carry(folder, "tensorboard", tmp_path / "boards")
    resumed(folder)
    carry(folder, "tensorboard", tmp_path / "boards")
    (file,) = (tmp_path / "boards" / folder.id).iterdir()
    found = EventAccumulator(str(file.parent), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    losses = found.Scalars("train/loss")
    assert [one.step for one in losses] == [*STEPS, *range(410, 501, 10)]
    assert {one.step: one.wall_time for one in losses[:40]} == {step: t for step, (t, _) in lines.items()}
    assert losses[0].value == pytest.approx(lines[10][1])
    assert losses[-1].value != losses[-1].value  # NaN
    assert [one.value for one in found.Scalars("eval/accuracy")] == pytest.approx([0.8, ACCURACY])
    assert 0 < found.Scalars("parameters/frozen_share")[0].value < 1
    assert found.Scalars("result/accuracy")[-1].value == pytest.approx(ACCURACY)
    (config,) = found.Tensors("config")
    assert "| train.lr | 0.001 |" in config.tensor_proto.string_val[0].decode()
    assert "look again" in found.Tensors("run")[0].tensor_proto.string_val[0].decode()
    assert found.Tensors("event/resumed")[0].step == 300
    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["train.lr"].number_value == 1e-3
    assert start.group_name == folder.id


@needs.tensorboard
def test_what_a_bridge_wrote_as_it_died_is_not_there_twice(folder: RunFolder, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    carry(folder, "tensorboard")
    (file,) = (tmp_path / "tensorboard" / folder.id).iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[-500:])  # written, and its position not
    resumed(folder)
    carry(folder, "tensorboard")
    assert file.read_bytes().startswith(whole)
    found = EventAccumulator(str(file), size_guidance={"scalars": 0}).Reload()
    assert [one.step for one in found.Scalars("train/loss")] == [*STEPS, *range(410, 501, 10)]
    file.unlink()
    assert carry(folder, "tensorboard").points > 50  # thrown away there: all of it again


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: a header of 7 bytes, then the log format of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts = path.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while at + 7 <= len(content):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


@needs.wandb
def test_wandb_keeps_it_offline_and_it_is_read_back(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    lines = recorded(folder)
    carry(folder, "wandb", tmp_path / "away")
    resumed(folder)
    assert carry(folder, "wandb", tmp_path / "away").points == 11
    assert carry(folder, "wandb", tmp_path / "away").points == 0
    first, second = sorted(
        (tmp_path / "away" / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime
    )
    rows, config, summary, run = [], {}, {}, None
    for record in (one for file in (first, second) for one in wandb_records(file)):
        if record.HasField("history"):
            items = record.history.item
            rows.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
        for item in record.config.update:
            config[item.key] = json.loads(item.value_json)
        for item in record.summary.update:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        run = record.run if record.HasField("run") else run
    steps = [row["_step"] for row in rows if "train/loss" in row]
    assert steps == [*STEPS, *range(410, 501, 10)]
    by_step = {row["_step"]: row for row in rows}
    assert by_step[10]["_timestamp"] == lines[10][0]
    assert by_step[200]["eval/accuracy"] == ACCURACY
    assert by_step[200]["train/loss"] == lines[200][1]
    assert config["train.lr"] == 1e-3
    assert 0 < config["parameters.frozen_share"] < 1
    assert summary["result/accuracy"] == ACCURACY
    assert summary["state"] == "finished (completed)"
    assert run is not None
    assert run.display_name == run.run_id == folder.id
    assert {"oelm-freeze", "look again"} <= set(run.tags)


@needs.mlflow
def test_mlflow_reads_it_back_from_its_database(folder: RunFolder, tmp_path: Path) -> None:
    lines = recorded(folder)
    carry(folder, "mlflow", tmp_path / "flow")
    resumed(folder)
    carry(folder, "mlflow", tmp_path / "flow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/flow/mlflow.db")
    experiment_id = client.get_experiment_by_name("oelm").experiment_id
    (run,) = client.search_runs([experiment_id])
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [one.step for one in losses] == [*STEPS, *range(410, 501, 10)]
    assert losses[0].timestamp == int(lines[10][0] * 1000)
    assert losses[0].value == lines[10][1]
    assert run.info.run_name == folder.id
    assert run.info.status == "FINISHED"
    assert run.info.end_time == int((START + 100) * 1000)
    assert run.data.params["train.lr"] == "0.001"
    assert run.data.metrics["result/accuracy"] == ACCURACY
    assert 0 < run.data.metrics["parameters/frozen_share"] < 1
    assert run.data.tags["tag.look again"] == "true"
    assert "resumed from" in run.data.tags["event.resumed"]


@needs.trackio
def test_trackio_has_it_in_its_database(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import sys

    loaded = sys.modules.get("trackio.utils")
    place = Path(loaded.TRACKIO_DIR) if loaded else tmp_path_factory.mktemp("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(place))
    lines = recorded(folder)
    carry(folder, "trackio")
    resumed(folder)
    carry(folder, "trackio")
    database = sqlite3.connect(place / "oelm.db")
    rows = database.execute(
        "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id", [folder.id]
    ).fetchall()
    (config,) = database.execute("SELECT config FROM configs WHERE run_name = ?", [folder.id]).fetchone()
    database.close()
    told = [(step, when, json.loads(values)) for step, when, values in rows]
    assert [step for step, _, values in told if "train/loss" in values] == [*STEPS, *range(410, 501, 10)]
    from datetime import datetime

    assert datetime.fromisoformat(told[0][1]).timestamp() == lines[10][0]
    assert told[0][2]["train/loss"] == lines[10][1]
    assert [values["result/accuracy"] for _, _, values in told if "result/accuracy" in values][-1] == ACCURACY
    kept = json.loads(config)
    assert kept["train.lr"] == 1e-3
    assert 0 < kept["parameters.frozen_share"] < 1
    assert "look again" in kept["tags"]
