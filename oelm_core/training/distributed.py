"""Several processes on one batch: how ranks meet, agree on when to stop, and share out the evaluation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist

from oelm_core.patience import RANK_SILENCE

T = TypeVar("T")

OF_GLOO = re.compile(r"\[[^\]]*gloo/[^\]]*\] (.*?)(?:\. This is typically|$)", re.MULTILINE)
"""`[.../gloo/transport/tcp/pair.cc:537] Connection closed by peer`, with advice behind it or not."""
FROM_ELSEWHERE = ("ncclRemoteError", "remote process exited", "Watchdog caught collective operation timeout")


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run. With one process every method is free."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        return self.rank == 0

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

    def first_alone(self, make: Callable[[], T]) -> T:
        """What each rank gets from `make`; the others call it once the first rank has."""
        if not self.main:
            self.barrier()
        made = make()
        if self.main:
            self.barrier()
        return made

    def close(self) -> None:
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


class LostPeer(NamedTuple):
    """What a rank saw of the others."""

    reason: str
    """hang where one was silent for too long, else error."""
    message: str


def lost_peer(error: BaseException) -> LostPeer | None:
    """What an error says of the other ranks: gone, or silent for too long. None for one of our own.

    gloo raises plain RuntimeErrors that begin with its source file; NCCL names the errors that came from elsewhere.
    """
    words = str(error)
    of_gloo = isinstance(error, RuntimeError) and OF_GLOO.search(words)
    of_store = isinstance(error, (dist.DistNetworkError, dist.DistStoreError))
    of_nccl = isinstance(error, dist.DistBackendError) and any(sign in words for sign in FROM_ELSEWHERE)
    if not (of_gloo or of_store or of_nccl):
        return None
    told = of_gloo[1] if of_gloo else next(iter(words.strip().splitlines()), type(error).__name__)
    if "timed out" in words.lower() or "timeout" in words.lower():
        return LostPeer("hang", f"another rank did not answer for {RANK_SILENCE.seconds():.0f} s ({told}).")
    return LostPeer("error", f"another rank is gone ({told}).")


def join(kind: str) -> Ranks:
    """Joins the other ranks of the run, if the runner started any. `kind` is cpu or cuda."""
    told = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    rank, world, local = (int(os.environ.get(name, alone)) for name, alone in told)
    device = torch.device(f"cuda:{local}" if kind == "cuda" else "cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    if world > 1:
        # gloo beside nccl: ranks talk about stopping without touching the device
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=RANK_SILENCE.seconds()))
    return Ranks(rank, world, device)
