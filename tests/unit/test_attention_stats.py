"""Attention patterns: read off a forward pass as SDPA computes them, and summed up per layer and head."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import transformers

from oelm_core.errors import BadInput
from oelm_core.method.attention_stats import (
    attention_patterns,
    load_patterns,
    pattern_distance,
    record,
    save_patterns,
    summarise,
)
from oelm_core.models.structure import attention_layers
from tests.small_models import ALL_EXTRAS, OELM, experiment, prepared, tokens


@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt"])
@pytest.mark.parametrize("extras", [{}, ALL_EXTRAS], ids=["plain", "extras"])
def test_patterns_times_values_are_what_the_attention_gives(arch: str, extras: dict[str, object]) -> None:
    model, _ = prepared(experiment(arch, {**OELM, "extras": extras}))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "extras" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    layer = attention_layers(model)[1]
    caught: dict[str, torch.Tensor] = {}
    layer.value.owner.register_forward_hook(lambda m, i, o: caught.update(value=o))
    layer.output.register_forward_hook(lambda m, i, o: caught.update(mixed=i[0]))
    ids = tokens(2, 10)
    mask = torch.ones_like(ids)
    if arch != "gpt":
        mask[1, 7:] = 0
    inputs = {"input_ids": ids} if arch == "gpt" else {"input_ids": ids, "attention_mask": mask}
    patterns = attention_patterns(model, inputs)
    assert patterns.shape == (3, 2, 3, 10, 10)
    assert torch.allclose(patterns.sum(-1), torch.ones(3, 2, 3, 10), atol=1e-5)
    value = caught["value"].unflatten(-1, (3, 8)).transpose(1, 2)
    mixed = (patterns[1] @ value).transpose(1, 2).flatten(2)
    assert torch.allclose(mixed, caught["mixed"], atol=1e-5)


@pytest.mark.parametrize("kind", ["DebertaV2", "MPNet", "Llama"])
def test_attention_that_is_more_than_query_times_key_is_refused(kind: str) -> None:
    sizes = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    relative = {"relative_attention": True, "pos_att_type": ["c2p"]} if kind == "DebertaV2" else {}
    config = getattr(transformers, f"{kind}Config")(**sizes, intermediate_size=48, pad_token_id=0, **relative)
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    with pytest.raises(BadInput, match="cannot be read off"):
        attention_patterns(model, {"input_ids": tokens()})


def test_a_peer_around_query_and_value_is_seen_too() -> None:
    model, _ = prepared(experiment("bert", {"name": "lora", "peer": {"kind": "lora"}}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.add_(torch.randn_like(parameter))
    patterns = attention_patterns(model, {"input_ids": tokens()})  # proves itself against what is handed on
    assert torch.allclose(patterns.sum(-1), torch.ones(patterns.shape[:-1]), atol=1e-5)


def test_looking_leaves_the_model_as_it_was() -> None:
    model, _ = prepared(experiment("bert", OELM))
    model.train()
    before = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    attention_patterns(model, {"input_ids": tokens()})
    assert model.training
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()) == before


def test_entropy_and_distance_of_patterns_that_can_be_done_by_hand() -> None:
    uniform = torch.full((1, 1, 1, 4, 4), 0.25)
    itself = torch.eye(4).view(1, 1, 1, 4, 4)
    before = torch.eye(4).roll(-1, dims=1)[None, None, None]
    assert summarise(uniform)["entropy"][0][0] == pytest.approx(math.log(4))
    assert summarise(uniform)["distance"][0][0] == pytest.approx(1.25)  # (1.5 + 1 + 1 + 1.5) / 4
    assert summarise(itself) == {"entropy": [[0.0]], "distance": [[0.0]]}
    assert summarise(before)["distance"][0][0] == pytest.approx((1 + 1 + 1 + 3) / 4)
    assert pattern_distance(itself, before) == [[1.0]]
    assert pattern_distance(uniform, itself)[0][0] == pytest.approx(0.75)


def test_a_run_records_its_attention_and_how_far_it_moved(tmp_path: Path) -> None:
    model, _ = prepared(experiment("bert", OELM))
    ids = tokens(2, 8)
    first = record(tmp_path / "attention", 0, model, {"input_ids": ids})
    assert first["attention_moved"] == pytest.approx(0.0, abs=1e-3)
    assert 0 < first["attention_entropy"] < math.log(8) + 1e-6
    with torch.no_grad():
        attention_layers(model)[2].query.weight.mul_(40.0)
    second = record(tmp_path / "attention", 500, model, {"input_ids": ids})
    assert second["attention_entropy"] < first["attention_entropy"]
    kept = json.loads((tmp_path / "attention" / "step-500.json").read_text())
    assert max(kept["moved"][0] + kept["moved"][1]) < 1e-3 < min(kept["moved"][2])
    assert sorted(p.name for p in (tmp_path / "attention").iterdir()) == [
        "latest.npz",
        "start.npz",
        "step-0.json",
        "step-500.json",
    ]


def test_padding_does_not_count() -> None:
    patterns = torch.eye(4).expand(1, 1, 1, 4, 4).clone()
    patterns[..., 2:, :] = 0.25
    assert summarise(patterns, torch.tensor([[1, 1, 0, 0]]))["entropy"] == [[0.0]]


def test_patterns_of_two_arms_can_be_kept_and_compared(tmp_path: Path) -> None:
    ids = tokens(2, 8)
    arms = [attention_patterns(prepared(experiment("gpt", m))[0], {"input_ids": ids}) for m in (None, OELM)]
    save_patterns(tmp_path / "baseline.npz", arms[0], torch.ones(2, 8))
    kept, real = load_patterns(tmp_path / "baseline.npz")
    assert torch.allclose(kept, arms[0], atol=1e-3)
    apart = pattern_distance(kept, arms[1], real)
    assert len(apart) == 3
    assert all(0 < value < 1 for layer in apart for value in layer)
    with pytest.raises(ValueError, match="not of one batch"):
        pattern_distance(kept, arms[1][:, :1])
