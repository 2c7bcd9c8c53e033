"""Attention of encoders: torch's SDPA, but for dropout on a CPU, where its draws cost more than its products.

Registered with transformers under a name of its own, so that the encoders' code stays theirs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from oelm_core.models.cpu_dropout import cheaper_here, drop

NAME = "oelm"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Mixed values `[B, T, H, c]` of q, k, v `[B, H, T, c]`. The mask: boolean (True: look), or added to the logits."""
    causal = more.get("is_causal", getattr(module, "is_causal", True))
    if causal or not 0.0 < dropout < 1.0 or not cheaper_here(query):
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    logits = torch.matmul(query * scale, key.transpose(-2, -1))
    if attention_mask is not None:
        logits = logits + _added(attention_mask, logits)
    weights = drop(torch.softmax(logits, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    # The least number, not -inf: a row of padding that sees nothing must not become NaN.
    return torch.zeros((), dtype=like.dtype).masked_fill(~mask, torch.finfo(like.dtype).min)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
