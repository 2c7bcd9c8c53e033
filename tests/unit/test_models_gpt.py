"""Our GPT against a plain one written here, and as a transformers model: saved, loaded, sampled, classified with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from oelm_core.config import override
from oelm_core.errors import BadInput, NotFound
from oelm_core.models import build
from oelm_core.models.gpt import OelmGPTConfig, OelmGPTForCausalLM
from tests.small_models import ALL_EXTRAS, GPT_MEDIUM, OELM, SMALL, experiment, loss_of, prepared, tokens


def small(method: dict[str, object] | None = None, **model: object) -> OelmGPTForCausalLM:
    built = prepared(experiment("gpt", method, **model))[0]
    assert isinstance(built, OelmGPTForCausalLM)
    return built.eval()


def loosened(model: torch.nn.Module) -> torch.nn.Module:
    """Extras moved away from where they do nothing."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "extras" in name or name.endswith(("q_proj.bias", "k_proj.bias")):
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def reference(model: OelmGPTForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """The same network in plain arithmetic, one head at a time, in the textbook's order."""
    w = {name: value.detach() for name, value in model.state_dict().items()}
    heads, width = model.config.heads, model.config.d_model
    size = width // heads

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, spread = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(spread + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    x = w["model.embed_tokens.weight"][ids] + w["model.embed_positions.weight"][: ids.shape[1]]
    future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
    for index in range(model.config.layers):
        layer = f"model.layers.{index}."
        h = norm(x, layer + "attention_norm")
        q, k, v = (h @ w[f"{layer}attention.{p}_proj.weight"].T for p in "qkv")
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            logits = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(size)
            mixed.append(torch.softmax(logits.masked_fill(future, -math.inf), -1) @ v[..., part])
        x = x + torch.cat(mixed, -1) @ w[layer + "attention.o_proj.weight"].T
        h = norm(x, layer + "ffn_norm") @ w[layer + "ffn.up.weight"].T + w[layer + "ffn.up.bias"]
        h = h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))
        x = x + h @ w[layer + "ffn.down.weight"].T + w[layer + "ffn.down.bias"]
    return norm(x, "model.final_norm") @ w["model.embed_tokens.weight"].T


@pytest.mark.parametrize("method", [None, OELM], ids=["baseline", "oelm"])
def test_logits_equal_a_plain_reference(method: dict[str, object] | None) -> None:
    model, ids = small(method), tokens(3, 16)
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, reference(model, ids), atol=1e-5)
        for parameter in model.double().parameters():
            parameter.mul_(3)  # far from the near-linear start, where fp32 would blur a difference
        assert torch.allclose(model(ids).logits, reference(model, ids), atol=1e-10)


def test_the_loss_is_that_of_the_shifted_logits() -> None:
    model, ids = small(), tokens(3, 16)
    plain = torch.nn.functional.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    out = model(ids, labels=ids)
    assert out.logits is None  # never all of them at once
    assert torch.allclose(out.loss, plain, atol=1e-6)
    assert torch.allclose(model(ids[:, :-1], shift_labels=ids[:, 1:]).loss, plain, atol=1e-6)
    assert model(ids, labels=ids, return_logits=True).logits.shape == (3, 16, SMALL["vocab"])
    assert torch.allclose(model(ids, labels=ids, num_items_in_batch=90).loss, plain * 45 / 90, atol=1e-6)


def test_token_losses_average_to_the_loss() -> None:
    model, ids = small(), tokens(3, 16)
    losses = model.token_losses(ids)
    assert losses.shape == (3, 15)
    assert torch.allclose(losses.mean(), model(ids, labels=ids).loss, atol=1e-6)
    assert torch.equal(model.token_losses(ids[:, :-1], ids[:, 1:]), losses)


def test_a_token_sees_nothing_of_what_follows() -> None:
    model, ids = small({**OELM, "extras": ALL_EXTRAS}), tokens(1, 12)
    loosened(model)
    other = ids.clone()
    other[:, 8:] = 5
    assert torch.equal(model(ids).logits[:, :8], model(other).logits[:, :8])


@pytest.mark.parametrize("extras", [{}, ALL_EXTRAS], ids=["plain", "extras"])
def test_a_cache_gives_the_logits_of_a_full_pass(extras: dict[str, object]) -> None:
    model, ids = small({**OELM, "extras": extras}), tokens(2, 14)
    loosened(model)
    with torch.no_grad():
        whole = model(ids).logits
        first = model(ids[:, :6], use_cache=True)
        second = model(ids[:, 6:10], past_key_values=first.past_key_values)
        last = model(ids[:, 10:11], past_key_values=second.past_key_values)
    assert torch.allclose(second.logits, whole[:, 6:10], atol=1e-5)
    assert torch.allclose(last.logits[:, 0], whole[:, 10], atol=1e-5)


