"""One rank of a check of several cards: `python -m oelm_core.proof.rank_work TASK`; the first prints what was found."""

from __future__ import annotations

import os
import statistics
import sys
import time

import msgspec
import torch
import torch.distributed as dist

from oelm_core.proof.finding import RanksSaid
from oelm_core.training.distributed import Ranks, join

SMALL = 1 << 10
SIZES = {"cuda": (1 << 20, 25 << 20, 256 << 20), "cpu": (1 << 20, 8 << 20)}
"""Bytes: a small layer's gradients, a bucket of DDP's, those of a whole network."""
WARM, TIMED = 2, 5


def main(task: str) -> int:
    ranks = join(os.environ.get("OELM_DEVICE", "cpu"))
    found = peers() if task == "peers" else sums(ranks)
    if ranks.main:
        print(msgspec.json.encode(found).decode(), flush=True)
    ranks.close()
    return 0


def peers() -> RanksSaid:
    cards = range(torch.cuda.device_count())
    pairs = [(one, other) for one in cards for other in cards if one != other]
    return RanksSaid(without=[pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)])


def sums(ranks: Ranks) -> RanksSaid:
    """Times of sums over all ranks by their size, as one latency and one bandwidth."""
    times: dict[int, float] = {}
    wrong = 0
    for count in (SMALL, *SIZES[ranks.device.type]):
        values = torch.empty(count // 4, device=ranks.device)
        spent = []
        for _ in range(WARM + TIMED):
            values.fill_(ranks.rank + 1)
            _wait(ranks)
            began = time.perf_counter()
            dist.all_reduce(values)
            _wait(ranks)
            spent.append(time.perf_counter() - began)
        expected = ranks.world * (ranks.world + 1) / 2
        wrong += not bool((values == expected).all())
        times[count] = statistics.median(spent[WARM:])
    wrong = ranks.agree(wrong)
    return RanksSaid(wrong=wrong, latency=times[SMALL], bandwidth=bandwidth(times))


def bandwidth(times: dict[int, float]) -> float:
    """Bytes a second of large sums: what the last bytes cost, where they cost anything.

    >>> bandwidth({1000: 1.0, 2000: 2.0, 4000: 3.0})
    2000.0
    """
    (less, sooner), (more, later) = sorted(times.items())[-2:]
    return (more - less) / (later - sooner) if later > sooner else more / later


def _wait(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
