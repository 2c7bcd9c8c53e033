"""Packed rows give the scores of padded ones, for BERT and RoBERTa, without spending positions on padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oelm_core.config import Extras, Shape
from oelm_core.data import packing
from oelm_core.data.classification import Examples
from oelm_core.models.bert import encoder_config, from_config
from oelm_core.models.extras import attach_extras

SHAPE = Shape(layers=2, d_model=32, heads=4, d_ff=64, vocab=50, positions=160)


def examples(lengths: list[int], pairs: bool = True, seed: int = 0) -> Examples:
    dice = np.random.default_rng(seed)
    total = sum(lengths)
    segments = np.concatenate([(np.arange(n) > n // 2).astype(np.uint8) for n in lengths])
    return Examples(
        dice.integers(5, 50, total).astype(np.int32),
        segments if pairs else np.zeros(total, np.uint8),
        np.concatenate([[0], np.cumsum(lengths)]),
        dice.integers(0, 3, len(lengths)),
    )


def encoder(arch: str, dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    return from_config(encoder_config(SHAPE, arch, 3, dropout)).eval()


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_packed_scores_equal_padded_scores(arch: str) -> None:
    model, texts = encoder(arch), examples([3, 40, 17, 90, 5, 5, 64, 128])
    chosen = np.array([7, 0, 3, 2, 6, 5, 1])
    padding = 1 if arch == "roberta" else 0
    padded = packing.pad(texts, chosen, padding)
    packed = packing.pack(texts, chosen, padding, packing.first_position(model))
    with torch.no_grad():
        difference = packing.logits(model, packed) - packing.logits(model, padded)
    assert difference.abs().max() < 1e-5
    assert packed.tokens.numel() < padded.tokens.numel()
    assert packed.labels.tolist() == padded.labels.tolist()


def test_packed_gradients_equal_padded_gradients() -> None:
    model, texts = encoder("bert"), examples([3, 40, 17, 9])
    chosen, grads = np.arange(4), []
    for batch in (packing.pad(texts, chosen, 0), packing.pack(texts, chosen, 0)):
        model.zero_grad()
        torch.nn.functional.cross_entropy(packing.logits(model, batch), batch.labels).backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(*grads, atol=1e-6)


def test_position_bias_works_in_packed_rows() -> None:
    model, texts = encoder("bert"), examples([3, 40, 17, 9])
    attach_extras(model, Extras(position_bias=8))
    for name, parameter in model.named_parameters():
        if "position_bias" in name:
            torch.nn.init.normal_(parameter)
    assert packing.can_pack(model, texts, 0) is None


def test_a_model_that_cannot_be_packed_is_told_apart() -> None:
    assert "not Linear" in str(packing.can_pack(torch.nn.Linear(2, 2), examples([3]), 0))
    model = encoder("bert")
    wrong = model.bert.pooler.forward
    model.bert.pooler.forward = lambda hidden: (
        wrong(hidden) * hidden.shape[1]
    )  # a pooler that looks at the row's length
    assert "differ" in str(packing.can_pack(model, examples([3, 40, 17, 9]), 0))


@given(st.lists(st.integers(1, 128), min_size=1, max_size=64))
def test_every_example_has_its_place_and_rows_are_not_overfull(lengths: list[int]) -> None:
    rows = packing.rows_for(np.array(lengths), 128)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 128 for row in rows)
    assert len(rows) <= 2 * -(-sum(lengths) // 128)  # first fit never needs more than twice the least


def test_packing_wastes_little_on_short_sentences() -> None:
    lengths = (np.random.default_rng(0).gamma(2.0, 6.0, 32) + 4).astype(int).clip(4, 60).tolist()
    packed = packing.pack(examples(lengths), np.arange(32), 0)
    assert packed.tokens.numel() < 1.2 * sum(lengths)


def test_padding_to_a_fixed_length_is_possible() -> None:
    assert packing.pad(examples([3, 5]), np.arange(2), 0, 64).tokens.shape == (2, 64)


def test_a_batch_says_on_the_host_whether_anything_is_padded() -> None:
    texts = examples([9, 9, 4])
    full, padded = packing.pad(texts, np.array([0, 1]), 0), packing.pad(texts, np.array([0, 2]), 0)
    assert full.mask is None
    assert padded.mask is not None
    assert padded.mask.sum(1).tolist() == [9, 4]
    assert packing.pad(texts, np.array([0, 1]), 0, length=12).mask is not None
    assert "attention_mask" not in packing.inputs_of(encoder("bert"), full)


@pytest.mark.parametrize("arch", ["bert", "roberta"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_leaving_a_mask_of_ones_out_changes_no_bit_of_scores_and_gradients(arch: str, dropout: float) -> None:
    texts = examples([9, 9])
    full = packing.pad(texts, np.array([0, 1]), 1)
    found = []
    for batch in (full, replace(full, mask=torch.ones_like(full.tokens))):
        model = encoder(arch, dropout).train()
        torch.manual_seed(1)
        scores = packing.logits(model, batch)
        scores.square().sum().backward()
        found.append([scores, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(ours, before) for ours, before in zip(*found, strict=True))
