"""BERT's packed batches against padded ones: faster, and the same to 1e-5; and what freezing saves in an encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from benchmarks.claims import ClaimSection
from benchmarks.freezing import bert_layer, freezing_claims
from benchmarks.gpt import undo_cheap_dropout
from oelm_core.bench.profile import profile_step
from oelm_core.bench.report import Effort
from oelm_core.bench.steps import DYNAMIC, PACKED, TINY_BERT, Step, bert, experiment, like_sst2, network
from oelm_core.bench.subjects import FROZEN, bert_sizes, compare_batching
from oelm_core.bench.turns import Ratio, in_child, ratio
from oelm_core.data import packing
from oelm_core.data.classification import ClassificationData
from oelm_core.formatting import percent
from oelm_core.method.flops import StepSizes
from oelm_core.training.schedule import BatchPlan
from oelm_core.training.tasks import ClassificationTask

EPOCH = 80
"""Sentences whose packed and padded scores are compared: two batches and a half."""


def measure(effort: Effort) -> ClaimSection:
    recipe = bert_sizes(effort)
    sizes = recipe.but(layers=max(1, recipe.layers // 2))  # and twice the rounds
    section = ClaimSection("bert", f"BERT, a training step of {sizes.batch} short sentences")
    whole = _packing_claims(section, sizes, effort)
    _packed_is_the_same(section, sizes, effort)
    step = f"packed short sentences, {sizes.layers} layers"
    freezing_claims(section, recipe, effort, whole, step=step, classifier=True, layer=bert_layer)
    return section


def _packing_claims(section: ClaimSection, sizes: StepSizes, effort: Effort) -> Ratio:
    """Adds the table and claims of packing; how many times as fast a packed step with Q/K frozen is."""
    note = f"{sizes.layers} layers of BERT-base. Torch's dropout: SDPA and Bernoulli draws instead of ours."
    more = {"packed, torch's dropout": partial(bert_with_torch_dropout, sizes)}
    found = compare_batching(section, sizes, effort, note, more, rounds=12)
    fewer = sizes.tokens / found[PACKED].about["tokens_a_step"]
    what = f"packed: tokens a step against padding to {sizes.length}"
    section.claim(what, "at least 8x fewer", f"{fewer:.2f}x fewer", fewer >= 8)
    profile = profile_step(section, PACKED, partial(bert, sizes, batches=1))
    fixed = percent(profile.kinds.get("optimiser and clipping", 0.0), 1)
    why = f"the optimiser, whose work depends on the weights and not on the tokens, is {fixed} of a packed step."
    faster = ratio(found, DYNAMIC, PACKED)
    section.claim_ratio("packed: step against dynamic padding", "at least 2x as fast", faster, at_least=2.0, why=why)
    return ratio(found, PACKED, FROZEN)


def bert_with_torch_dropout(sizes: StepSizes) -> Step:
    undo_cheap_dropout()
    return bert(sizes)


def _packed_is_the_same(section: ClaimSection, sizes: StepSizes, effort: Effort) -> None:
    """Logits of packed and padded batches, and that an epoch has every example once."""
    found = {
        arch: in_child(partial(packed_beside_padded, arch, EPOCH, sizes), effort.threads)
        for arch in ("bert", "roberta")
    }
    worst = {arch: one.difference for arch, one in found.items()}
    differences = ", ".join(f"{arch} {value:.1e}" for arch, value in worst.items())
    section.claim("packed: logits against padded ones", "equal to 1e-5", differences, max(worst.values()) < 1e-5)
    complete = all(one.every_example_once for one in found.values())
    once = f"each of {EPOCH} once" if complete else "not each once"
    section.claim("packed: examples of an epoch", "each exactly once", once, complete)
    batching, note = in_child(distilbert_batching, effort.threads)
    falls_back = bool(note) and batching == "dynamic"
    section.claim("a model that cannot be packed", "falls back and says so", note, falls_back)
    section.raw["packed_difference"] = worst


@dataclass(frozen=True)
class PackedEpoch:
    """Largest difference of logits over an epoch, and whether it holds each example once."""

    difference: float
    every_example_once: bool


def packed_beside_padded(arch: str, count: int, sizes: StepSizes) -> PackedEpoch:
    """An epoch of so many sentences, packed and padded."""
    model = network(arch, sizes, "cpu").eval()
    examples = replace(like_sst2(count, sizes.vocab), labels=np.arange(count))  # labels that tell them apart
    padding, first = int(model.config.pad_token_id or 0), packing.first_position(model)
    plan = BatchPlan(len(examples), 32, 1, 0)
    worst, seen = 0.0, []
    for step in range(1, plan.steps_per_epoch + 1):
        chosen = plan.step(step)
        batch = packing.pack(examples, chosen, padding, first)
        with torch.no_grad():
            padded = packing.logits(model, packing.pad(examples, chosen, padding))
            worst = max(worst, float((packing.logits(model, batch) - padded).abs().max()))
        seen += batch.labels.tolist()
    return PackedEpoch(worst, sorted(seen) == list(range(count)))


def distilbert_batching() -> tuple[str, str]:
    """(batching, remark) of the trainer's task for a model that cannot be packed."""
    examples = like_sst2(64, TINY_BERT.vocab)
    data = ClassificationData("sentences", examples, {"validation": examples}, 2, 0, "")
    config = DistilBertConfig(vocab_size=TINY_BERT.vocab, dim=64, hidden_dim=128, n_heads=2, n_layers=1)
    model = DistilBertForSequenceClassification(config)
    asked = experiment("bert", TINY_BERT)
    task = ClassificationTask(asked, data, model, 0)
    return task.scorer.batching, task.note or ""
