"""Activation checkpointing: a layer keeps its input alone, and its backward pass computes the rest of it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from oelm_core.models.structure import attention_layers


def checkpoint_activations(model: nn.Module) -> None:
    """Has every layer of a model forget what its backward pass needs. The results are the same to the last bit.

    Dropout draws from torch's generators alone, whose state the second pass puts back. It acts on `forward`, so what
    hooks into a layer (FSDP) stands outside of it, and names and weights stay as they are.
    """
    for layer in attention_layers(model):
        layer.block.forward = Recomputed(layer.block)


class Recomputed:
    """A block's forward pass, run twice while it trains."""

    def __init__(self, block: nn.Module) -> None:
        self.block, self.forward = block, block.forward  # a bound method: a deep copy of the model binds it anew

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.block.training and torch.is_grad_enabled()):
            return self.forward(*args, **kwargs)
        names, count = list(kwargs), len(args)

        def run(*given: Any) -> Any:
            return self.forward(*given[:count], **dict(zip(names, given[count:], strict=True)))

        # All by position: whose generators to put back is asked of these alone.
        return checkpoint(run, *args, *kwargs.values(), use_reentrant=False)
