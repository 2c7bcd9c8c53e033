"""Cross-entropy of a language model without ever holding all its logits: 823 MB saved at 8 x 512 tokens."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
CHUNK = 256
"""Tokens whose logits exist at one time; measured fastest on a CPU, whose cache holds about so many."""
CHUNK_ON_GPU = 2048
"""A chunk is some 20 launches, and small products leave a card idle: fewer chunks, of 0.4 GB at GPT-2's vocabulary."""


def chunk_size(device: torch.device) -> int:
    return CHUNK if device.type == "cpu" else CHUNK_ON_GPU


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy of `hidden @ weight.T` against targets, a chunk of tokens at a time.

    hidden `[tokens, d_model]`, weight `[vocab, d_model]`, targets `[tokens]`; targets of -100 do not count.
    reduction: mean, sum, or none (then `[tokens]`, zero where ignored).
    """
    autocast = torch.is_autocast_enabled(hidden.device.type)
    if hasattr(F, "linear_cross_entropy") and hidden.dtype == weight.dtype and not autocast:
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk_size(hidden.device))
        return F.linear_cross_entropy(hidden, weight, targets, reduction=reduction, options=options)
    return chunked_cross_entropy(hidden, weight, targets, reduction)


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The same without torch's own function: for torch before 2.13, and under autocast (logits in its dtype)."""
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    if reduction == "none":
        used, size = weight.to(dtype), chunk_size(hidden.device)
        parts = [
            F.cross_entropy(_logits(part, used), target, ignore_index=IGNORED, reduction="none")
            for part, target in zip(hidden.split(size), targets.split(size), strict=True)
        ]
        return torch.cat(parts)
    total: Tensor = _ChunkedSum.apply(hidden, weight, targets, dtype)
    return total if reduction == "sum" else total / (targets != IGNORED).sum()


class _ChunkedSum(torch.autograd.Function):
    """Sum of token losses. The gradients are taken while a chunk's logits exist, so none is computed twice."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        used = weight.to(dtype)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        total = torch.zeros((), device=hidden.device, dtype=torch.promote_types(dtype, torch.float32))
        size = chunk_size(hidden.device)
        for start in range(0, len(hidden), size):
            piece = slice(start, start + size)
            target, counted = targets[piece].clamp(min=0), targets[piece] != IGNORED
            log_p = torch.log_softmax(_logits(hidden[piece], used), dim=-1)
            total -= (log_p.gather(1, target.unsqueeze(1)).squeeze(1) * counted).sum()
            if grad_hidden is None and grad_weight is None:
                continue
            slope = log_p.exp_()  # d loss / d logits = softmax - one_hot
            slope[torch.arange(len(target), device=target.device), target] -= 1
            slope = slope.mul_(counted.unsqueeze(1)).to(dtype)
            if grad_hidden is not None:
                grad_hidden[piece] = slope @ used
            if grad_weight is not None and dtype == torch.float32:
                grad_weight.addmm_(slope.T, hidden[piece].float())  # no second [vocab, d_model] for the sum
            elif grad_weight is not None:
                grad_weight += slope.T @ hidden[piece].to(dtype)
        ctx.save_for_backward(*(g for g in (grad_hidden, grad_weight) if g is not None))
        ctx.weight_dtype = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        grad_hidden = next(saved) * grads[0] if ctx.needs_input_grad[0] else None
        grad_weight = (next(saved) * grads[0]).to(ctx.weight_dtype) if ctx.needs_input_grad[1] else None
        return None if grad_hidden is None else grad_hidden.to(ctx.saved_tensors[0].dtype), grad_weight, None, None


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    logits = hidden.to(weight.dtype) @ weight.T
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
