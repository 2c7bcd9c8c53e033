"""Activation checkpointing changes nothing but memory: losses and gradients to the last bit, with dropout too."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from oelm_core.models.recompute import checkpoint_activations
from oelm_core.models.structure import attention_layers
from oelm_core.training.distributed import Ranks
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import ClassificationTask, LanguageTask, Task
from oelm_core.training.worker import train_run
from tests.gradient_ranks import classification_data, language_data
from tests.small_models import ALL_EXTRAS, OELM, SMALL, prepared
from tests.small_models import experiment as small
from tests.training_runs import BERT, GPT, experiment, figures, run_folder, texts, weights

ALONE = Ranks(0, 1, torch.device("cpu"))


def task_and_model(arch: str, batching: str, dropout: float, method: dict[str, Any]) -> tuple[Task[Any], nn.Module]:
    chosen = small(arch, method, train={"batching": batching, "batch_size": 3, "accumulate": 2}, dropout=dropout)
    model = prepared(chosen)[0].train()
    if arch == "gpt":
        return LanguageTask(chosen, language_data(SMALL["vocab"]), None), model
    task = ClassificationTask(chosen, classification_data(SMALL["vocab"], longest=16), model, 0)
    assert task.scorer.batching == batching
    return task, model


def step(task: Task[Any], model: nn.Module, number: int) -> tuple[list[float], list[torch.Tensor | None]]:
    """Losses of a step's passes and the gradients they leave; then one more draw, which shows where the dice stand."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(number)
    batch = task.load(number, ALONE)
    losses = []
    for part in batch.parts:
        loss = task.loss(model, part, batch.units)
        loss.backward()
        losses.append(float(loss.detach()))
    return [*losses, float(torch.rand(()))], [p.grad for p in model.parameters()]


def equal(one: list[torch.Tensor | None], other: list[torch.Tensor | None]) -> bool:
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize(
    ("arch", "batching"), [("gpt", "packed"), ("bert", "packed"), ("bert", "padded"), ("roberta", "dynamic")]
)
def test_gradients_are_the_same_to_the_last_bit_frozen_and_then_unfrozen(
    arch: str, batching: str, dropout: float
) -> None:
    task, kept = task_and_model(arch, batching, dropout, OELM)
    again = copy.deepcopy(kept)
    checkpoint_activations(again)
    for number, trains in ((1, False), (2, True)):
        if trains:
            for model in (kept, again):
                model.requires_grad_(True)
        (losses, gradients), (losses_again, gradients_again) = step(task, kept, number), step(task, again, number)
        assert losses == losses_again
        assert equal(gradients, gradients_again)
        assert (None in gradients) == (not trains)


@pytest.mark.parametrize("method", [{**OELM, "extras": ALL_EXTRAS}, {"name": "adapter", "peer": {"kind": "adapter"}}])
@pytest.mark.parametrize("arch", ["gpt", "bert"])
def test_so_are_those_of_extras_and_adapters_below_frozen_embeddings(arch: str, method: dict[str, Any]) -> None:
    task, kept = task_and_model(arch, "packed", 0.1, method)
    (losses, gradients) = step(task, kept, 1)
    checkpoint_activations(kept)  # hooks hold their own modules, so the same model rather than a copy
    (losses_again, gradients_again) = step(task, kept, 1)
    assert losses == losses_again
    assert equal(gradients, gradients_again)


def test_layers_run_twice_while_they_train_and_keep_one_tensor_each() -> None:
    task, model = task_and_model("gpt", "packed", 0.1, OELM)
    part = task.load(1, ALONE).parts[0]
    calls: Counter[int] = Counter()
    for layer in attention_layers(model):
        layer.module.register_forward_pre_hook(lambda *_, index=layer.index: calls.update([index]))

    def kept_bytes() -> int:
        sizes: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = task.loss(model, part, 1)
        loss.backward()
        return sum(sizes.values())

    before = kept_bytes()
    assert set(calls.values()) == {1}
    checkpoint_activations(model)
    assert kept_bytes() < before / 2
    assert set(calls.values()) == {3}
    model.eval()
    task.loss(model, part, 1).backward()
    assert set(calls.values()) == {4}


@pytest.mark.parametrize("base", [BERT, GPT], ids=["bert", "gpt"])
def test_a_whole_run_that_unfreezes_is_the_same_run(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    data = texts(tmp_path)
    settings = ["train.max_steps=6", "train.eval_every=3", "method.unfreeze.at=3", "method.unfreeze.warmup=1"]
    runs = []
    for more in ([], ["train.checkpoint_activations=true"]):
        runs.append(run_folder(tmp_path / f"runs{len(more)}", experiment(base, data, *settings, *more)))
        assert train_run(runs[-1], StopRequest())[1] == 0
    assert figures(runs[0]) == figures(runs[1])
    assert weights(runs[0]) == weights(runs[1])
    assert np.unique([line.values["loss"] for line in figures(runs[0])]).size > 1
