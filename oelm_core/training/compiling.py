"""`train.compile`: layers through torch.compile, for the very shapes of a step where all steps have the same."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from oelm_core.models.structure import attention_layers


def compile_layers(model: nn.Module, *, fixed_shapes: bool, graphs: bool = False) -> None:
    """Layer by layer: quick to compile, and packed batches, which call parts of the model, use the same ones.

    fixed_shapes: every step's batch is as large as the last one's, so that code for just these sizes pays; the smaller
    batch at an epoch's end is compiled once too. Else one code for all sizes, and no graphs: each size would be one.
    graphs: on a card, one launch for a layer's forward pass and one for its backward pass.
    """
    for layer in attention_layers(model):
        layer.block.compile(dynamic=not fixed_shapes, mode="reduce-overhead" if graphs and fixed_shapes else None)


def as_written(fixed_shapes: bool) -> AbstractContextManager[object]:
    """Around evaluation and samples, whose sizes change all the time: with code for fixed shapes each would wait for
    the compiler, so nothing compiled is used."""
    return torch.compiler.set_stance("force_eager") if fixed_shapes else nullcontext()
