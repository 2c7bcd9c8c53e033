"""MLflow: into the store of MLFLOW_TRACKING_URI, or a SQLite file of the lab's home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oelm_core.mirror.card import RunCard, RunEnd
from oelm_core.mirror.points import Point
from oelm_core.runs.schema import Mirrored

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_METRICS, MOST_PARAMS, LONGEST_TEXT = 1000, 100, 5000
"""Of one request: what every server takes."""
STATES = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "lost": "FAILED"}
T = TypeVar("T")


class MLflow:
    keeps_at_close = False

    def __init__(self, folder: Path | None, home: Path) -> None:
        named = None if folder else os.environ.get("MLFLOW_TRACKING_URI")
        self._folder = None if named else (folder or home / "mlflow").absolute()
        self._address = named or f"sqlite:///{self._folder}/mlflow.db"
        self._client: MlflowClient | None = None
        self._run = ""
        self._goes_on = False

    @property
    def place(self) -> str:
        return self._address

    def is_there(self, kept: Mirrored) -> bool:
        return self._folder is None or (self._folder / "mlflow.db").is_file()

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._client = client = MlflowClient(tracking_uri=self._address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "oelm"
        there = client.get_experiment_by_name(name)
        if there is None:
            files = (self._folder / "artifacts").as_uri() if self._folder else None
            experiment = client.create_experiment(name, artifact_location=files)
        else:
            experiment = there.experiment_id
        # looked for by its tag: a bridge may have died between making it and writing that down
        found = client.search_runs([experiment], f"tags.`oelm.run` = '{card.id}'", max_results=1)
        known = bool(found) and bool(kept.run)
        if found:
            self._run = found[0].info.run_id
        else:
            tags = {"oelm.run": card.id}
            made = client.create_run(experiment, start_time=_milliseconds(card.created), tags=tags, run_name=card.id)
            self._run = made.info.run_id
        kept.run = self._run
        return known

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        from mlflow.entities import Metric, Param, RunTag

        assert self._client is not None
        params = [Param(key, _short(value)) for key, value in card.config.items()]
        for some in _batches(params, MOST_PARAMS):
            self._client.log_batch(self._run, params=some)
        words = {f"oelm.{key}": value for key, value in card.facts.items()}
        tags = [RunTag(key, _short(value)) for key, value in {**words, "oelm.group": card.group}.items()]
        tags += [RunTag(f"tag.{tag}", "true") for tag in card.tags]
        for some_tags in _batches(tags, MOST_PARAMS):
            self._client.log_batch(self._run, tags=some_tags)
        share = card.facts.get("parameters.frozen_share")
        if isinstance(share, float):
            self._client.log_batch(
                self._run, metrics=[Metric("parameters/frozen_share", share, _milliseconds(card.created), 0)]
            )

    def write(self, points: Sequence[Point], kept: Mirrored) -> None:
        from mlflow.entities import Metric, RunTag

        assert self._client is not None
        if not self._goes_on:  # it may have ended there before
            self._client.update_run(self._run, status="RUNNING")
            self._goes_on = True
        metrics = [
            Metric(name, value, _milliseconds(point.t), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for some in _batches(metrics, MOST_METRICS):
            self._client.log_batch(self._run, metrics=some)
        events = [
            RunTag(f"event.{point.what}", _short(f"step {point.step}: {point.message}"))
            for point in points
            if point.what or point.message
        ]
        for some_events in _batches(events, MOST_PARAMS):
            self._client.log_batch(self._run, tags=some_events)

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        from mlflow.entities import Metric, RunTag

        assert self._client is not None
        metrics = [Metric(name, value, _milliseconds(end.t), end.step) for name, value in end.figures.items()]
        words = [RunTag("oelm.state", end.words), RunTag("oelm.message", _short(end.message))]
        self._client.log_batch(self._run, metrics=metrics, tags=words)
        self._client.set_terminated(self._run, STATES.get(end.state, "FAILED"), _milliseconds(end.t))

    def close(self) -> None:
        self._client = None


def _milliseconds(t: float) -> int:
    return int(t * 1000)


def _short(value: object) -> str:
    return str(value)[:LONGEST_TEXT]


def _batches(items: list[T], most: int) -> Iterator[list[T]]:
    for first in range(0, len(items), most):
        yield items[first : first + most]
