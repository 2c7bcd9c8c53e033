"""Weights cast once a step, all together: the same numbers as autocast's own casts, to the last bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.bench import steps
from oelm_core.data import packing
from oelm_core.method.freezing import freeze_model_parameters
from oelm_core.models.recompute import checkpoint_activations
from oelm_core.training.half_weights import HalfWeights

TINY = steps.TINY.but(dropout=0.1)
Loss = Callable[[int], Tensor]


def network(family: str, *, frozen: bool = False, recomputed: bool = False) -> tuple[nn.Module, Loss]:
    """A model and its loss of a pass."""
    model = steps.network(family, TINY, "cpu").train()
    freeze_model_parameters(model, frozen)
    if recomputed:
        checkpoint_activations(model)
    if family == "gpt":
        inputs, targets = (one.cpu() for one in steps.token_batch(TINY))
        return model, lambda number: model(input_ids=inputs.roll(number), shift_labels=targets).loss
    examples = steps.like_sst2(16, TINY.vocab)
    batches = [packing.pack(examples, torch.arange(8).numpy() + 8 * half, 0) for half in (0, 1)]
    return model, lambda number: F.cross_entropy(packing.logits(model, batches[number % 2]), batches[number % 2].labels)


def train(
    model: nn.Module, loss: Loss, *, ours: bool, first: int = 0, last: int = 4, thaw: int | None = None
) -> dict[str, Tensor]:
    """Steps of two passes each, in bf16."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    halves = HalfWeights(model, torch.bfloat16) if ours else None
    for step in range(first, last):
        if step == thaw:
            freeze_model_parameters(model, False)
            for parameter in model.parameters():
                parameter.requires_grad_(True)
        if halves is not None:
            halves.cast()
        torch.manual_seed(step)
        for number in range(2):
            with halves.in_use() if halves else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16):
                    found = loss(step + number)
                found.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", ["gpt", "bert"])
@pytest.mark.parametrize(
    ("made", "trained"),
    [({}, {}), ({"frozen": True}, {}), ({"frozen": True}, {"thaw": 2}), ({"recomputed": True}, {})],
    ids=["baseline", "frozen", "unfrozen later", "recomputed"],
)
def test_the_numbers_are_those_of_autocast(family: str, made: dict[str, bool], trained: dict[str, int]) -> None:
    by_autocast = train(*network(family, **made), ours=False, **trained)
    by_us = train(*network(family, **made), ours=True, **trained)
    assert same(by_us, by_autocast)
    assert all(tensor.dtype != torch.bfloat16 for tensor in by_us.values())  # what is kept stays exact
    start = network(family, **made)[0].state_dict()
    assert not same(by_us, start)


def test_copies_made_anew_in_the_middle_change_nothing() -> None:
    """As after a resume: they are made from the weights, which alone are kept."""
    whole = train(*network("gpt", frozen=True), ours=True)
    model, loss = network("gpt", frozen=True)
    train(model, loss, ours=True, last=2)
    assert same(train(model, loss, ours=True, first=2), whole)


def test_frozen_weights_are_cast_once_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, loss = network("gpt", frozen=True)
    before = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert before
    cast: list[int] = []
    copy = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, of: (cast.append(len(to)), copy(to, of)))
    halves = HalfWeights(model, torch.bfloat16)
    halves.cast()
    halves.cast()
    assert cast[0] - cast[1] == len(before)
    monkeypatch.undo()
    train(model, loss, ours=True)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters() if name in before)


def test_a_pass_that_fails_leaves_the_weights_in_place() -> None:
    model, _ = network("gpt")
    weights = dict(model.named_parameters())
    halves = HalfWeights(model, torch.bfloat16)
    halves.cast()
    with pytest.raises(IndexError), halves.in_use():
        model(input_ids=torch.tensor([[TINY.vocab]]))  # a word that it has not
    assert all(p is weights[name] for name, p in model.named_parameters())


def test_a_head_that_is_the_embedding_stays_as_it_is() -> None:
    model, _ = network("gpt")
    halves = HalfWeights(model, torch.bfloat16)
    with halves.in_use():
        assert model.get_output_embeddings().weight.dtype == torch.float32
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
