"""Several processes on one batch: ranks agree on when to stop, sum gradients, and share out the evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

BUCKET = 25 << 20  # bytes of gradients sent in one go


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run. With one process every method is free."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        return self.rank == 0

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Adds up gradients over ranks. Losses are already divided by the whole batch, so the sum is its gradient.

        Plain all-reduce rather than DistributedDataParallel: weights may begin to train in the middle of a run, and
        packed batches call parts of the model, neither of which DDP can follow.
        """
        if self.world == 1:
            return
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        pending = []
        for bucket in _buckets(grads):
            flat = torch.cat([grad.flatten() for grad in bucket])
            pending.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        for bucket, flat, work in pending:
            work.wait()
            at = 0
            for grad in bucket:
                grad.copy_(flat[at : at + grad.numel()].view_as(grad))
                at += grad.numel()

    def sum_(self, value: torch.Tensor) -> torch.Tensor:
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def agree(self, number: int) -> int:
        """The largest number any rank says. Host only: nobody waits for a device."""
        if self.world == 1:
            return number
        said = torch.tensor([number])
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        return int(said)

    def gather(self, mine: T) -> list[T]:
        """What every rank has, in the order of ranks, for every rank."""
        if self.world == 1:
            return [mine]
        found = [mine] * self.world
        dist.all_gather_object(found, mine)
        return found

    def same_weights(self, model: torch.nn.Module) -> None:
        """Rank 0's weights for everyone."""
        if self.world > 1:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.data, 0)

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def close(self) -> None:
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _buckets(grads: list[torch.Tensor]) -> Iterable[list[torch.Tensor]]:
    bucket: list[torch.Tensor] = []
    size = 0
    for grad in grads:
        bucket.append(grad)
        size += grad.numel() * grad.element_size()
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def join(kind: str) -> Ranks:
    """Joins the other ranks of the run, if torchrun started any. `kind` is cpu or cuda."""
    told = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    rank, world, local = (int(os.environ.get(name, alone)) for name, alone in told)
    device = torch.device(f"cuda:{local}" if kind == "cuda" else "cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    if world > 1:
        # gloo beside nccl: ranks talk about stopping without touching the device
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=30))
    return Ranks(rank, world, device)
