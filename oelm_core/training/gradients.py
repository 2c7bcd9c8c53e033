"""The gradients of a step over all ranks: torch's DistributedDataParallel, or its FSDP2, around the task's loss."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from oelm_core.training.distributed import Ranks
from oelm_core.training.half_weights import HalfWeights
from oelm_core.training.precision import Precision
from oelm_core.training.sharding import Shards
from oelm_core.training.tasks import StepBatch, Task

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

_NAMES = inspect.signature(DistributedDataParallel).parameters
NO_BUFFERS: Any = {"forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False}
"""Has DDP send no buffers around before each pass, for ours are constants; torch 2.13 renamed it."""


class TaskLoss(nn.Module):
    """The task's loss as a module: packed batches call parts of the model, and DDP or FSDP must see the whole way."""

    def __init__(self, model: nn.Module, task: Task[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, part: Callable[[], Any], units: int) -> Tensor:
        """part: behind a call, for FSDP would bring a tuple's tensors to the device itself, and wait for them."""
        return self.task.loss(self.model, part(), units)


class Gradients:
    """`loss` of a forward pass; its backward pass leaves the sum over all ranks. One rank has no wrapper."""

    def __init__(
        self,
        model: nn.Module,
        task: Task[Any],
        ranks: Ranks,
        precision: Precision,
        compression: str | None = None,
        shards: Shards | None = None,
        compiled: bool = False,
    ) -> None:
        """shards: of the task's loss; it then sums by itself, at every pass, for gradients are not kept whole.

        Weights are cast by us in one process alone: DDP and FSDP wait for the gradients of the weights they know, and
        compiled code knows its own.
        """
        self.ranks, self.precision, self.compression, self.shards = ranks, precision, compression, shards
        self._alone: nn.Module = shards.module if shards else TaskLoss(model, task)
        self._wrapped: DistributedDataParallel | None = None
        self._trains: list[bool] = []
        alone = ranks.world == 1 and shards is None and not compiled
        self._halves = HalfWeights(model, precision.half) if alone and precision.half is not None else None

    def prepare(self, batch: StepBatch[Any]) -> None:
        """Before a step's forward passes: casts weights; wraps the model anew where others train than a step before.

        Draws random numbers then: the step's own are to be seeded after it.
        """
        if self._halves is not None:
            self._halves.cast()
        if self.ranks.world == 1 or self.shards is not None:
            return
        trains = [parameter.requires_grad for parameter in self._alone.parameters()]
        if trains != self._trains:
            self._trains, self._wrapped = trains, self._wrap(batch)

    def loss(self, part: Any, units: int) -> Tensor:
        """Divided by the units of the whole step already, so that the sum over ranks is its gradient."""
        with self.precision.autocast():
            loss: Tensor = (self._wrapped or self._alone)(lambda: part, units)
        return loss

    def pass_of(self, batch: StepBatch[Any], number: int) -> AbstractContextManager[None]:
        """Around forward and backward of one pass: gradients travel with the step's last one."""
        if self._halves is not None:
            return self._halves.in_use()
        if self._wrapped is None or number == len(batch.parts) - 1:
            return contextlib.nullcontext()
        return self._wrapped.no_sync()

    def _wrap(self, batch: StepBatch[Any]) -> DistributedDataParallel:
        part = batch.parts[-1]
        wrapped = DistributedDataParallel(
            self._alone,
            gradient_as_bucket_view=True,
            find_unused_parameters=self._leaves_some_out(part, batch.units),
            **NO_BUFFERS,
        )
        travel = WAYS[self.compression]
        wrapped.register_comm_hook(None, lambda _, bucket: travel(bucket))  # torch reads annotations, not their text
        # After its first pass DDP lays its buckets out anew, in the order in which gradients come. A pass that counts
        # for nothing: every step then adds in the same order, also the first one after a resume.
        with self.precision.autocast():
            loss = wrapped(lambda: part, batch.units)
        loss.backward()
        self._alone.zero_grad(set_to_none=True)
        return wrapped

    def _leaves_some_out(self, part: Any, units: int) -> bool:
        """Whether a weight that trains has no part in the loss of any rank (a head that the task does not use)."""
        with self.precision.autocast():
            reached = _weights_behind(self._alone(lambda: part, units))
        left_out = any(p.requires_grad and p not in reached for p in self._alone.parameters())
        return bool(self.ranks.agree(int(left_out)))


def _weights_behind(loss: Tensor) -> set[Tensor]:
    """The parameters that a loss depends on, by its graph."""
    seen, found, ahead = set(), set(), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(node.variable)
        ahead += [following for following, _ in node.next_functions]
    return found


def summed(bucket: GradBucket) -> Future[Tensor]:
    """DDP would divide by the number of ranks; the loss is already divided by the whole step."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(_first)


def summed_in_bf16(bucket: GradBucket) -> Future[Tensor]:
    """Half the bytes on their way, and eight bits of each gradient."""
    gradients = bucket.buffer()
    sent = dist.all_reduce(gradients.to(torch.bfloat16), async_op=True).get_future()
    return sent.then(lambda future: gradients.copy_(_first(future)))


def _first(future: Future[list[Tensor]]) -> Tensor:
    return future.value()[0]


WAYS: dict[str | None, Callable[[GradBucket], Future[Tensor]]] = {None: summed, "bf16": summed_in_bf16}
"""By `train.gradient_compression`."""
