"""The thread count belongs to a run: a resume keeps it, and another is used only when asked for, and noted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oelm_core.config import build_experiment
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.training.checkpoint import Checkpoint, CheckpointState
from oelm_core.training.recorder import Recorder
from oelm_core.training.session import set_threads
from tests.training_runs import BERT


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_resume_keeps_the_thread_count_unless_another_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = build_experiment({**BERT, "train": {**BERT["train"], "threads": 2}}, "test")
    recorder = Recorder(RunFolder(tmp_path))
    before = Checkpoint(tmp_path, CheckpointState(step=7, threads=3))
    monkeypatch.delenv("OELM_THREADS", raising=False)
    assert set_threads(chosen, None, recorder) == 2
    assert set_threads(chosen, before, recorder) == 3
    assert torch.get_num_threads() == 3
    assert read_metrics(tmp_path / "metrics.jsonl") == []
    monkeypatch.setenv("OELM_THREADS", "1")
    assert set_threads(chosen, before, recorder) == 1
    (noted,) = read_metrics(tmp_path / "metrics.jsonl", "event")
    assert "continuing with 1 threads instead of 3" in noted.message
