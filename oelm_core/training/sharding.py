"""What does not fit one card: torch's FSDP2 shares weights, gradients and Adam's moments out among the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from oelm_core.errors import BadInput
from oelm_core.models.structure import attention_layers
from oelm_core.training.distributed import Ranks

Tensors = dict[str, torch.Tensor]
AVAILABLE = hasattr(FSDPModule, "set_force_sum_reduction_for_comms")
"""From torch 2.8 on: before, FSDP2 neither sums nor runs on a CPU."""
_REDUCED_IN = {None: None, "bf16": torch.bfloat16}
"""By `train.gradient_compression`: the format in which gradients travel; None for their own."""


class Shards:
    """A module of which each rank holds a part: its layers one by one, and what is outside of them as the last.

    A layer is put together when it is used and taken apart again, so a rank needs room for its part and one layer.
    requires_grad is asked of the parts at every use: a weight may begin to train at any step.
    """

    def __init__(self, module: nn.Module, ranks: Ranks, compression: str | None = None) -> None:
        """module: on the host, the same on every rank; its parts go to the ranks' devices."""
        if not AVAILABLE:
            raise BadInput(f"train.shard needs torch 2.8 or newer; this is torch {torch.__version__}.")
        self.module = module
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        policy = MixedPrecisionPolicy(reduce_dtype=_REDUCED_IN[compression])
        self._parts: list[FSDPModule] = []
        self._hooks: list[tuple[MutableMapping[int, Any], int]] = []
        for part in (*(layer.block for layer in attention_layers(module)), module):
            tables = part._forward_pre_hooks, part._forward_hooks
            before = [set(table) for table in tables]
            fully_shard(part, mesh=mesh, mp_policy=policy)
            assert isinstance(part, FSDPModule)
            # FSDP takes the mean over ranks, for which gloo of torch 2.8 gives the sum: here it is always the sum.
            part.set_force_sum_reduction_for_comms(True)
            part.set_gradient_divide_factor(1.0)
            self._parts.insert(0, part)
            self._hooks += [(table, key) for table, old in zip(tables, before, strict=True) for key in set(table) - old]

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Inside every rank has all weights, for what ranks do apart: evaluation, samples, checks, the test text.

        All ranks enter together. What is written into the weights meanwhile is forgotten.
        """
        for part in self._parts:
            part.unshard()
        aside = [(table, dict(table)) for table, _ in self._hooks]
        for table, key in self._hooks:  # they would take a layer apart as soon as it was used, and call the other ranks
            del table[key]
        try:
            yield
        finally:
            for table, all_of_it in aside:
                table.clear()
                table.update(all_of_it)
            for part in self._parts:
                part.reshard()


def gathered(tensors: Tensors, keep: bool) -> Tensors:
    """Whole tensors on the host, for the rank that keeps them; every rank must call it with the same names."""
    found = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name] = whole.cpu()
    return found


def part_of(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that all ranks have, shared out as `like` is; itself where that is whole."""
    if not isinstance(like, DTensor):
        return whole.to(like.device)
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements)


def joined(number: torch.Tensor) -> torch.Tensor:
    """A figure over all parts, as a plain tensor."""
    return number.full_tensor() if isinstance(number, DTensor) else number
