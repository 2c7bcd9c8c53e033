"""What the worker records of itself while it trains."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.training import recorder
from oelm_core.training.recorder import Recorder


def test_cpu_use_is_that_since_the_record_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SYSTEM_EVERY", 0.0)
    writer = Recorder(RunFolder(tmp_path), total=2)
    values = dict.fromkeys(("loss", "lr", "grad_norm", "step_time", "tokens_per_s"), 1.0)
    for step in (1, 2):
        busy = time.process_time() + 0.03
        while time.process_time() < busy:
            pass
        writer.train(step, None, **values)
    writer.close()
    assert [line.values["cpu"] > 0 for line in read_metrics(tmp_path / "metrics.jsonl", "system")] == [True, True]
