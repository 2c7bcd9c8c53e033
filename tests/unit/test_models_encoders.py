"""Encoders through transformers: found, built, loaded, refused; and the extras on them and on GPT."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DistilBertConfig,
    T5Config,
)
from transformers import DistilBertForSequenceClassification as DistilBert

from oelm_core.config import Extras
from oelm_core.errors import BadInput, NotFound
from oelm_core.method.freezing import apply_freezing, qk_fingerprint
from oelm_core.method.initialisers import apply_method, check_model
from oelm_core.models import build
from oelm_core.models.bert import ATTENTION, load_bert_with_head_wise_orthogonal
from oelm_core.models.extras import AttentionExtras, attach_extras
from oelm_core.models.structure import attention_layers, head_modules
from tests.small_models import ALL_EXTRAS, OELM, SMALL, experiment, loss_of, prepared, tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small pretrained BERT with four classes, as somebody might have left it."""
    path = tmp_path_factory.mktemp("bert")
    sizes = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    torch.manual_seed(0)
    config = BertConfig(**sizes, intermediate_size=48, max_position_embeddings=34, num_labels=4)
    BertForSequenceClassification(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt"])
def test_attention_is_found_with_its_parts(arch: str) -> None:
    layers = attention_layers(build(experiment(arch), seed=1))
    assert [layer.index for layer in layers] == [0, 1, 2]
    for layer in layers:
        assert (layer.heads, layer.key_heads, layer.head_dim) == (3, 3, 8)
        owners = (layer.query.owner, layer.key.owner, layer.value.owner)
        assert layer.output is not None
        assert len({id(part) for part in (*owners, layer.output, *layer.ffn)}) == 6
        up, down = layer.ffn
        assert (up.out_features, down.out_features) == (48, 24)


def test_another_encoder_whose_attention_has_other_names_works_too() -> None:
    config = DistilBertConfig(vocab_size=60, dim=24, n_layers=2, n_heads=3, hidden_dim=48, max_position_embeddings=34)
    model = DistilBert(config)
    exp = experiment("bert", OELM)
    apply_method(model, exp.method, torch.Generator().manual_seed(1))
    check_model(model, method=exp.method)
    assert len(apply_freezing(model, exp.method).names) == 8
    with pytest.raises(BadInput, match="extras works on BERT"):
        attach_extras(model, Extras(temperature=True))


def test_a_model_without_attention_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="Linear: no attention"):
        attention_layers(nn.Linear(2, 2))


def test_a_model_of_encoder_and_decoder_is_refused_in_a_sentence() -> None:
    model = nn.Linear(2, 2)
    model.config = T5Config(d_model=8)
    with pytest.raises(BadInput, match="it has an encoder and a decoder"):
        attention_layers(model)


def test_extras_are_refused_on_attention_they_do_not_know() -> None:
    sizes = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    model = DebertaV2ForSequenceClassification(DebertaV2Config(**sizes, intermediate_size=48))
    with pytest.raises(BadInput, match=r"DisentangledSelfAttention: method.extras works on BERT"):
        attach_extras(model, Extras(gain=True))


def test_heads_that_train_always_are_found() -> None:
    names = {arch: [name for name, _ in head_modules(build(experiment(arch), seed=1))] for arch in ("bert", "roberta")}
    assert names == {"bert": ["bert.pooler", "classifier"], "roberta": ["classifier"]}


def test_pretrained_weights_are_loaded_from_a_folder_with_a_fresh_seeded_head(folder: Path) -> None:
    exp = experiment("bert", start="pretrained", path=str(folder), classes=3)
    one, again, other = build(exp, seed=1), build(exp, seed=1), build(exp, seed=2)
    assert one.classifier.weight.shape == (3, 24)
    assert qk_fingerprint(one) == qk_fingerprint(other)
    assert torch.equal(one.classifier.weight, again.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    assert one.config._attn_implementation == ATTENTION
    assert one.config.hidden_dropout_prob == 0.0  # the preset's, not the folder's


def test_a_folder_brings_its_own_shape_to_the_meta_device(folder: Path) -> None:
    model = build(experiment("bert", start="pretrained", path=str(folder)), device="meta", seed=1)
    assert len(attention_layers(model)) == 2
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_model_that_cannot_be_loaded_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"model .*nowhere: it could not be loaded"):
        build(experiment("bert", start="pretrained", path=str(tmp_path / "nowhere")), seed=1)


