"""Variants that take turns: each in its own process, one running at a time, the order turned round every round.

A variant is made in its process by a function of a module (with its arguments in a `partial`), which pickle sends by
name. What two of them took is compared round by round, so that a machine's drift cancels.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from oelm_core.compare.distributions import t_quantile
from oelm_core.errors import LabError
from oelm_core.training.worker import SPIN

RESAMPLES = 2000
ENOUGH = 6
"""Rounds below which resampling promises more than it keeps."""
OUTPUT = "output.txt"
"""What a child prints, in its scratch folder."""
PRELOAD = ["oelm_core.bench.steps", *(f"oelm_core.models.{name}" for name in ("bert", "gpt", "peers"))]
"""Imported once, in the process that children are forked from. By name, since multiprocessing takes nothing else."""

Found = TypeVar("Found")
P = ParamSpec("P")


class Variant(Protocol):
    """Something to measure. One whose call makes several steps has their number as `steps`."""

    about: dict[str, float]

    def __call__(self) -> None: ...


Make = Callable[[], Variant]


# -- what was measured -----------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What a variant took in each round, and the most memory it held."""

    name: str
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    about: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    warm_up_wall: float = 0.0
    """Wall seconds of all warm-up steps, which no median has."""

    @property
    def seconds(self) -> list[float]:
        """The clock that counts: device events on a GPU, CPU time of all threads elsewhere."""
        return self.device or self.cpu

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def median_wall(self) -> float:
        return statistics.median(self.wall)

    @property
    def memory(self) -> int:
        """Bytes above what the process held before the variant was made; on a GPU what was allocated there."""
        return self.peak.get("device") or self.peak.get("above", 0)

    def as_dict(self) -> dict[str, Any]:
        return {"median": self.median, "median_wall": self.median_wall, **asdict(self)}


@dataclass(frozen=True)
class Ratio:
    """Of rounds, with its 95 % interval; mostly how many times as fast ours is. See `over_rounds`."""

    value: float
    low: float
    high: float
    rounds: int
    unit: str = "x"
    each: str = "rounds"
    """What `rounds` counts, where it is something else that was repeated."""

    def __str__(self) -> str:
        digits = ".4g" if self.unit.startswith(" ") else ".3f"  # a quantity, or a ratio
        value, low, high = (f"{one:{digits}}" for one in (self.value, self.low, self.high))
        if self.rounds == 1:
            return f"{value}{self.unit}, once"
        return f"{value}{self.unit} [{low}, {high}] in {self.rounds} {self.each}"


def ratio(found: Mapping[str, Measured], other: str, ours: str) -> Ratio:
    """How many times as fast `ours` is as `other`."""
    return paired_ratio(found[other].seconds, found[ours].seconds)


def paired_ratio(other: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Ratio of rounds taken in turns: round i of one beside round i of the other.

    >>> str(paired_ratio([2.0, 4.0, 6.3], [1.0, 2.0, 3.0]))
    '2.033x [1.895, 2.180] in 3 rounds'
    """
    if len(other) != len(ours) or not ours:
        raise ValueError("both variants need the same number of rounds, and at least one")
    return over_rounds([a / b for a, b in zip(other, ours, strict=True)])


def over_rounds(values: Sequence[float], unit: str = "x") -> Ratio:
    """The median of what rounds found, with its interval by resampling; of few rounds their geometric mean (all that is
    measured here is positive), with Student's."""
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0], 1, unit)
    if len(values) >= ENOUGH:
        return Ratio(statistics.median(values), *bootstrap(values), len(values), unit)
    logs = [math.log(value) for value in values]
    side = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    value, low, high = (math.exp(statistics.fmean(logs) + by) for by in (0, -side, side))
    return Ratio(value, low, high, len(values), unit)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median, by resampling with replacement."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * (RESAMPLES - 1))], medians[round(0.975 * (RESAMPLES - 1))]


# -- taking turns ----------------------------------------------------------------------------------------------------


def take_turns(
    makes: Mapping[str, Make],
    *,
    rounds: int,
    threads: int,
    warmup: int = 1,
    within: float = math.inf,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Measured]:
    """Every variant once per round, forwards and backwards in turn; warm-up dropped.

    environments: of the variants that need variables of their own.
    """
    with children(makes, threads, environments) as alive:
        about = {name: child.ready() for name, child in alive.items()}
        found = turns(alive, rounds=rounds, warmup=warmup, within=within)
        for name, child in alive.items():
            found[name].about = about[name]
            found[name].peak = child.ask(Holder.peak)
    return found


def turns(
    alive: Mapping[str, Child],
    *,
    rounds: int,
    warmup: int = 1,
    within: float = math.inf,
    at_most: float = math.inf,
) -> dict[str, Measured]:
    """What each of these took in its turns. No round begins after `within` seconds, once there are enough for an
    interval; none but the first after `at_most`."""
    found = {name: Measured(name) for name in alive}
    for name, child in alive.items():
        found[name].warm_up_wall = sum(times["wall"] for times in child.run(warmup))
    order, began = list(alive), time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - began > (within if number >= ENOUGH else at_most):
            break
        for name in order if number % 2 == 0 else reversed(order):
            (times,) = alive[name].run(1)
            for clock, value in times.items():
                getattr(found[name], clock).append(value)
    return found


def in_child(call: Callable[[], Found], threads: int) -> Found:
    """What a function finds out in a process of its own."""
    name = getattr(call, "func", call).__name__
    with children({name: None}, threads) as alive:
        return alive[name].ask(Holder.call, call)


