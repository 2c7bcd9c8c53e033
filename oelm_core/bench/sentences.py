"""Variants made of sentences: encoder steps on packed and padded batches whose lengths are like SST-2's."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oelm_core.bench.experiments import experiment
from oelm_core.bench.ours import SWITCHES, bert_config, freeze
from oelm_core.bench.sizes import TINY_BERT, Sizes
from oelm_core.bench.stepping import Step, device
from oelm_core.data import packing
from oelm_core.data.classification import ClassificationData, Examples
from oelm_core.models.bert import from_config


def like_sst2(count: int, vocab: int, seed: int = 0) -> Examples:
    """Examples of 3 to 60 tokens, 13 in the mean, most of them short: SST-2's training phrases."""
    draw = np.random.default_rng(seed)
    lengths = np.minimum(3 + draw.gamma(1.35, 10.5 / 1.35, count).astype(np.int64), 60)
    tokens = draw.integers(5, vocab, int(lengths.sum()), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Examples(tokens, np.zeros(len(tokens), np.uint8), starts, draw.integers(0, 2, count))


def bert_step(
    *, batching: str, frozen: bool = False, batches: int = 6, without: str | None = None, **given: Any
) -> Step:
    """A fine-tuning step; a few different batches come round, the same for every kind of batching.

    without: a key of SWITCHES, that choice undone.
    """
    sizes = Sizes(**given)
    if without is not None:
        SWITCHES[without]()
    # Seed 381: its six batches have what many have on average, 13.0 tokens a sentence and 39.7 the longest of 32.
    examples = like_sst2(sizes.batch * batches, sizes.vocab, seed=381)
    torch.manual_seed(0)
    model = from_config(bert_config(sizes)).to(device()).train()
    freeze(model, frozen)
    chosen = [np.arange(start, start + sizes.batch) for start in range(0, len(examples), sizes.batch)]
    made = [make(examples, part, batching, packing.first_position(model)).to(device()) for part in chosen]
    turn = itertools.cycle(made)

    def loss() -> Tensor:
        batch = next(turn)
        return F.cross_entropy(packing.logits(model, batch), batch.labels)

    about = {
        "tokens_a_step": sum(batch.tokens.numel() for batch in made) / len(made),
        "mean_length": float(examples.lengths.mean()),
        "longest": int(examples.lengths.max()),
    }
    return Step(model, loss, "fused", about)


def make(examples: Examples, chosen: np.ndarray, batching: str, first: int) -> packing.Batch:
    """batching: packed, or dynamic."""
    return packing.pack(examples, chosen, 0, first) if batching == "packed" else packing.pad(examples, chosen, 0)


def bert_layer(*, frozen: bool = False, **given: Any) -> Step:
    """Forward and backward of one encoder layer."""
    sizes = Sizes(**given)
    torch.manual_seed(0)
    model: Any = from_config(bert_config(sizes.but(layers=1, vocab=64))).to(device()).train()
    freeze(model, frozen)
    layer = model.bert.encoder.layer[0]
    start = torch.randn(sizes.batch, sizes.length, sizes.d_model, device=device(), requires_grad=True)

    def loss() -> Tensor:
        start.grad = None
        out = layer(start)
        return (out[0] if isinstance(out, tuple) else out).sum()

    return Step(layer, loss, None)


def packed_beside_padded(arch: str, count: int, **given: Any) -> dict[str, Any]:
    """Largest difference of logits over an epoch of so many sentences, and whether it holds each of them once."""
    from oelm_core.training.batches import Plan

    config = bert_config(Sizes(**given), arch)
    torch.manual_seed(0)
    model = from_config(config).eval()
    examples = replace(like_sst2(count, config.vocab_size), labels=np.arange(count))  # labels that tell them apart
    padding, first = int(config.pad_token_id or 0), packing.first_position(model)
    plan = Plan(len(examples), 32, 1, 0)
    worst, seen = 0.0, []
    for step in range(1, plan.steps_per_epoch + 1):
        chosen = plan.step(step)
        batch = packing.pack(examples, chosen, padding, first)
        with torch.no_grad():
            padded = packing.logits(model, packing.pad(examples, chosen, padding))
            worst = max(worst, float((packing.logits(model, batch) - padded).abs().max()))
        seen += batch.labels.tolist()
    return {"difference": worst, "every_example_once": sorted(seen) == list(range(count))}


def cannot_pack() -> dict[str, Any]:
    """What the trainer's task says and does when a model is not one that can be packed."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    from oelm_core.training.classification_task import ClassificationTask

    examples = like_sst2(64, TINY_BERT.vocab)
    data = ClassificationData("sentences", examples, {"validation": examples}, 2, 0, "")
    config = DistilBertConfig(vocab_size=TINY_BERT.vocab, dim=64, hidden_dim=128, n_heads=2, n_layers=1)
    model = DistilBertForSequenceClassification(config)
    asked = experiment("bert", TINY_BERT, data={"name": "sentences", "classes": 2}, train={"batching": "packed"})
    task = ClassificationTask(asked, data, model, 0)
    return {"said": task.note or "", "batching": task.batching}
