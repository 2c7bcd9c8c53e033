"""What our GPT is measured against: the author's plain way, a nanoGPT-like one, and transformers' GPT2.

NANOGPT=FILE adds nanoGPT's own model, which is not ours to ship: the path of its model.py.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from oelm_core.bench.steps import Step, device, token_batch, work
from oelm_core.method.flops import StepSizes

NANOGPT = "NANOGPT"


class PlainAttention(nn.Module):
    """Four projections without bias, logits and probabilities written out, dropout on the probabilities."""

    def __init__(self, sizes: StepSizes) -> None:
        super().__init__()
        self.heads, self.width = sizes.heads, sizes.d_model // sizes.heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(sizes.d_model, sizes.d_model, bias=False) for _ in range(4)
        )
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("seen", torch.ones(sizes.length, sizes.length).tril().bool(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, d_model = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, self.width).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        logits = q @ k.transpose(-2, -1) / math.sqrt(self.width)
        logits = logits.masked_fill(~self.seen[:length, :length], float("-inf"))  # type: ignore[index]
        weights = self.dropout(F.softmax(logits, dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, d_model))


class FusedAttention(nn.Module):
    """One projection for query, key and value, then torch's scaled dot product with its dropout."""

    def __init__(self, sizes: StepSizes) -> None:
        super().__init__()
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.joined = nn.Linear(sizes.d_model, 3 * sizes.d_model, bias=False)
        self.out = nn.Linear(sizes.d_model, sizes.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.joined(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class PeerBlock(nn.Module):
    """Pre-LayerNorm block. plain: the author's dropout inside the feed-forward too; nanoGPT has none there."""

    def __init__(self, sizes: StepSizes, *, plain: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.d_model) for _ in range(2))
        self.attention = PlainAttention(sizes) if plain else FusedAttention(sizes)
        self.up = nn.Linear(sizes.d_model, sizes.d_ff, bias=plain)
        self.down = nn.Linear(sizes.d_ff, sizes.d_model, bias=plain)
        self.inner = nn.Dropout(sizes.dropout) if plain else nn.Identity()
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norms[0](x)))
        return x + self.dropout(self.down(self.inner(F.gelu(self.up(self.norms[1](x))))))


class PeerGPT(nn.Module):
    """Token ids to the loss through the whole logits tensor, head tied to the embedding."""

    def __init__(self, sizes: StepSizes, *, plain: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocab, sizes.d_model)
        self.places = nn.Embedding(sizes.length, sizes.d_model)
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(PeerBlock(sizes, plain=plain) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.d_model)
        self.head = nn.Linear(sizes.d_model, sizes.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.dropout(self.words(inputs) + self.places(places))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain_gpt(sizes: StepSizes) -> Step:
    """The author's way as their reports describe it, with torch's default AdamW."""
    return _peer(sizes, "default", plain=True)


def nano_gpt(sizes: StepSizes) -> Step:
    return _peer(sizes, _nano_optimiser(), plain=False)


def nano_gpt_itself(sizes: StepSizes) -> Step:
    """With nanoGPT's own model.py, whose hidden layers are always four times as wide as the others."""
    sizes = sizes.but(d_ff=4 * sizes.d_model)  # --quick's are narrower
    spec = importlib.util.spec_from_file_location("nanogpt_model", os.environ[NANOGPT])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    named = {"block_size": sizes.length, "vocab_size": sizes.vocab, "n_layer": sizes.layers, "n_head": sizes.heads}
    torch.manual_seed(0)
    model = module.GPT(module.GPTConfig(**named, n_embd=sizes.d_model, dropout=sizes.dropout, bias=False))
    model.to(device()).train()
    inputs, targets = token_batch(sizes)
    return Step(model, lambda: model(inputs, targets)[1], _nano_optimiser(), work(sizes))


def _nano_optimiser() -> str:
    """nanoGPT takes the fused AdamW on a GPU and the default one on a CPU."""
    return "fused" if device().type == "cuda" else "default"


def _peer(sizes: StepSizes, optimiser: str, *, plain: bool) -> Step:
    torch.manual_seed(0)
    model = PeerGPT(sizes, plain=plain).to(device()).train()
    inputs, targets = token_batch(sizes)
    return Step(model, lambda: model(inputs, targets), optimiser, work(sizes))


def transformers_gpt2(sizes: StepSizes) -> Step:
    """transformers' GPT2 with SDPA, exact GELU, and the fused AdamW that its Trainer takes by default."""
    config: Any = GPT2Config(
        vocab_size=sizes.vocab,
        n_positions=sizes.length,
        n_embd=sizes.d_model,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        n_inner=sizes.d_ff,
        resid_pdrop=sizes.dropout,
        embd_pdrop=sizes.dropout,
        attn_pdrop=sizes.dropout,
        activation_function="gelu",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(config)
    model.to(device()).train()
    inputs, _ = token_batch(sizes)
    # it shifts the labels itself
    return Step(model, lambda: model(input_ids=inputs, labels=inputs).loss, "fused", work(sizes))


PEERS: dict[str, Callable[[StepSizes], Step]] = {
    "plain": plain_gpt,
    "nanoGPT-style": nano_gpt,
    "transformers GPT2": transformers_gpt2,
    **({"nanoGPT's model.py": nano_gpt_itself} if os.environ.get(NANOGPT) else {}),
}
