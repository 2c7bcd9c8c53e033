"""What head-wise orthogonality does to attention logits with and without rotary positions and normalised queries."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig, AutoModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.utils import logging

from oelm_core import Method, apply
from oelm_core.models.projections import join_rows
from oelm_core.models.structure import attention_layers

logging.set_verbosity_error()
_SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "num_key_value_heads": 8,
    "head_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "GPT-2 (neither)": ("gpt2", {"n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 64, "vocab_size": 512}),
    "Llama (rotary)": ("llama", _SHAPE),
    "Qwen3 (rotary, normalised)": ("qwen3", _SHAPE),
}
STARTS = {
    "as it starts": None,
    "head-qr, keep": Method(init="head-qr", scale="keep", freeze=("query", "key")),
    "head-qr, unit": Method(init="head-qr", scale="unit", freeze=("query", "key")),
}


def build(name: str, start: str) -> nn.Module:
    kind, sizes = MODELS[name]
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    method = STARTS[start]
    if method is not None:
        apply(model, method)
    return model


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    """Logits `[texts, heads, queries, keys]` of the first layer, as they enter the softmax, for pairs that may look."""
    seen: list[Tensor] = []

    def watch(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        scale = more.get("scaling") or query.shape[-1] ** -0.5
        seen.append(query @ repeat_kv(key, query.shape[1] // key.shape[1]).transpose(2, 3) * scale)
        return sdpa_attention_forward(module, query, key, value, mask, **more)

    AttentionInterface.register("watch", watch)
    model.set_attn_implementation("watch")
    torch.manual_seed(1)
    model(input_ids=torch.randint(3, 512, (4, 32)))
    return seen[0].masked_fill(~torch.ones(32, 32, dtype=torch.bool).tril(), math.nan)


def spread(found: Tensor) -> float:
    return float(found[~found.isnan()].std())


def doubled(model: nn.Module) -> nn.Module:
    """With twice the query and key weights: four times the logits, unless a norm takes the scale out."""
    join_rows(model)
    for layer in attention_layers(model):
        for projection in layer.projections().values():
            projection.write_(projection.weight.detach() * 2)
    return model


def table() -> str:
    rows = [("model", "start", "std of logits", "the same, weights doubled"), ("---",) * 4]
    for name in MODELS:
        for start in STARTS:
            spreads = [spread(logits(change(build(name, start)))) for change in (nn.Module.eval, doubled)]
            rows.append((name, start, *(f"{one:.3f}" for one in spreads)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table())