@contextlib.contextmanager
def children(
    makes: Mapping[str, Make | None], threads: int, environments: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[dict[str, Child]]:
    multiprocessing.set_forkserver_preload(PRELOAD)
    with _passing_on(_settings(threads)):
        forkserver.ensure_running()
    alive: dict[str, Child] = {}
    try:
        for name, make in makes.items():
            alive[name] = Child(name, make, threads, (environments or {}).get(name, {}))
        yield alive
    finally:
        for child in alive.values():
            child.close()


class Child:
    """A process that holds one variant.

    Forked from a server that has the libraries already (six seconds of importing each, else), unless its environment
    is another: libraries read theirs when they are loaded.
    """

    def __init__(self, name: str, make: Make | None, threads: int, environment: Mapping[str, str]) -> None:
        self.name = name
        self._scratch = tempfile.TemporaryDirectory(prefix="oelm-bench-", ignore_cleanup_errors=True)
        self._output = Path(self._scratch.name, OUTPUT)
        self._output.touch()  # to be read even if the process never gets to it
        self._orders, theirs = multiprocessing.Pipe()
        start: Any = multiprocessing.get_context("spawn" if environment else "forkserver")
        self._process = start.Process(target=_serve, args=(theirs, self._scratch.name, threads))
        with _passing_on({**_settings(threads), **environment}):
            self._process.start()
        theirs.close()
        if make is not None:
            self._send(Holder.make, make)

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def ready(self) -> dict[str, float]:
        """Waits until the variant is made; its `about`."""
        about: dict[str, float] = self._answer()
        return about

    def run(self, count: int) -> list[dict[str, float]]:
        """Seconds of so many steps, by each clock."""
        return self.ask(Holder.run, count)

    def ask(self, order: Callable[Concatenate[Holder, P], Found], *arguments: P.args, **_: P.kwargs) -> Found:
        """What a method of the Holder there answers."""
        self._send(order, *arguments)
        found: Found = self._answer()
        return found

    def _send(self, *order: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._orders.send(order)

    def _answer(self) -> Any:
        try:
            answer, error = self._orders.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            how = _how_it_ended(self._process.exitcode or 0)
            last = self._output.read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(" ".join([f"bench {self.name}: its process {how}.", *last])) from None
        if error:
            raise LabError(f"bench {self.name}: {error}")
        return answer

    def close(self) -> None:
        """Its pipe ends, so it leaves; one that hangs is killed. Its temporary files go."""
        self._orders.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._scratch.cleanup()


def _settings(threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": SPIN,  # as the worker has it; longer, and CPU time would count threads that only wait
        "TOKENIZERS_PARALLELISM": "true",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for a GPU must not open it: what is forked later could not
    }


@contextlib.contextmanager
def _passing_on(environment: Mapping[str, str]) -> Iterator[None]:
    """Processes started meanwhile have these variables, and leave Ctrl+C to this one."""
    before = dict(os.environ)
    os.environ.update(environment)
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupted)
        os.environ.clear()
        os.environ.update(before)


def _how_it_ended(code: int) -> str:
    """
    >>> _how_it_ended(-9), _how_it_ended(-15), _how_it_ended(1)
    ('was killed (too little memory?)', 'was ended from outside by SIGTERM', 'ended with code 1')
    """
    if code == -signal.SIGKILL:
        return "was killed (too little memory?)"
    return f"was ended from outside by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


# -- in the child ----------------------------------------------------------------------------------------------------


def _serve(orders: Connection, scratch: str, threads: int) -> None:
    """Answers (what, error) until the other end hangs up. Temporary files and what is printed go into `scratch`."""
    if not os.path.isdir(scratch):
        return  # whoever asked for this process left before it began
    tempfile.tempdir = scratch
    with open(os.path.join(scratch, OUTPUT), "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(threads)
    holder = Holder()
    while True:
        try:
            order, *arguments = orders.recv()
        except EOFError:
            break
        try:
            orders.send((order(holder, *arguments), ""))
        except Exception as raised:
            orders.send((None, f"{type(raised).__name__}: {raised}"))


class Holder:
    """A child's variant, and what can be asked about it."""

    variant: Variant
    held = 0
    """Bytes before the variant was made."""

    def make(self, make: Make) -> dict[str, float]:
        self.held = _memory("RssAnon")  # receiving its function has imported what it needs
        self.variant = make()
        return self.variant.about

    def call(self, function: Callable[[], Found]) -> Found:
        return function()

    def run(self, count: int) -> list[dict[str, float]]:
        return [_timed(self.variant) for _ in range(count)]

    def peak(self) -> dict[str, int]:
        """Bytes: the process's highest, the same above what it held before, and the GPU's highest.

        Pages of library files that running the variant touched are not its own, and do not count.
        """
        highest = _memory("VmHWM")
        found = {"host": highest, "above": highest - _memory("RssFile") - self.held}
        if torch.cuda.is_available():
            found["device"] = torch.cuda.max_memory_allocated()
        return found


def _timed(variant: Variant) -> dict[str, float]:
    """Seconds of a step: CPU time of all threads, wall clock, and device events where there is a GPU."""
    cuda = torch.cuda.is_available()
    if cuda:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        marks[0].record()
    cpu, wall = time.process_time(), time.perf_counter()
    variant()
    if cuda:
        marks[1].record()
        torch.cuda.synchronize()
    times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    if cuda:
        times["device"] = marks[0].elapsed_time(marks[1]) / 1000
    steps = getattr(variant, "steps", 1)
    return {clock: value / steps for clock, value in times.items()}


def _memory(key: str) -> int:
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith(f"{key}:")), 0)
