"""The bytes a census predicts are those of the checkpoint files that a run really writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from oelm_core.config import Experiment
from oelm_core.method.census import census_of
from oelm_core.training.supervision import StopRequest
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, GPT, experiment, run_folder, texts

HEADER_AND_STEP = 300
"""More than safetensors spends on a tensor's name, place and Adam's step count."""

METHODS = {
    "everything trains": ("method.init=none", "method.freeze=[]"),
    "oelm": (),
    "released half-way": ("method.unfreeze={at: 2}",),
    "extras": ("method.extras={position_bias: 4, gain: true, qk_bias: true}",),
    "lora": ("method.init=none", "method.freeze=[]", "method.peer={kind: lora}"),
}


def tensor_bytes(path: Path, kind: tuple[str, ...] = ("",)) -> int:
    tensors = load_file(path)
    return sum(t.numel() * t.element_size() for name, t in tensors.items() if name.endswith(kind))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


def trained(chosen: Experiment, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(home))
    monkeypatch.setenv("OELM_THREADS", "1")
    folder = run_folder(home / "runs", chosen)
    assert train_run(folder, StopRequest())[0].state == "finished"
    return folder.path


@pytest.mark.parametrize("base", [BERT, GPT], ids=["bert", "gpt"])
@pytest.mark.parametrize("method", METHODS)
def test_predicted_bytes_are_written_bytes(
    base: dict[str, Any], method: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("train.max_steps=4", "train.eval_every=4", "train.samples=0")
    chosen = experiment(base, data, *short, *METHODS[method])
    files = trained(chosen, tmp_path, monkeypatch) / "checkpoints" / "latest"
    predicted = census_of(chosen).bytes
    assert predicted is not None
    weights, optimiser = files / "model.safetensors", files / "optimiser.safetensors"
    assert tensor_bytes(weights) == predicted.weights
    assert tensor_bytes(optimiser, ("|exp_avg", "|exp_avg_sq")) == predicted.optimiser
    written = weights.stat().st_size + optimiser.stat().st_size
    tensors = len(load_file(weights)) + len(load_file(optimiser))
    assert predicted.checkpoint < written < predicted.checkpoint + HEADER_AND_STEP * tensors
