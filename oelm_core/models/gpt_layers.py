"""The layers of our GPT: pre-LayerNorm, no bias in q/k/v/o, GELU; dropout on attention, residuals and feed-forward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Extras
from oelm_core.models import dropout_attention
from oelm_core.models.cpu_dropout import Dropout
from oelm_core.models.extras import AttentionExtras, join_mask, wanted
from oelm_core.models.gpt_config import OelmGPTConfig


class Attention(nn.Module):
    """Causal self-attention that stores no attention map. Shapes: B batch, T tokens, H heads, c head_dim."""

    def __init__(self, config: OelmGPTConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.heads, self.key_heads = config.heads, config.key_heads
        self.head_dim = config.d_model // config.heads
        self.dropout = config.dropout
        key_width = self.key_heads * self.head_dim
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, key_width, bias=False)
        self.v_proj = nn.Linear(config.d_model, key_width, bias=False)
        self.o_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        extras = Extras(**config.extras)
        if extras.qk_bias:  # added after the fact: drawing nothing, it leaves every other weight of the seed as it was
            self.q_proj.bias = nn.Parameter(torch.zeros(config.d_model))
            self.k_proj.bias = nn.Parameter(torch.zeros(key_width))
        self.extras = AttentionExtras(extras, self.heads, self.head_dim, causal=True) if wanted(extras) else None

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, H, T, c]`, keys and values `[B, key_heads, T, c]` of x `[B, T, d_model]`."""
        # Three products rather than one of joined weights: measured as fast, and a frozen one costs no weight gradient.
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.extras is not None:
            q = self.extras.scale_query(q)
        return _heads(q, self.heads), _heads(k, self.key_heads), _heads(v, self.key_heads)

    def forward(self, x: Tensor, mask: Tensor | None, cache: Any | None) -> Tensor:
        q, k, v = self.project(x)
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        out = self._attend(q, k, v, self._with_bias(mask, q, k), plain=mask is None and cache is None)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _with_bias(self, mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        bias = self.extras.logit_bias(q.shape[2], k.shape[2], q.dtype) if self.extras is not None else None
        return join_mask(mask, bias)

    def visible(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """The whole mask, for who wants to see the attention map: what forward leaves to `is_causal` written out."""
        joined = self._with_bias(mask, q, k)
        if joined is None:
            joined = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return joined

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, plain: bool) -> Tensor:
        """Weighted values `[B, H, T, c]`. plain: all T tokens look at one another, nothing padded, nothing cached."""
        k, v = _repeat(k, self.heads // self.key_heads), _repeat(v, self.heads // self.key_heads)
        dropout = self.dropout if self.training else 0.0
        if plain and dropout_attention.usable(q, mask, dropout):
            return dropout_attention.dropout_attention(q, k, v, mask, dropout)
        is_causal = mask is None and q.shape[2] > 1
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _repeat(x: Tensor, times: int) -> Tensor:
    return x if times == 1 else x.repeat_interleave(times, dim=1)


class FeedForward(nn.Module):
    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(F.gelu(self.up(x)))))


class Block(nn.Module):
    def __init__(self, config: OelmGPTConfig, index: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.attention = Attention(config, index)
        self.ffn_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.ffn = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None, cache: Any | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, cache))
        return x + self.ffn(self.ffn_norm(x))
