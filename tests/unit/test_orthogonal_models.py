"""The method on whole models: which weights it touches, and what the check of a model says."""

from __future__ import annotations

import json

import msgspec
import pytest
import torch

from oelm_core.config import Method
from oelm_core.method.freezing import qk_fingerprint
from oelm_core.method.initialisers import NotOrthogonal, apply_method, check_model
from oelm_core.models import build
from oelm_core.models.structure import attention_layers
from tests.small_models import OELM, experiment, prepared

ARCHITECTURES = ["bert", "roberta", "gpt"]


def method(**keys: object) -> Method:
    return Method.model_validate({**OELM, **keys})


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def changed(model: torch.nn.Module, wanted: Method, seed: int = 1) -> set[str]:
    before = weights(model)
    apply_method(model, wanted, torch.Generator().manual_seed(seed))
    return {name for name, value in weights(model).items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_only_query_and_key_weights_change(arch: str) -> None:
    model = build(experiment(arch), seed=1)
    touched = changed(model, method())
    expected = {layer.query.weight for layer in attention_layers(model)} | {
        layer.key.weight for layer in attention_layers(model)
    }
    assert touched == {name for name, parameter in model.named_parameters() if parameter in expected}
    assert len(touched) == 6
    check_model(model, method=method())


def test_layers_and_projections_can_be_chosen() -> None:
    model = build(experiment("gpt"), seed=1)
    assert changed(model, method(layers="last:1")) == {
        "model.layers.2.attention.q_proj.weight",
        "model.layers.2.attention.k_proj.weight",
    }
    only_key = changed(build(experiment("gpt"), seed=1), method(layers=[0], freeze=["key"]))
    assert only_key == {"model.layers.0.attention.k_proj.weight"}
    assert len(changed(build(experiment("gpt"), seed=1), method(freeze=[]))) == 6  # NoFreeze starts orthonormal too


def test_what_a_layer_draws_does_not_depend_on_the_other_layers() -> None:
    whole, part = build(experiment("gpt"), seed=1), build(experiment("gpt"), seed=1)
    apply_method(whole, method(), torch.Generator().manual_seed(9))
    apply_method(part, method(layers="last:1", freeze=["key"]), torch.Generator().manual_seed(9))
    assert torch.equal(attention_layers(whole)[2].key.weight, attention_layers(part)[2].key.weight)


def test_a_frozen_feed_forward_is_made_orthonormal_along_its_short_side() -> None:
    model, _ = prepared(experiment("gpt", {**OELM, "freeze": ["query", "key", "ffn"]}))
    up, down = attention_layers(model)[1].ffn
    assert torch.allclose(up.weight.T @ up.weight, torch.eye(24), atol=1e-5)
    assert torch.allclose(down.weight @ down.weight.T, torch.eye(24), atol=1e-5)


def test_a_true_baseline_is_known_by_its_weights() -> None:
    model = build(experiment("bert"), seed=1)
    loaded = qk_fingerprint(model)
    apply_method(model, Method(name="baseline"), torch.Generator())
    assert qk_fingerprint(model) == loaded
    with torch.no_grad():
        attention_layers(model)[2].key.bias[0] += 1e-7
    assert qk_fingerprint(model) != loaded
    apply_method(model, method(freeze=[]), torch.Generator())
    assert qk_fingerprint(model) != loaded


def test_the_report_covers_every_layer_projection_and_head_and_is_plain_data() -> None:
    model, _ = prepared(experiment("bert", OELM))
    report = json.loads(msgspec.json.encode(check_model(model)))
    places = [(entry["layer"], entry["projection"]) for entry in report["layers"]]
    assert places == [(layer, name) for layer in range(3) for name in ("query", "key")]
    assert all(len(entry["within"]) == 3 for entry in report["layers"])
    assert report["worst"] < 1e-5
    assert report["mean_row_norm"] == pytest.approx(1.0)


def test_a_bad_head_in_any_layer_is_found_and_named() -> None:
    model, _ = prepared(experiment("bert", OELM))
    with torch.no_grad():
        attention_layers(model)[2].key.weight[17] += 0.5
    with pytest.raises(NotOrthogonal, match="layer 2 key, head 2"):
        check_model(model, method=method())
    assert check_model(model).worst > 0.1  # without a method nothing is demanded


def test_kept_norms_pass_the_check_and_an_untouched_layer_is_not_asked() -> None:
    kept = {**OELM, "scale": "keep", "layers": "first:2"}
    model, _ = prepared(experiment("gpt", kept))
    report = check_model(model, method=Method.model_validate(kept))
    assert max(report.layers[0].shape) < 1e-5
    assert max(report.layers[0].within) > 0.1


def test_grouped_queries_are_split_by_their_own_heads() -> None:
    from oelm_core.models.gpt import OelmGPTConfig, OelmGPTForCausalLM

    config = OelmGPTConfig(vocab_size=50, positions=16, d_model=32, layers=1, heads=4, key_heads=2, d_ff=32, dropout=0)
    model = OelmGPTForCausalLM(config)
    apply_method(model, method(), torch.Generator().manual_seed(0))
    layer = attention_layers(model)[0]
    assert (layer.heads, layer.key_heads, layer.head_dim) == (4, 2, 8)
    assert layer.key.weight.shape == (16, 32)
    check_model(model, method=method())
    assert model(torch.arange(8)[None], labels=torch.arange(8)[None]).loss.isfinite()
