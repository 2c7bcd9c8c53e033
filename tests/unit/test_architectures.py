"""The method on every attention people use: the right rows are found, and exactly they are frozen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from oelm_core import Method, apply, verify
from oelm_core.errors import BadInput
from oelm_core.method.freezing import FrozenChanged
from oelm_core.models.structure import AttentionLayer, attention_layers
from tests import attention_logits
from tests.architectures import SIZES, build, features, inputs, support, table

DOCS = Path(__file__).resolve().parents[2] / "docs" / "library.md"
FREEZE = Method(init="head-qr", scale="keep", freeze=("query", "key"))
architectures = pytest.mark.parametrize("name", SIZES)


@torch.no_grad()
def scale(layer: AttentionLayer, part: str, factor: float) -> None:
    projection = getattr(layer, part)
    projection.write_(projection.weight.detach() * factor)
    bias = projection.owner.bias
    if bias is not None:
        rows = list(projection.rows) if projection.rows is not None else slice(None)
        bias[rows] = bias[rows] * factor
    for one in projection.apart:
        one.mul_(factor)


def query_and_key(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.weight.detach().clone() for layer in attention_layers(model) for p in layer.projections().values()]


@architectures
@torch.no_grad()
def test_query_and_key_are_where_they_are_said_to_be(name: str) -> None:
    """Attention sees only their product: twice the one and half the other is the same model, bit for bit or nearly."""
    model, given = build(name), inputs(name)
    before = features(model, given)
    for layer in attention_layers(model):
        scale(layer, "query", 2.0)
        scale(layer, "key", 0.5)
    assert torch.allclose(features(model, given), before, atol=1e-4)
    for part in ("value", "query"):
        changed = build(name)
        projection = getattr(attention_layers(changed)[0], part)
        projection.write_(projection.weight.detach().flip(0))
        assert not torch.allclose(features(changed, given), before, atol=1e-3), part


@architectures
def test_training_with_decay_moves_all_but_query_and_key(name: str, tmp_path: Path) -> None:
    model, given = build(name), inputs(name)
    was = {key: value.clone() for key, value in model.state_dict().items()}
    report = apply(model, FREEZE)
    start = query_and_key(model)
    counted = report.census.by_component
    assert counted["query"].frozen == counted["query"].total > 0
    assert counted["key"].frozen == counted["key"].total > 0
    assert report.census.frozen == counted["query"].total + counted["key"].total
    assert (
        report.census.total
        == sum(part.total for part in counted.values())
        == sum(p.numel() for p in model.parameters())
    )
    assert report.orthogonality.worst_shape is not None
    assert report.orthogonality.worst_shape < 1e-5
    assert model.state_dict().keys() == was.keys()
    trained = {key: p.detach().clone() for key, p in model.named_parameters() if p.requires_grad}
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.5)
    torch.manual_seed(2)
    for _ in range(2):
        found = features(model, given)
        (found - torch.randn_like(found)).pow(2).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    verify(model, report)
    assert all(torch.equal(before, now) for before, now in zip(start, query_and_key(model), strict=True))
    parameters = dict(model.named_parameters())
    still = {key for key, value in trained.items() if torch.equal(parameters[key], value)}
    assert not {key for key in still if "value" in key or "v_proj" in key or "original1" in key}
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    verify(again, report)
    assert torch.allclose(features(again.eval(), given), features(model.eval(), given), atol=1e-5)
    with torch.no_grad():
        layer = attention_layers(again)[-1]
        layer.key.write_(layer.key.weight + 1e-6)
    with pytest.raises(FrozenChanged, match=r"layer \d key weight"):
        verify(again, report)


@pytest.mark.parametrize(("freeze", "share"), [(("query",), "query"), (("key",), "key")])
def test_one_side_of_a_fused_weight_can_be_frozen_alone(freeze: tuple[str, ...], share: str) -> None:
    model = build("Falcon 40B")
    report = apply(model, Method.model_validate({"init": "head-qr", "freeze": freeze}))
    assert report.census.frozen == report.census.by_component[share].total
    again = apply(model, FREEZE)  # what was split is put together first
    assert again.census.frozen == sum(again.census.by_component[name].total for name in ("query", "key"))


def test_how_many_share_a_key_is_read_off_the_weight() -> None:
    """A configuration may carry a number that its network does not use."""
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 8, "num_key_value_heads": 2}
    model = AutoModel.from_config(AutoConfig.for_model("gpt2", **sizes))
    assert attention_layers(model)[0].key_heads == 4


def test_what_cannot_be_done_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match=r"GPT2Attention: method\.extras needs query and key in weights of their own"):
        apply(build("GPT-2"), Method.model_validate({"extras": {"qk_bias": True}, "freeze": ["query"]}))
    with pytest.raises(BadInput, match=r"64 rows of length 32 cannot all be orthogonal"):
        apply(build("Qwen3"), Method(init="global-qr"))
    codegen = AutoConfig.for_model("codegen", n_embd=32, n_layer=1, n_head=4, rotary_dim=4, vocab_size=8)
    with pytest.raises(BadInput, match="CodeGenAttention keeps query, key and value in an order that is not known"):
        apply(AutoModel.from_config(codegen), FREEZE)  # four groups of queries, values, keys
    with pytest.raises(BadInput, match="Linear: no attention with query, key and value"):
        apply(torch.nn.Linear(2, 2), FREEZE)
    with pytest.raises(BadInput, match="use peft on your model"):
        apply(build("BERT"), Method.model_validate({"peer": {"kind": "bitfit"}}))


def test_the_table_in_the_docs_is_what_was_found() -> None:
    assert len(SIZES) >= 15
    assert table() in DOCS.read_text(), "python -m tests.architectures prints the table for docs/library.md"
    assert support("BERT").packing == "yes"


def test_the_logits_in_the_docs_are_what_was_measured() -> None:
    assert attention_logits.table() in (DOCS.parent / "method.md").read_text(), "python -m tests.attention_logits"