def test_random_encoder_weights_depend_on_the_seed_alone() -> None:
    plain, again = (
        build(experiment("roberta"), seed=3),
        build(experiment("roberta", {**OELM, "extras": ALL_EXTRAS}), seed=3),
    )
    shared = dict(plain.named_parameters())
    assert all(torch.equal(p, shared[name]) for name, p in again.named_parameters() if name in shared)
    assert qk_fingerprint(build(experiment("roberta"), seed=4)) != qk_fingerprint(plain)


def test_the_authors_loader_makes_each_of_their_arms(folder: Path) -> None:
    loaded = build(experiment("bert", start="pretrained", path=str(folder)), seed=42)
    frozen = load_bert_with_head_wise_orthogonal(str(folder))
    assert check_model(frozen).worst < 1e-5
    assert not attention_layers(frozen)[1].key.bias.requires_grad
    baseline = load_bert_with_head_wise_orthogonal(str(folder), freeze_mode=False, init_method="none")
    assert qk_fingerprint(baseline) == qk_fingerprint(loaded)
    assert all(parameter.requires_grad for parameter in baseline.parameters())
    random = load_bert_with_head_wise_orthogonal(str(folder), init_method="normal")
    assert attention_layers(random)[0].query.weight.std().item() == pytest.approx(0.02, rel=0.2)
    with pytest.raises(BadInput, match="none of: orthogonal, normal, none"):
        load_bert_with_head_wise_orthogonal(str(folder), init_method="orthgonal")


