"""Checkpoints: complete or not there, verified by checksum, tied weights once, a full disk leaves the old one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from oelm_core.errors import BadInput
from oelm_core.runs.schema import Reached
from oelm_core.training import checkpoint
from oelm_core.training.checkpoint import CheckpointState


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(3)


def save(folder: Path, step: int, **state: Any) -> None:
    weights = {"model": {"w": torch.full((4,), float(step))}}
    checkpoint.save(folder, CheckpointState(step=step, preset="p", **state), weights)


def test_the_newest_complete_checkpoint_is_found_and_links_point_to_it(tmp_path: Path) -> None:
    for step in (5, 10):
        save(tmp_path, step)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert found.tensors("model")["w"].tolist() == [10.0] * 4
    assert (tmp_path / "latest").readlink() == Path("step-10")


@pytest.mark.parametrize("damage", ["flip", "cut", "state", "missing"])
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path, damage: str) -> None:
    for step in (5, 10):
        save(tmp_path, step)
    weights = tmp_path / "step-10" / "model.safetensors"
    content = weights.read_bytes()
    if damage == "flip":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "cut":
        weights.write_bytes(content[:-3])
    elif damage == "missing":
        weights.unlink()
    else:
        (tmp_path / "step-10" / "state.json").write_text("{")
    said: list[str] = []
    found = checkpoint.newest(tmp_path, said.append)
    assert found is not None
    assert found.step == 5
    assert "step-10" in said[0]


def test_a_draft_left_by_a_killed_process_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".step-7-abc").mkdir()
    assert checkpoint.newest(tmp_path) is None
    checkpoint.clear_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_previous_checkpoint_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 5)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 10)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-5"]
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 5


def test_a_full_disk_as_safetensors_reports_it_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left") as raised:
        save(tmp_path, 5)
    assert raised.value.errno == errno.ENOSPC


def test_killed_while_a_step_is_saved_again_the_first_one_is_put_back(tmp_path: Path) -> None:
    save(tmp_path, 5)
    (tmp_path / "step-5").rename(tmp_path / ".step-5-old")  # the moment between the two moves
    checkpoint.clear_drafts(tmp_path)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 5


def test_the_same_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    save(tmp_path, 5, device="before")
    save(tmp_path, 5, device="after")
    assert json.loads((tmp_path / "step-5" / "state.json").read_text())["device"] == "after"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-5"]


OF_VERSION_0_1 = """{"schema": 1, "step": 5, "preset": "tiny-bert", "config_hash": "064a9a29f13f", "seed": 1,
 "progress": {"step": 5, "tokens": 1637, "window": [0.6906430155038834, 0.1], "best":
 {"step": 5, "seconds": 0.2847493949998352, "loss": NaN, "accuracy": 0.85, "mismatched_accuracy": 1.0}, "last": null,
 "reached": {"0.8": {"step": 5, "seconds": 0.2847493949998352}, "0.9": null}, "eval_due": true,
 "seconds": 0.7190382429998863, "validation_seconds": [0.008507255000040459], "epoch_seconds": [], "epoch_began": 0.0},
 "scaler": {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
 "_growth_tracker": 7}, "threads": 3, "world_size": 2, "precision": "fp16", "device": "cuda", "torch": "2.13.0"}"""


def test_a_checkpoint_of_version_0_1_is_resumed_with_every_bit_of_its_progress(tmp_path: Path) -> None:
    save(tmp_path, 5)
    listed = json.loads((tmp_path / "step-5" / "state.json").read_text())["files"]
    (tmp_path / "step-5" / "state.json").write_text(json.dumps({**json.loads(OF_VERSION_0_1), "files": listed}))
    found = checkpoint.newest(tmp_path)
    assert found is not None
    checkpoint.check_owner(found, "tiny-bert", "064a9a29f13f")
    state = found.state
    assert (found.step, state.seed, state.threads, state.world_size, state.precision) == (5, 1, 3, 2, "fp16")
    assert state.scaler == json.loads(OF_VERSION_0_1)["scaler"]
    assert [type(state.scaler[key]) for key in ("scale", "growth_interval", "_growth_tracker")] == [float, int, int]
    progress = state.progress
    assert (progress.step, progress.tokens, progress.best_step, progress.eval_due) == (5, 1637, 5, True)
    assert progress.best == {
        "step": 5,
        "seconds": 0.2847493949998352,
        "loss": None,
        "accuracy": 0.85,
        "mismatched_accuracy": 1.0,
    }
    assert progress.window == [0.6906430155038834, 0.1]
    assert progress.reached == {"0.8": Reached(5, 0.2847493949998352), "0.9": None}
    assert (progress.seconds, progress.validation_seconds) == (0.7190382429998863, [0.008507255000040459])


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        save(tmp_path, step)
    checkpoint.prune(tmp_path, 2, best=5)
    assert checkpoint.steps(tmp_path) == [5, 15, 20]


def test_a_checkpoint_of_another_preset_is_refused_with_both_names(tmp_path: Path) -> None:
    save(tmp_path, 5, config_hash="aaa")
    found = checkpoint.newest(tmp_path)
    assert found is not None
    with pytest.raises(BadInput, match=r"written by p \(settings aaa\), this run is q \(settings bbb\)"):
        checkpoint.check_owner(found, "q", "bbb")


def test_tied_weights_are_saved_once_and_buffers_too(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    tensors = checkpoint.model_tensors(model)
    assert sorted(tensors) == [
        "embed.weight",
        "norm.bias",
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
        "norm.weight",
    ]
    checkpoint.save(tmp_path, CheckpointState(step=1), {"model": tensors})
    found = checkpoint.newest(tmp_path)
    assert found is not None
    checkpoint.load_model(other, found.tensors("model"), found.path)
    assert torch.equal(other.head.weight, model.embed.weight)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="names differ"):
        checkpoint.load_model(nn.Linear(2, 2), {"w": torch.zeros(2)}, tmp_path)
    with pytest.raises(BadInput, match=r"weight is \[3, 2\], the model's is \[2, 2\]"):
        checkpoint.load_model(nn.Linear(2, 2), {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)}, tmp_path)


def test_an_optimiser_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def steps(model: nn.Module, optimiser: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            model(torch.ones(1, 3)).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()

    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    steps(model, optimiser, 3)
    saved = {"model": checkpoint.model_tensors(model), "optimiser": checkpoint.optimiser_tensors(optimiser, model)}
    checkpoint.save(tmp_path, CheckpointState(step=3), saved)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    steps(model, optimiser, 3)
    again = nn.Linear(3, 3)
    restored = torch.optim.AdamW(again.parameters(), fused=True)
    checkpoint.load_model(again, found.tensors("model"), found.path)
    checkpoint.load_optimiser(restored, again, found.tensors("optimiser"))
    steps(again, restored, 3)
    assert torch.equal(again.weight, model.weight)
