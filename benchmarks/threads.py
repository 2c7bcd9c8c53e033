"""Our GPT's step beside its peers' at 1, 2 and 4 threads, on a quiet and on a busy machine, by both clocks."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.claims import ClaimSection
from benchmarks.gpt import SIZES
from benchmarks.peers import PEERS
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import SMALL, TINY, gpt
from oelm_core.bench.turns import ENOUGH, Make, Measured, Ratio, children, paired_ratio, turns
from oelm_core.formatting import measured_time
from oelm_core.method.flops import StepSizes

OURS = "ours"
COUNTS = (1, 2, 4)
SECONDS = {"quiet": 10.0, "busy": 30.0}
"""No round of a cell begins later, once there are enough: on a busy machine they differ more, so there are more."""
MEDIUM = "a third of Medium"
OF_SMALL = 0.4
"""So much of that time for steps as short as the demo's."""
AT_MOST = 60.0
"""No round at all begins later: one of more threads than cores, which wait for one another, may take half a minute."""


@dataclass(frozen=True)
class Cell:
    """What one number of threads found, by one clock: how many times our time each peer takes."""

    network: str
    threads: int
    machine: str
    clock: str
    ours: float
    times: dict[str, Ratio]

    def __str__(self) -> str:
        threads = f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"
        return f"{self.network}, {threads}, {self.machine}, {self.clock}"


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("threads", "Threads and neighbours")
    networks = {"tiny": TINY} if effort.quick else {MEDIUM: SIZES, "demo": SMALL}
    cells = [
        cell
        for network, sizes in networks.items()
        for threads in COUNTS
        for cell in _cells(section, network, sizes, threads, effort)
    ]
    rows = [
        [
            cell.network,
            str(cell.threads),
            cell.machine,
            cell.clock,
            measured_time(cell.ours),
            *map(str, cell.times.values()),
        ]
        for cell in cells
    ]
    note = (
        f"Steps of {MEDIUM}, {_described(SIZES)} (one layer where threads are more than the {os.cpu_count()} cores"
        f" here, and take turns); and of a network about as small as the demo's, {_described(SMALL)}. Ratios: how many"
        " times our time a peer takes in the same rounds; peers wait for threads as our worker does, which on a busy"
        f" machine is faster than they would by themselves. Busy: beside {effort.threads} processes that never rest."
    )
    columns = ["network", "threads", "machine", "clock", "ours", *PEERS]
    section.tables.append(BenchTable("A step at each number of threads", columns, rows, note))
    every = [(found, peer, cell) for cell in cells for peer, found in cell.times.items()]
    slower = [one for one in every if one[0].high < 1 and one[0].rounds >= ENOUGH]
    # Slower for sure, or else the least sure of all.
    found, peer, cell = min(slower, key=lambda one: one[0].high) if slower else min(every, key=lambda one: one[0].low)
    section.claim_ratio(
        "GPT step against every peer: the worst of all networks, threads, machines and clocks",
        "never slower: at least 1x",
        found,
        at_least=1.0,
        remark=f"{peer}; {cell}",
        why="threads that the system puts on one core wait for one another at each parallel part of a step, of which"
        " ours has more than its peers in small networks.",
    )
    return section


def _described(sizes: StepSizes) -> str:
    return f"{sizes.batch} x {sizes.length} tokens, {sizes.layers} layers, {sizes.vocab:,} words"


def _cells(section: ClaimSection, network: str, sizes: StepSizes, threads: int, effort: Effort) -> Iterator[Cell]:
    if network == MEDIUM and threads > (os.cpu_count() or 1):
        sizes = sizes.but(layers=1)
    makes: dict[str, Make] = {OURS: partial(gpt, sizes), **{name: partial(make, sizes) for name, make in PEERS.items()}}
    with children(makes, threads) as alive:
        for child in alive.values():
            child.ready()
        for machine, neighbours in (("quiet", 0), ("busy", effort.threads)):
            with busy(neighbours):
                rounds = effort.rounds(4 * ENOUGH)
                within = SECONDS[machine] * (1 if network == MEDIUM else OF_SMALL)
                found = turns(alive, rounds=rounds, warmup=0 if neighbours else 1, within=within, at_most=AT_MOST)
            section.keep(f"{network}, {threads} threads, {machine}", found)
            for clock in ("wall", "CPU"):
                seconds = {name: _seconds(one, clock) for name, one in found.items()}
                yield Cell(network, threads, machine, clock, statistics.median(seconds[OURS]), _times(seconds))


def _seconds(measured: Measured, clock: str) -> Sequence[float]:
    return measured.wall if clock == "wall" else measured.cpu


def _times(seconds: Mapping[str, Sequence[float]]) -> dict[str, Ratio]:
    return {name: paired_ratio(seconds[name], seconds[OURS]) for name in PEERS}


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that keep a core busy each."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
