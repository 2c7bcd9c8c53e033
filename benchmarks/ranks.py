"""A step of two ranks on this machine: by DistributedDataParallel, and by the plain sum of gradients it replaced."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.claims import ClaimSection
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import CLIP, MEDIUM, SMALL, TINY, experiment, network
from oelm_core.bench.turns import paired_ratio
from oelm_core.data.language import LanguageData
from oelm_core.errors import Refused
from oelm_core.formatting import measured_time
from oelm_core.launch.spawn import hold_port, rank_environment
from oelm_core.method.flops import StepSizes
from oelm_core.training.distributed import Ranks, join
from oelm_core.training.gradients import Gradients
from oelm_core.training.precision import choose_precision
from oelm_core.training.tasks import LanguageTask
from oelm_tui.console import note

WORLD = 2
SIZES = {"tiny": TINY, "small": SMALL, "medium": MEDIUM.but(vocab=4096, batch=2, length=128)}
"""A step is short beside its gradients, or two ranks on few cores would be measured for minutes."""
ROUNDS = 8
ALIKE = 0.05
"""What two equally fast ways may come out apart: less is told by no interval of so few rounds."""
DDP, BF16, SUM = "DDP", "DDP, gradients in bf16", "plain sum"
BUCKET = 25 << 20
"""Bytes of gradients that the plain sum sends in one go."""


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("ranks", "Two ranks")
    rows = []
    for size in ("tiny",) if effort.quick else ("small", "medium"):
        found = _of_two_ranks(size, effort)
        faster = paired_ratio(found[SUM], found[DDP])
        for name, seconds in found.items():
            against = "" if name == SUM else str(paired_ratio(found[SUM], seconds))
            rows.append([f"GPT, {size}", name, measured_time(statistics.median(seconds)), against])
        section.claim_ratio(
            f"two CPU ranks, GPT {size}: DDP's step against the plain sum of gradients",
            f"no slower, give or take {ALIKE:.0%}",
            faster,
            at_least=1 - ALIKE,
        )
    note = (
        f"An optimiser step of {WORLD} processes over gloo on this machine, wall clock of the first rank. The plain sum"
        " sends all gradients after the last backward pass; DDP sends them while it goes on."
    )
    columns = ["network", "gradients travel by", "step", "times as fast as the plain sum"]
    section.tables.append(BenchTable("Two ranks, one step", columns, rows, note))
    return section


def _of_two_ranks(size: str, effort: Effort) -> dict[str, list[float]]:
    """Seconds of every round, by variant."""
    port, threads = hold_port(), max(1, effort.threads // WORLD)
    settings = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "benchmarks.ranks", size, str(effort.rounds(ROUNDS)), str(threads)]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **settings, **rank_environment(rank, WORLD, port.number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise Refused("the two ranks did not come to their end; their own words are above.")
    found: dict[str, list[float]] = json.loads(said[0])
    return found


# -- in a rank -------------------------------------------------------------------------------------------------------


def main(size: str, rounds: int, threads: int) -> None:
    torch.set_num_threads(threads)
    ranks, sizes = join("cpu"), SIZES[size]
    if ranks.main:
        note(f"{WORLD} ranks, GPT {size}: building it three times")
    steps = {name: _step(name, sizes, ranks) for name in (DDP, BF16, SUM)}
    found: dict[str, list[float]] = {name: [] for name in steps}
    each = 1 if size == "medium" else 5
    for number in range(rounds + 1):
        if ranks.main:
            note(f"{WORLD} ranks, GPT {size}: {f'round {number} of {rounds}' if number else 'warming up'}")
        for name in steps if number % 2 else reversed(steps):
            ranks.barrier()
            began = time.perf_counter()
            for _ in range(each):
                steps[name]()
            if number:  # the first round warms up
                found[name].append((time.perf_counter() - began) / each)
    if ranks.main:
        print(json.dumps(found))
    ranks.barrier()
    ranks.close()


def _step(name: str, sizes: StepSizes, ranks: Ranks) -> Callable[[], None]:
    """An optimiser step of one forward pass; `name` says how gradients travel."""
    model = network("gpt", sizes).train()
    tokens = torch.randint(0, sizes.vocab, (2 * sizes.batch * sizes.length + 1,)).numpy().astype("uint16")
    task = LanguageTask(experiment("gpt", sizes), LanguageData("bench", tokens, tokens, 0, ""), None)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    compression = "bf16" if name == BF16 else None
    gradients = Gradients(model, task, ranks, choose_precision("fp32", ranks.device), compression)
    batch = task.load(1, ranks)

    def loss() -> torch.Tensor:
        if name == SUM:
            return task.loss(model, batch.parts[0], batch.units)
        gradients.prepare(batch)
        return gradients.loss(batch.parts[0], batch.units)

    return partial(_optimise, loss, plain_sum if name == SUM else None, trained, optimiser)


def _optimise(
    loss: Callable[[], torch.Tensor],
    after: Callable[[list[nn.Parameter]], None] | None,
    trained: list[nn.Parameter],
    optimiser: torch.optim.Optimizer,
) -> None:
    loss().backward()
    if after is not None:
        after(trained)
    nn.utils.clip_grad_norm_(trained, CLIP)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def plain_sum(trained: Iterable[nn.Parameter]) -> None:
    """Adds up gradients over ranks in a few pieces, once all of them are there."""
    pending = []
    for bucket in _buckets(parameter.grad for parameter in trained if parameter.grad is not None):
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        pending.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, work in pending:
        work.wait()
        pieces = flat.split([gradient.numel() for gradient in bucket])
        for gradient, piece in zip(bucket, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


def _buckets(gradients: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    bucket: list[torch.Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(one.numel() * one.element_size() for one in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
