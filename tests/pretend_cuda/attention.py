"""Which of its attention kernels torch takes on a card, and a stand-in that goes the way it would.

The choice is made in C++ that a build without CUDA has not; there it would always be `math`. The rules are those of
torch's sdp_utils.cpp in their usual order of preference. What a real card takes is for `oelm doctor --gpu` to say.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.pretend_cuda import Capability

FLASH_DTYPES = (torch.float16, torch.bfloat16)
ALIGNED = 16
"""Keys to whose multiple torch fills up a mask for the memory-efficient kernel."""


def attention_kernel(capability: Capability, dtype: torch.dtype, masked: bool, head_dim: int) -> str:
    """flash, efficient or math. A mask is anything beyond plain causal attention."""
    if capability >= (8, 0) and dtype in FLASH_DTYPES and not masked and head_dim <= 256:
        return "flash"
    if capability >= (5, 0) and not (dtype == torch.bfloat16 and capability < (8, 0)):
        return "efficient"
    return "math"


class PretendAttention:
    """`F.scaled_dot_product_attention` on a card of this generation."""

    def __init__(self, capability: Capability) -> None:
        self.capability = capability
        self._math = torch.nn.functional.scaled_dot_product_attention

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(dtype)
        with torch.autocast("cuda", enabled=False):
            kernel = attention_kernel(self.capability, query.dtype, attn_mask is not None, query.shape[-1])
            aten = torch.ops.aten
            if kernel == "flash":
                out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)
                return out[0]
            if kernel == "efficient":
                bias = None if attn_mask is None else _bias(attn_mask, query, key)
                grows = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
                out = aten._scaled_dot_product_efficient_attention(
                    query, key, value, bias, grows, dropout_p, is_causal, scale=scale
                )
                return out[0]
            return self._math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """An additive mask over all heads, its rows filled up to the alignment of the kernel."""
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    keys = key.shape[-2]
    if keys % ALIGNED:
        mask = torch.nn.functional.pad(mask, (0, ALIGNED - keys % ALIGNED))[..., :keys]
    return mask.expand(*query.shape[:2], query.shape[-2], keys)
