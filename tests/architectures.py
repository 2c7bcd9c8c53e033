"""Tiny models of many architectures, made from their configurations without a download, and what works on each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, T5EncoderModel
from transformers.utils import logging

from oelm_core import Method, apply
from oelm_core.config import Extras
from oelm_core.errors import BadInput
from oelm_core.models.extras import attach_extras
from oelm_core.models.structure import attention_layers
from oelm_core.registry import INITIALISERS

logging.set_verbosity_error()
_USUAL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_GROUPED = {"num_key_value_heads": 2}
_NORMALISED = {**_GROUPED, "rms_norm_eps": 1e-12}  # an epsilon is not scaled along with a weight
_IMAGE = {"image_size": 16, "patch_size": 8}

SIZES: dict[str, dict[str, Any]] = {
    "BERT": {"model_type": "bert"},
    "RoBERTa": {"model_type": "roberta"},
    "ELECTRA": {"model_type": "electra", "embedding_size": 32},
    "ALBERT": {"model_type": "albert", "embedding_size": 32},
    "DistilBERT": {"model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "DeBERTa": {
        "model_type": "deberta"
    },  # the tiny one without relative positions: those have projections of their own
    "DeBERTa v2/v3": {
        "model_type": "deberta-v2",
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "max_relative_positions": 16,
        "share_att_key": True,
    },
    "ModernBERT": {"model_type": "modernbert", "cls_token_id": 1, "sep_token_id": 2},
    "T5 encoder": {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
    "ViT": {"model_type": "vit", **_IMAGE},
    "DINOv2": {"model_type": "dinov2", **_IMAGE},
    "CLIP vision": {"model_type": "clip_vision_model", **_IMAGE},
    "GPT-2": {"model_type": "gpt2", **_GPT},
    "GPT-Neo": {"model_type": "gpt_neo", "attention_types": [[["global"], 2]], "num_layers": 2, "num_heads": 4},
    "GPT-J": {"model_type": "gptj", **_GPT, "rotary_dim": 4},
    "GPT-NeoX, Pythia": {"model_type": "gpt_neox"},
    "OPT": {"model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32},
    "BLOOM": {"model_type": "bloom", "n_layer": 2, "n_head": 4},
    "MPT": {"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2},
    "Falcon 7B": {"model_type": "falcon", "new_decoder_architecture": False, "multi_query": True},
    "Falcon 40B": {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
    "StarCoder": {"model_type": "gpt_bigcode", **_GPT, "multi_query": True},
    "Phi": {"model_type": "phi"},
    "Phi-3": {"model_type": "phi3", **_GROUPED},
    "Llama": {"model_type": "llama", **_GROUPED},
    "Mistral": {"model_type": "mistral", **_GROUPED},
    "Mixtral": {"model_type": "mixtral", **_GROUPED, "num_local_experts": 2},
    "Qwen2": {"model_type": "qwen2", **_GROUPED},
    "Qwen3": {"model_type": "qwen3", **_NORMALISED, "head_dim": 16},
    "OLMo 2": {"model_type": "olmo2", **_NORMALISED},
    "Gemma": {"model_type": "gemma", **_GROUPED, "head_dim": 8},
    "Gemma 3": {"model_type": "gemma3_text", **_NORMALISED, "head_dim": 8},
}
NORMALISED = {"Qwen3", "OLMo 2", "Gemma 3"}
"""Their queries and keys are normalised behind the projections: the scale of a weight has no effect."""


def build(name: str, seed: int = 0) -> nn.Module:
    sizes = dict(SIZES[name])
    config = AutoConfig.for_model(sizes.pop("model_type"), **{**_USUAL, **sizes})
    torch.manual_seed(seed)
    model = T5EncoderModel(config) if name == "T5 encoder" else AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms that start at 0 and 1 would hide mistakes
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif parameter.dim() == 2:
                parameter.mul_(4.0)  # attention that prefers some tokens
    return model.eval()


def inputs(name: str) -> dict[str, Tensor]:
    torch.manual_seed(1)
    if "image_size" in SIZES[name]:
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    return {"input_ids": torch.randint(3, 60, (2, 12))}


def features(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**given).last_hidden_state
    return found


@dataclass(frozen=True)
class Support:
    """What was found to work on an architecture."""

    name: str
    projections: str
    heads: str
    initialisers: str
    freezing: str
    extras: str
    packing: str


@cache
@torch.no_grad()
def support(name: str) -> Support:
    layer = attention_layers(build(name))[0]
    groups: bool = layer.fused and layer.query.rows != tuple(range(layer.query.out_features))
    where = ("one weight, by groups" if groups else "one weight") if layer.fused else "separate"
    shared = f", {layer.key_heads} keys" if layer.key_heads != layer.heads else ""
    works = [init for init in INITIALISERS if init != "none" and _works(name, init)]
    return Support(
        name=name,
        projections=where,
        heads=f"{layer.heads}{shared}" + (", normalised" if name in NORMALISED else ""),
        initialisers="all" if len(works) == len(INITIALISERS) - 1 else ", ".join(works) or "none",
        freezing="rows" if layer.fused else "weights",
        extras="all" if _extras(name) else "no",
        packing="yes" if _packs(name) else "no",
    )


def _works(name: str, init: str) -> bool:
    try:
        apply(build(name), Method(init=init, scale="keep", freeze=("query", "key")))
    except BadInput:
        return False
    return True


def _extras(name: str) -> bool:
    """Whether extras change nothing at first, and something once each has learned."""
    model, given = build(name), inputs(name)
    before = features(model, given)
    try:
        attach_extras(model, Extras(gain=True, temperature=True, position_bias=4, qk_bias=True, low_rank=2))
    except BadInput:
        return False
    assert torch.allclose(features(model, given), before, atol=1e-5)
    for part in ("gain", "temperature", "position_bias", "query_up"):
        was = features(model, given)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "extras" in parameter_name and part in parameter_name:
                    parameter.add_(torch.randn_like(parameter))
        assert not torch.allclose(features(model, given), was, atol=1e-4), (name, part)
    return True


def _packs(name: str) -> bool:
    """Whether two texts in one row, positions starting again, give what each gives alone."""
    if "image_size" in SIZES[name]:
        return False
    model, ids = build(name), inputs(name)["input_ids"]
    one, other = ids[:1, :5], ids[1:, :7]
    first = 1 if name == "RoBERTa" else 0  # its positions start behind the padding's
    places = torch.cat([torch.arange(5), torch.arange(7)])[None] + first
    together = {"input_ids": torch.cat([one, other], 1), "position_ids": places}
    text = torch.tensor([0] * 5 + [1] * 7)
    same = text[:, None] == text[None, :]
    causal = getattr(attention_layers(model)[0].module, "is_causal", False)
    seen = same & torch.ones(12, 12, dtype=torch.bool).tril() if causal else same
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = torch.cat([features(model, {"input_ids": part}) for part in (one, other)], 1)
        for more in ({}, {"attention_mask": seen[None, None]}):
            try:
                if torch.allclose(features(model, {**together, **more}), alone, atol=1e-4):
                    return True
            except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
                continue
    return False


def table() -> str:
    head = ("architecture", "query, key, value", "heads here", "initialisers", "frozen as", "extras", "packing")
    rows = [head, tuple("---" for _ in head)]
    rows += [tuple(vars(support(name)).values()) for name in SIZES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table())
