"""Causal attention with dropout on a CPU, in blocks that fit its cache: SDPA has only a slow path there.

torch's CPU kernel gives up when `dropout_p > 0` and keeps three `[batch, heads, T, T]` tensors for the backward pass.
This one walks over blocks of queries, looks only at keys up to the block's end, keeps one byte per logit (what was
dropped) and recomputes the rest. `oelm bench` prints what it buys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oelm_core.models.cpu_dropout import cheaper_here, kept

BLOCK = 64
"""Queries per block: `[heads, 64, 512]` logits are 1 MB, about what a core's cache holds."""


def usable(query: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether this is the faster way: on a CPU, in fp32, with dropout, plain causal (a per-head bias is fine)."""
    per_head = mask is None or (mask.dtype == torch.float32 and tuple(mask.shape[:2]) == (1, query.shape[1]))
    return 0.0 < dropout < 1.0 and per_head and cheaper_here(query)


def dropout_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(c) + bias), causal, with dropout, times v. q, k, v and the result are `[B, H, T, c]`.

    bias: None, or `[1, H, T, T]` with the future at -inf. Draws from torch's global CPU generator.
    """
    out: Tensor = _DropoutAttention.apply(query, key, value, bias, dropout)
    return out


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def _future() -> Tensor:
    """-inf where a key lies after its query, `[BLOCK, BLOCK]`: adding it is cheaper than filling by a mask."""
    return torch.full((BLOCK, BLOCK), float("-inf")).triu(1)


def _probabilities(q: Tensor, k: Tensor, bias: Tensor | None, future: Tensor, start: int, end: int) -> Tensor:
    """Attention weights `[H, end - start, end]` of one block of (scaled) queries, none on the future."""
    logits = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))
    if bias is not None:
        logits.add_(bias[0, :, start:end, :end])
    else:
        size = end - start
        logits[..., start:end].add_(future[:size, :size])
    return torch.softmax(logits, dim=-1)


class _DropoutAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        batch, heads, length, width = query.shape
        out = torch.empty(batch, length, heads, width).transpose(1, 2)
        scaled = torch.mul(query, width**-0.5, out=torch.empty(query.shape))
        key, value = key.contiguous(), value.contiguous()
        future = _future()
        survivors: list[Tensor] = []
        share = 1.0
        for b, (q, k, v) in enumerate(zip(scaled, key, value, strict=True)):
            for start, end in _blocks(length):
                keep, share = kept((heads, end - start, end), dropout)
                survivors.append(keep)
                p = _probabilities(q, k, bias, future, start, end).mul_(keep.float())
                out[b, :, start:end] = torch.bmm(p, v[:, :end])
        out /= share
        ctx.save_for_backward(scaled, key, value, bias, *survivors)
        ctx.share = share
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scaled, key, value, bias, *survivors = ctx.saved_tensors
        batch, heads, length, width = scaled.shape
        d_query, d_key, d_value = (torch.empty(batch, length, heads, width).transpose(1, 2) for _ in range(3))
        d_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[3] else None
        future = _future()
        masks = iter(survivors)
        for b, (q, k, v) in enumerate(zip(scaled, key, value, strict=True)):
            d_out = (grads[0][b] / ctx.share).contiguous()
            d_k, d_v = torch.zeros_like(k), torch.zeros_like(v)
            for start, end in _blocks(length):
                keep = next(masks).float()
                p = _probabilities(q, k, bias, future, start, end)
                block_out = d_out[:, start:end]
                d_p = torch.bmm(block_out, v[:, :end].transpose(1, 2)).mul_(keep)
                d_logits = torch._softmax_backward_data(d_p, p, -1, p.dtype)
                # Not baddbmm_: into a slice it multiplies head by head, a quarter slower over all.
                d_v[:, :end] += torch.bmm(p.mul_(keep).transpose(1, 2), block_out)
                d_query[b, :, start:end] = torch.bmm(d_logits, k[:, :end])
                d_k[:, :end] += torch.bmm(d_logits.transpose(1, 2), q[:, start:end])
                if d_bias is not None:
                    d_bias[0, :, start:end, :end] += d_logits
            d_key[b], d_value[b] = d_k, d_v
        return d_query.mul_(width**-0.5), d_key, d_value, d_bias, None