def test_greedy_generation_with_a_cache_equals_growing_the_text_by_hand() -> None:
    model, ids = small(OELM), tokens(2, 5)
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0)
    by_hand = ids
    for _ in range(8):
        by_hand = torch.cat([by_hand, model(by_hand).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(made, by_hand)


@pytest.mark.parametrize("extras", [{}, ALL_EXTRAS], ids=["plain", "extras"])
def test_padding_on_either_side_changes_nothing(extras: dict[str, object]) -> None:
    model, ids = small({**OELM, "extras": extras}), tokens(1, 7)
    loosened(model)
    pad = torch.zeros(1, 3, dtype=torch.long)
    ones = torch.ones_like(ids)
    left = model(torch.cat([pad, ids], 1), attention_mask=torch.cat([pad, ones], 1)).logits[:, 3:]
    right = model(torch.cat([ids, pad], 1), attention_mask=torch.cat([ones, pad], 1)).logits[:, :7]
    assert torch.allclose(left, model(ids).logits, atol=1e-5)
    assert torch.allclose(right, model(ids).logits, atol=1e-5)


def test_a_text_longer_than_the_positions_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="40 tokens are more than the model's 34 positions"):
        small()(tokens(1, 40))


def test_a_saved_model_comes_back_bit_equal_through_the_auto_classes(tmp_path: Path) -> None:
    model = small({**OELM, "extras": ALL_EXTRAS})
    loosened(model)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(again, OelmGPTForCausalLM)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert torch.equal(again(tokens()).logits, model(tokens()).logits)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), OelmGPTConfig)


def test_a_pretrained_gpt_can_be_named_by_its_folder_and_made_a_classifier(tmp_path: Path) -> None:
    source = small()
    source.save_pretrained(tmp_path)
    exp = experiment("gpt", classes=3, start="pretrained", path=str(tmp_path))
    model = build(exp, seed=4)
    assert torch.equal(model.model.layers[1].ffn.up.weight, source.model.layers[1].ffn.up.weight)
    assert model.score.weight.shape == (3, SMALL["d_model"])
    assert torch.equal(build(exp, seed=4).score.weight, model.score.weight)
    assert not torch.equal(build(exp, seed=5).score.weight, model.score.weight)
    assert isinstance(AutoModelForSequenceClassification.from_pretrained(tmp_path), type(model))


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="could not be loaded"):
        build(experiment("gpt", start="pretrained", path=str(tmp_path / "nowhere")), seed=1)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(BadInput, match="not this project's GPT"):
        build(experiment("gpt", start="pretrained", path=str(tmp_path)), seed=1)


def test_the_classifier_reads_the_last_real_token() -> None:
    model = build(experiment("gpt", classes=2), seed=1).eval()
    ids = tokens(2, 9)
    padded = torch.cat([ids, torch.zeros(2, 4, dtype=torch.long)], 1)
    mask = torch.cat([torch.ones(2, 9), torch.zeros(2, 4)], 1).long()
    assert torch.allclose(model(padded, attention_mask=mask).logits, model(ids).logits, atol=1e-5)
    assert model(ids, labels=torch.tensor([0, 1])).loss.isfinite()


def test_random_weights_depend_on_the_seed_alone() -> None:
    plain = build(experiment("gpt"), seed=7)
    torch.manual_seed(0)
    torch.rand(5)
    again = build(experiment("gpt", {**OELM, "extras": ALL_EXTRAS}), seed=7)
    other = build(experiment("gpt"), seed=8)
    shared = dict(plain.named_parameters())
    for name, parameter in again.named_parameters():
        assert name not in shared or torch.equal(parameter, shared[name]), name
    assert not torch.equal(other.lm_head.weight, plain.lm_head.weight)


def test_building_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    build(experiment("gpt"), seed=7)
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_start_at_the_recipes_spread() -> None:
    exp = override(experiment("gpt", shape=GPT_MEDIUM), ["model.shape.layers=1", "model.shape.vocab=2000"])
    model = build(exp, seed=1)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02), name
    assert model.model.layers[0].ffn.up.bias.abs().max() == 0


def test_frozen_projections_cost_no_weight_gradient_and_pass_gradients_on() -> None:
    model = small(OELM)
    loss_of(model, tokens()).backward()
    assert model.model.layers[2].attention.q_proj.weight.grad is None
    assert model.model.layers[0].ffn.up.weight.grad.abs().max() > 0
