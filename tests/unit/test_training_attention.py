"""Attention is looked at during evaluations when a preset asks for it, and a resume cuts what it will write again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oelm_core.runs.metrics import read_metrics
from oelm_core.training.records import cut_after
from oelm_core.training.signals import StopRequest
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, GPT, experiment, run_folder, texts


@pytest.mark.parametrize("base", [BERT, GPT], ids=["bert", "gpt"])
def test_entropy_and_distance_of_every_head_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: dict[str, Any]
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    chosen = experiment(base, texts(tmp_path / "texts"), "train.attention_stats=true", "train.samples=0")
    folder = run_folder(tmp_path / "runs", chosen)
    assert train_run(folder, StopRequest())[0]["state"] == "finished"
    looks = sorted((folder.path / "attention").glob("step-*.json"))
    assert {look.name for look in looks} == {"step-5.json", "step-10.json", "step-12.json"}
    heads = json.loads(looks[0].read_text())["entropy"]
    assert (len(heads), len(heads[0])) == (2, 2)
    record = read_metrics(folder.metrics, "eval")[-1]
    assert record["attention_entropy"] > 0
    assert record["attention_moved"] > 0
    cut_after(folder, 10)
    assert {look.name for look in (folder.path / "attention").glob("step-*")} == {"step-5.json", "step-10.json"}
    assert [r["step"] for r in read_metrics(folder.metrics, "eval")] == [5, 10]
