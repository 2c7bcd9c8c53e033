"""LoRA, BitFit and adapters on the same models: what they add, what they train, and that they start as the original."""

from __future__ import annotations

import math

import pytest
import torch

from oelm_core.method.census import census
from oelm_core.method.freezing import apply_freezing, parameter_groups, qk_fingerprint
from oelm_core.models import build
from oelm_core.models.structure import attention_layers
from oelm_core.training.session import model_fingerprint
from tests.small_models import ALL_EXTRAS, OELM, experiment, loss_of, prepared, tokens

KINDS = ["lora", "bitfit", "adapter"]
ARCHITECTURES = ["bert", "roberta", "gpt"]


def peer(kind: str, rank: int = 4) -> dict[str, object]:
    return {"name": kind, "peer": {"kind": kind, "rank": rank, "alpha": 8.0}}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_starts_as_the_untouched_model(arch: str, kind: str) -> None:
    plain, model = build(experiment(arch), seed=2).eval(), prepared(experiment(arch, peer(kind)), seed=2)[0].eval()
    assert qk_fingerprint(plain) == qk_fingerprint(model)
    with torch.no_grad():
        assert torch.allclose(plain(tokens()).logits, model(tokens()).logits, atol=1e-6)


@pytest.mark.parametrize("arch", ["bert", "roberta"])  # our GPT starts from scratch: named by its sizes
@pytest.mark.parametrize("method", [*map(peer, KINDS), {**OELM, "extras": ALL_EXTRAS}], ids=[*KINDS, "extras"])
def test_what_a_method_adds_does_not_make_it_another_network(arch: str, method: dict[str, object]) -> None:
    plain, other = experiment(arch), experiment(arch, method)
    named = [
        model_fingerprint(exp.model_copy(update={"model": exp.model.model_copy(update={"start": "pretrained"})}), model)
        for exp, model in ((plain, build(plain, seed=2)), (other, build(other, seed=2)))
    ]
    assert named[0] == named[1]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_moves_what_the_peer_trains_and_the_heads_only(arch: str, kind: str) -> None:
    exp = experiment(arch, peer(kind))
    model, frozen = prepared(exp)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seal = frozen.hash(model)
    optimiser = torch.optim.AdamW(parameter_groups(model, exp))
    for _ in range(2):  # LoRA's A only moves once B is not zero any more
        optimiser.zero_grad()
        loss_of(model, tokens()).backward()
        optimiser.step()
    frozen.verify(model, seal)
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == set(before) - set(frozen.names)
    marks = {"lora": "lora_", "bitfit": "bias", "adapter": "adapter"}[kind]
    heads = ("classifier", "pooler", "embed_tokens")
    assert all(marks in name or any(head in name for head in heads) for name in moved)
    assert any(marks in name for name in moved)


def test_lora_costs_what_its_rank_says() -> None:
    counted = census(prepared(experiment("bert", peer("lora", rank=5)))[0])
    # layers x (query, value) x rank x in + out
    assert counted.by_component["lora"].trainable == 3 * 2 * 5 * (24 + 24)


def test_adapters_cost_what_their_width_says_and_sit_behind_the_feed_forward() -> None:
    model, _ = prepared(experiment("bert", peer("adapter", rank=5)))
    assert census(model).by_component["adapter"].trainable == 3 * (2 * 24 * 5 + 24 + 5)
    layer = attention_layers(model)[0]
    assert len(layer.ffn) == 2  # an adapter is not taken for a feed-forward
    with torch.no_grad():
        layer.block.adapter.up.bias.fill_(1.0)
    x = torch.randn(2, 48)
    assert torch.allclose(layer.ffn[1](x), x @ layer.ffn[1].weight.T + layer.ffn[1].bias + 1.0, atol=1e-5)


def test_bitfit_trains_every_bias_and_no_weight_but_the_heads() -> None:
    model, _ = prepared(experiment("bert", peer("bitfit")))
    for name, parameter in model.named_parameters():
        in_head = "classifier" in name or "pooler" in name
        assert parameter.requires_grad == (in_head or name.endswith("bias")), name


def test_lora_on_our_gpt_is_not_bypassed_by_joined_projections() -> None:
    model, _ = prepared(experiment("gpt", peer("lora")))
    before = model(tokens()).logits
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter)
    assert not torch.allclose(model(tokens()).logits, before, atol=1e-3)


def test_lora_weights_follow_the_seed() -> None:
    def drawn(seed: int) -> list[torch.Tensor]:
        model = build(experiment("bert", peer("lora")), seed=seed)
        apply_freezing(model, experiment("bert", peer("lora")).method)
        return [p for name, p in model.named_parameters() if "lora_A" in name]

    assert all(torch.equal(a, b) for a, b in zip(drawn(1), drawn(1), strict=True))
    assert not torch.equal(drawn(1)[0], drawn(2)[0])


def test_generation_goes_through_a_peers_modules() -> None:
    model, _ = prepared(experiment("gpt", peer("adapter")))
    made = model.eval().generate(tokens(1, 4), max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert made.shape == (1, 7)
    assert math.isfinite(loss_of(model, tokens()).item())
