"""Attention is looked at during evaluations when a preset asks for it, and a resume cuts what it will write again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oelm_core.method.attention_stats import load_patterns, pattern_distance
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.training.recorder import cut_after
from oelm_core.training.supervision import StopRequest
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
    assert train_run(folder, StopRequest())[0].state == "finished"
    looks = sorted((folder.path / "attention").glob("step-*.json"))
    assert {look.name for look in looks} == {"step-5.json", "step-10.json", "step-12.json"}
    heads = json.loads(looks[0].read_text())["entropy"]
    assert (len(heads), len(heads[0])) == (2, 2)
    record = read_metrics(folder.metrics, "eval")[-1]
    assert record.values["attention_entropy"] > 0
    assert record.values["attention_moved"] > 0
    cut_after(folder, 10)
    assert {look.name for look in (folder.path / "attention").glob("step-*")} == {"step-5.json", "step-10.json"}
    assert [r.step for r in read_metrics(folder.metrics, "eval")] == [5, 10]


@pytest.mark.parametrize("base", [BERT, GPT], ids=["bert", "gpt"])
def test_an_arm_is_held_against_its_baselines_last_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: dict[str, Any]
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    data = texts(tmp_path / "texts")
    looking = ("train.attention_stats=true", "train.samples=0")
    untouched = {**base, "id": "Tiny-Baseline", "baseline": None, "method": {"name": "baseline"}}

    def attention_of(chosen: dict[str, Any], *settings: str) -> tuple[RunFolder, list[float | None]]:
        folder = run_folder(tmp_path / "runs", experiment(chosen, data, *looking, *settings))
        assert train_run(folder, StopRequest())[0].state == "finished"
        return folder, [r.values.get("attention_from_baseline") for r in read_metrics(folder.metrics, "eval")]

    assert attention_of(base)[1] == [None] * 3  # no baseline has run yet
    baseline, none = attention_of(untouched)
    assert none == [None] * 3
    arm, apart = attention_of(base)
    assert all(value is not None and 0 < value < 1 for value in apart)
    patterns = [load_patterns(folder.path / "attention" / "latest.npz")[0] for folder in (arm, baseline)]
    by_head = json.loads((arm.path / "attention" / "step-12.json").read_text())["from_baseline"]
    if base is GPT:  # nothing padded, so the plain mean is the figure
        assert by_head == pytest.approx(np.array(pattern_distance(*patterns)), abs=1e-3)
    assert apart[-1] == pytest.approx(np.mean(by_head))
    said = [r.message for r in read_metrics(arm.metrics, "event") if r.what == "attention"]
    assert said == [f"attention is compared with that of {baseline.id}"]
    assert attention_of(base, "seed=7")[1] == [None] * 3  # another seed's baseline is no pair
    assert attention_of(base, "data.max_length=16")[1] == [None] * 3 or base is BERT  # other tokens, no comparison
