"""Dropout that is cheap on a CPU: of activations, and inside causal attention, for which SDPA has only a slow path.

Drawing: 16 random bits a number instead of a Bernoulli draw, one byte kept, not four. numpy draws and compares: its
SFC64 takes half the time of torch's Mersenne twister, its comparison a fifth of torch's.

Attention: torch's CPU kernel gives up when `dropout_p > 0` and keeps three `[batch, heads, T, T]` tensors for the
backward pass. Ours walks over blocks of queries that fit the cache, looks only at keys up to the block's end, keeps one
byte per logit (what was dropped) and recomputes the rest. `docs/performance.md` says what it buys.

With several threads each has pieces of a draw of its own. What is dropped does not depend on how many there are.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.models.threads import on_all_threads

BLOCK = 64
"""Queries per block of attention: `[heads, 64, 512]` logits are 1 MB, about what a core's cache holds."""
LOGITS = 1 << 18
"""So many at a time: of several rows where a row has fewer, since each product has threads wait for one another."""
PIECE = 1 << 18
"""Numbers that are drawn from one seed; more are drawn in pieces, by as many threads as there are."""


def kept(shape: tuple[int, ...], dropout: float) -> tuple[Tensor, float]:
    """1 for a number that survives, else 0 (uint8, of this shape), and the exact share that does.

    That is dropout rounded to 1 / 65536. Torch's global CPU generator gives the seed, so its state says it all. Bytes
    rather than booleans: torch makes floats of them five times as fast.
    """
    return _survivors(shape, dropout, _seed()), _share(dropout)


def _seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_().numpy())  # no operation of torch's, as item() is


def _threshold(dropout: float) -> int:
    return min(round(dropout * 65536), 65535)


def _share(dropout: float) -> float:
    return 1.0 - _threshold(dropout) / 65536


def _survivors(shape: tuple[int, ...], dropout: float, seed: int) -> Tensor:
    count, threshold = math.prod(shape), np.uint16(_threshold(dropout))
    found = np.empty(count, np.bool_)

    def draw(start: int) -> None:
        piece = found[start : start + PIECE]
        source = np.random.SFC64([seed, start] if start else seed)
        bits = source.random_raw((len(piece) + 3) // 4).view(np.uint16)[: len(piece)]
        np.greater_equal(bits, threshold, out=piece)

    on_all_threads(draw, range(0, count, PIECE))
    return torch.from_numpy(found.view(np.uint8)).view(shape)


def cheaper_here(x: Tensor) -> bool:
    """On a CPU, in fp32, outside autocast and compilers; elsewhere torch's own is as good or better."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def drop(x: Tensor, dropout: float) -> Tensor:
    """F.dropout, with the cheaper draw where it is one."""
    if not cheaper_here(x) or dropout >= 1.0:
        return F.dropout(x, dropout)
    out: Tensor = _Dropped.apply(x, dropout)
    return out


class Dropout(nn.Module):
    """nn.Dropout, the same way."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training and self.p > 0.0 else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: float) -> Tensor:
        survivors, share = kept(tuple(x.shape), dropout)
        ctx.save_for_backward(survivors)
        ctx.share = share
        return _scaled(x, survivors, share)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        (survivors,) = ctx.saved_tensors
        return _scaled(grads[0], survivors, ctx.share), None


def _scaled(x: Tensor, survivors: Tensor, share: float) -> Tensor:
    """x / share where it survives, else 0: one pass over x, written over the mask while that is in the cache."""
    out = survivors.float()
    return torch.addcmul(torch.zeros(()), x, out, value=1 / share, out=out)


def cheapen_dropout(model: nn.Module) -> nn.Module:
    """Puts our dropout in the place of torch's throughout a model that others wrote. It has no weights: names stay."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))
    return model


def dropout_attention_usable(query: Tensor, mask: Tensor | None, dropout: float) -> bool:
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


def _row_groups(batch: int, heads: int, length: int) -> list[slice]:
    rows = max(1, LOGITS // (heads * BLOCK * length))
    return [slice(row, min(row + rows, batch)) for row in range(0, batch, rows)]


def _future() -> Tensor:
    """-inf where a key lies after its query, `[BLOCK, BLOCK]`: adding it is cheaper than filling by a mask."""
    return torch.full((BLOCK, BLOCK), float("-inf")).triu(1)


def _probabilities(q: Tensor, k: Tensor, bias: Tensor | None, future: Tensor, start: int, end: int) -> Tensor:
    """Attention weights `[rows * H, end - start, end]` of one block of (scaled) queries, none on the future."""
    logits = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))
    if bias is not None:
        logits.unflatten(0, (-1, bias.shape[1])).add_(bias[0, :, start:end, :end])
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
        blocks, groups, future = _blocks(length), _row_groups(batch, heads, length), _future()
        places = list(itertools.product(groups, blocks))
        seeds = [_seed() for _ in places]
        survivors = [torch.empty(0)] * len(places)
        share = _share(dropout)

        def draw(place: int) -> None:
            rows, (start, end) = places[place]
            shape = ((rows.stop - rows.start) * heads, end - start, end)
            survivors[place] = _survivors(shape, dropout, seeds[place])

        on_all_threads(draw, range(len(places)))
        for (rows, (start, end)), keep in zip(places, survivors, strict=True):
            q, k, v = (x[rows].flatten(0, 1) for x in (scaled, key, value))
            p = _probabilities(q, k, bias, future, start, end).mul_(keep.float())
            out[rows, :, start:end] = torch.bmm(p, v[:, :end]).unflatten(0, (-1, heads))
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
        blocks, future, kept_here = _blocks(length), _future(), iter(survivors)
        for rows in _row_groups(batch, heads, length):
            q, k, v = (x[rows].flatten(0, 1) for x in (scaled, key, value))
            d_out = (grads[0][rows] / ctx.share).flatten(0, 1).contiguous()
            d_k, d_v = torch.zeros_like(k), torch.zeros_like(v)
            for (start, end), survived in zip(blocks, kept_here, strict=False):
                keep = survived.float()
                p = _probabilities(q, k, bias, future, start, end)
                block_out = d_out[:, start:end]
                d_p = torch.bmm(block_out, v[:, :end].transpose(1, 2)).mul_(keep)
                d_logits = torch._softmax_backward_data(d_p, p, -1, p.dtype)
                # Not baddbmm_: into a slice it multiplies head by head, a quarter slower over all.
                d_v[:, :end] += torch.bmm(p.mul_(keep).transpose(1, 2), block_out)
                d_query[rows, :, start:end] = torch.bmm(d_logits, k[:, :end]).unflatten(0, (-1, heads))
                d_k[:, :end] += torch.bmm(d_logits.transpose(1, 2), q[:, start:end])
                if d_bias is not None:
                    d_bias[0, :, start:end, :end] += d_logits.unflatten(0, (-1, heads)).sum(0)
            d_key[rows], d_value[rows] = (x.unflatten(0, (-1, heads)) for x in (d_k, d_v))
        return d_query.mul_(width**-0.5), d_key, d_value, d_bias, None
