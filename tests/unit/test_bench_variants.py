"""What the bench compares is comparable: same network, same loss, work as the formula says."""

from __future__ import annotations

import itertools

import pytest
import torch

from benchmarks import peers
from benchmarks.bert import packed_beside_padded
from benchmarks.flop_counter import counted
from benchmarks.freezing import saved_bytes
from benchmarks.gpt import CHOICES, gpt_without
from oelm_core.bench import steps
from oelm_core.bench.steps import BERT_BASE, MEDIUM, TINY, TINY_BERT, like_sst2
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes

STILL = TINY.but(dropout=0.0)


def copy_into_plain(model: torch.nn.Module, plain: peers.PeerGPT) -> None:
    state = dict(model.named_parameters())
    plain.words.weight.data.copy_(state["model.embed_tokens.weight"])
    plain.places.weight.data.copy_(state["model.embed_positions.weight"])
    for number, block in enumerate(plain.blocks):
        start = f"model.layers.{number}."
        for name in ("query", "key", "value", "out"):
            theirs = {"out": "o"}.get(name, name[0])
            getattr(block.attention, name).weight.data.copy_(state[f"{start}attention.{theirs}_proj.weight"])
        for part, name in itertools.product(("weight", "bias"), ("up", "down")):
            getattr(getattr(block, name), part).data.copy_(state[f"{start}ffn.{name}.{part}"])


def test_the_plain_peer_is_the_same_network_as_ours() -> None:
    mine, plain = steps.gpt(STILL), peers.plain_gpt(STILL)
    copy_into_plain(mine.model, plain.model)
    assert mine.about["trained"] == plain.about["trained"]
    assert mine.loss().item() == pytest.approx(plain.loss().item(), abs=1e-5)


@pytest.mark.parametrize("make", [peers.plain_gpt, peers.nano_gpt, peers.transformers_gpt2, steps.gpt])
def test_every_variant_learns_its_batch(make) -> None:
    step = make(STILL)
    for group in step.optimiser.param_groups:
        group["lr"] = 3e-3
    before = step.loss().item()
    for _ in range(5):
        step()
    assert step.loss().item() < before


def test_transformers_gpt2_sees_the_same_next_tokens() -> None:
    step = peers.transformers_gpt2(STILL)
    assert step.model.config._attn_implementation == "sdpa"
    assert step.loss().item() == pytest.approx(torch.log(torch.tensor(512.0)).item(), rel=0.05)


@pytest.mark.parametrize(
    ("sizes", "classifier"), [(MEDIUM, False), (TINY, False), (BERT_BASE, True), (TINY_BERT, True)]
)
@pytest.mark.parametrize("frozen", [False, True])
def test_counted_work_is_the_formulas_in_every_component(sizes: StepSizes, classifier: bool, frozen: bool) -> None:
    found = counted(sizes, frozen=frozen, classifier=classifier)
    assert found == flops.expected(sizes, frozen=frozen, classifier=classifier)


def test_the_limits_of_freezing_are_the_known_ones() -> None:
    assert flops.ideal_ratio(MEDIUM) == pytest.approx(1.0225, abs=5e-5)
    assert flops.ideal_ratio(BERT_BASE, classifier=True) == pytest.approx(1.057, abs=5e-4)
    assert saved_bytes(MEDIUM, biases=False)["gradients"] == 4 * 3_145_728
    assert saved_bytes(BERT_BASE, biases=True)["optimiser"] == 8 * 14_174_208


def test_sentences_are_as_long_as_those_of_sst2() -> None:
    lengths = like_sst2(20_000, 1000).lengths
    assert lengths.mean() == pytest.approx(13, abs=0.3)
    assert lengths.max() == 60
    assert lengths.min() >= 3


def test_packed_steps_take_an_eighth_of_the_padded_tokens_and_the_same_examples() -> None:
    assert steps.bert(TINY_BERT.but(batch=32), batching="packed").about["tokens_a_step"] * 8 < 32 * 128


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_packed_epochs_hold_every_example_once_with_equal_logits(arch: str) -> None:
    epoch = packed_beside_padded(arch, 300, TINY_BERT)
    assert epoch.difference < 1e-5
    assert epoch.every_example_once


@pytest.mark.parametrize("choice", sorted(CHOICES))
def test_a_choice_switched_off_gives_the_same_loss(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from oelm_core.models import bert, dropout, gpt

    switched = [(gpt, "linear_cross_entropy"), (gpt, "dropout_attention_usable")]
    for module, name in [*switched, (dropout, "cheaper_here"), (bert, "cheaper_here")]:
        monkeypatch.setattr(module, name, getattr(module, name))  # put back what the switch changes
    usual = steps.gpt(STILL).loss().item()
    assert gpt_without(choice, STILL).loss().item() == pytest.approx(usual, abs=1e-5)