def pairwise(model: nn.Module, ids: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model.eval()(input_ids=ids, **kwargs).logits.detach()
    return out


@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt"])
def test_extras_start_where_they_change_nothing_and_then_learn(arch: str) -> None:
    plain, _ = prepared(experiment(arch, OELM))
    model, _ = prepared(experiment(arch, {**OELM, "extras": ALL_EXTRAS}))
    assert torch.allclose(pairwise(plain, tokens()), pairwise(model, tokens()), atol=1e-6)
    model.train()
    loss_of(model, tokens()).backward()
    for name, parameter in model.named_parameters():
        if name.endswith(("query_down", "key_down")):
            continue  # of no effect while its up is zero
        if "extras" in name or name.endswith(("query.bias", "q_proj.bias")):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("causal", [True, False])
def test_a_position_bias_is_the_table_entry_of_each_distance(causal: bool) -> None:
    extras = AttentionExtras(Extras(position_bias=3), heads=2, head_dim=4, causal=causal)
    torch.manual_seed(0)
    table = torch.randn_like(extras.position_bias)
    extras.position_bias.data = table
    bias = extras.logit_bias(5, 8, torch.float32)
    assert bias.shape == (1, 2, 5, 8)
    for query in range(5):
        for key in range(8):
            distance = query + 3 - key  # the last query faces the last key
            if causal and distance < 0:
                assert bias[0, 0, query, key] == -torch.inf
            else:
                place = min(distance, 3) if causal else max(-3, min(distance, 3)) + 3
                assert bias[0, 1, query, key] == table[1, place]


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_an_encoders_extras_do_what_the_formula_says(arch: str) -> None:
    """Temperature, gain and biases can be folded into the query weights; the position bias into an eager mask."""
    model, _ = prepared(experiment(arch, {**OELM, "extras": {"temperature": True, "gain": True}}))
    folded, _ = prepared(experiment(arch, OELM))
    torch.manual_seed(2)
    for layer, target in zip(attention_layers(model), attention_layers(folded), strict=True):
        extras = layer.module.extras
        with torch.no_grad():
            extras.temperature.copy_(torch.rand(3) + 0.5)
            extras.gain.copy_(torch.rand(24) + 0.5)
            factor = extras.gain * extras.temperature.repeat_interleave(8)
            target.query.weight.mul_(factor[:, None])
            target.query.bias.mul_(factor)
    assert torch.allclose(pairwise(model, tokens()), pairwise(folded, tokens()), atol=1e-6)


@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt"])
def test_a_low_rank_update_is_one_of_the_query_and_key_weights(arch: str) -> None:
    model, _ = prepared(experiment(arch, {**OELM, "extras": {"low_rank": 2}}))
    folded, _ = prepared(experiment(arch, OELM))
    torch.manual_seed(2)
    for layer, target in zip(attention_layers(model), attention_layers(folded), strict=True):
        update = layer.module.extras.low_rank
        with torch.no_grad():
            nn.init.normal_(update.query_up)
            nn.init.normal_(update.key_up)
            target.query.weight.add_(update.query_up @ update.query_down)
            target.key.weight.add_(update.key_up @ update.key_down)
    assert not torch.equal(update.query_down, update.key_down)
    assert torch.allclose(pairwise(model, tokens()), pairwise(folded, tokens()), atol=1e-5)
    loss_of(model, tokens()).backward()
    assert update.key_down.grad.abs().max() > 0
    assert attention_layers(model)[0].key.weight.grad is None


def test_random_low_rank_updates_differ_from_layer_to_layer_and_by_the_seed_alone() -> None:
    def downs(seed: int) -> list[torch.Tensor]:
        model = build(experiment("gpt", {**OELM, "extras": {"low_rank": 2}}), seed=seed)
        return [layer.module.extras.low_rank.query_down for layer in attention_layers(model)]

    first, again, other = downs(3), downs(3), downs(4)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])
    assert first[0].square().sum(1).mean().item() == pytest.approx(1, rel=0.5)  # rows of about unit length


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_a_position_bias_respects_padding_and_packing(arch: str) -> None:
    model, _ = prepared(experiment(arch, {**OELM, "extras": {"position_bias": 4}}))
    torch.manual_seed(2)
    for layer in attention_layers(model):
        nn.init.normal_(layer.module.extras.position_bias)
    ids = tokens(1, 6)
    alone = pairwise(model, ids)
    padded = torch.cat([ids, torch.full((1, 4), model.config.pad_token_id)], 1)
    mask = torch.cat([torch.ones(1, 6), torch.zeros(1, 4)], 1).long()
    assert torch.allclose(pairwise(model, padded, attention_mask=mask), alone, atol=1e-5)
    first = 2 if arch == "roberta" else 0
    packed = torch.cat([tokens(1, 5, seed=9), ids], 1)
    owner = torch.tensor([0] * 5 + [1] * 6)
    places = torch.cat([torch.arange(5), torch.arange(6)])[None] + first
    encoder = getattr(model, arch)
    together = encoder(input_ids=packed, attention_mask=(owner[:, None] == owner)[None, None], position_ids=places)
    apart = encoder(input_ids=ids)
    assert torch.allclose(together.last_hidden_state[:, 5:], apart.last_hidden_state, atol=1e-5)


def test_sdpa_stays_on_with_every_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: object, **kwargs: object) -> torch.Tensor:
        calls.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    for arch in ("bert", "gpt"):
        model, _ = prepared(experiment(arch, {**OELM, "extras": ALL_EXTRAS}))
        pairwise(model, tokens())
    assert len(calls) == 2 * SMALL["layers"]


@pytest.mark.parametrize("arch", ["bert", "gpt"])
def test_extras_train_under_autocast(arch: str) -> None:
    model, _ = prepared(experiment(arch, {**OELM, "extras": ALL_EXTRAS}))
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, tokens())
    loss.backward()
    layer = attention_layers(model)[0]
    assert loss.isfinite()
    assert layer.module.extras.gain.grad.dtype == torch.float32
    assert layer.query.bias.grad.abs().max() > 0
