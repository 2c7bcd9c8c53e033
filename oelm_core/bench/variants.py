"""Variants that take turns: each in its own process, one running at a time, the order turned round every round."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from oelm_core.bench.child import LIBRARIES, SAID, serve
from oelm_core.bench.statistics import ENOUGH, Ratio, paired_ratio
from oelm_core.errors import LabError
from oelm_core.training.waiting import SPIN


@dataclass(frozen=True)
class Recipe:
    """How a child makes a variant: a function by name, and its arguments."""

    make: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Measured:
    """What a variant took in each round, and the most memory it held."""

    name: str
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    first_wall: float = 0.0
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
        return {
            "median": self.median,
            "median_wall": self.median_wall,
            "cpu": self.cpu,
            "wall": self.wall,
            "device": self.device,
            "about": self.about,
            "peak": self.peak,
            "warm_up_wall": self.first_wall,
        }


class Child:
    """A process that holds one variant.

    Forked from a server that has the libraries already (six seconds of importing each, else), unless its environment
    is another: libraries read theirs when they are loaded.
    """

    def __init__(self, name: str, recipe: Recipe, threads: int) -> None:
        self.name = name
        self._scratch = tempfile.TemporaryDirectory(prefix="oelm-bench-", ignore_cleanup_errors=True)
        self._said = Path(self._scratch.name, SAID)
        self._said.touch()  # to be read even if the process never gets to it
        self._orders, theirs = multiprocessing.Pipe()
        start: Any = multiprocessing.get_context("spawn" if recipe.environment else "forkserver")
        self._process = start.Process(target=serve, args=(theirs, self._scratch.name, threads))
        if recipe.environment:
            with _passing_on({**_settings(threads), **recipe.environment}):
                self._process.start()
        else:
            self._process.start()
        theirs.close()
        self._tell({"make": recipe.make, "with": dict(recipe.arguments)})

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def ready(self) -> dict[str, Any]:
        """Waits until the variant is made; what it says about itself."""
        about: dict[str, Any] = self._answer()["about"]
        return about

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self._tell(command)
        return self._answer()

    def _tell(self, command: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._orders.send(command)

    def _answer(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._orders.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            ending = _ending(self._process.exitcode or 0)
            raise LabError(f"bench {self.name}: its process {ending}. {self._last_words()}".strip()) from None
        if "error" in answer:
            raise LabError(f"bench {self.name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        lines = self._said.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

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


def _ending(code: int) -> str:
    """
    >>> _ending(-9), _ending(-15), _ending(1)
    ('was killed (too little memory?)', 'was ended from outside by SIGTERM', 'ended with code 1')
    """
    if code == -signal.SIGKILL:
        return "was killed (too little memory?)"
    return f"was ended from outside by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


@contextlib.contextmanager
def children(recipes: Mapping[str, Recipe], threads: int) -> Iterator[dict[str, Child]]:
    multiprocessing.set_forkserver_preload(list(LIBRARIES))
    with _passing_on(_settings(threads)):
        forkserver.ensure_running()
    alive: dict[str, Child] = {}
    try:
        for name, recipe in recipes.items():
            alive[name] = Child(name, recipe, threads)
        yield alive
    finally:
        for child in alive.values():
            child.close()


def look_at(recipe: Recipe, threads: int) -> dict[str, Any]:
    """What a function finds out in a process of its own."""
    with children({recipe.make: recipe}, threads) as alive:
        return alive[recipe.make].ready()


def take_turns(
    recipes: Mapping[str, Recipe], *, rounds: int, threads: int, warmup: int = 1, within: float = math.inf
) -> dict[str, Measured]:
    """Every variant once per round, forwards and backwards in turn; warm-up dropped."""
    with children(recipes, threads) as alive:
        about = {name: child.ready() for name, child in alive.items()}
        found = turns(alive, rounds=rounds, warmup=warmup, within=within)
        for name, child in alive.items():
            found[name].about = about[name]
            found[name].peak = child.ask({"peak": True})
    return found


def turns(alive: Mapping[str, Child], *, rounds: int, warmup: int = 1, within: float = math.inf) -> dict[str, Measured]:
    """What each of these took in its turns. No round begins after `within` seconds, once there are enough."""
    found = {name: Measured(name) for name in alive}
    for name, child in alive.items():
        found[name].first_wall = sum(t["wall"] for t in child.ask({"run": warmup})["times"])
    order, began = list(alive), time.monotonic()
    for number in range(rounds):
        if number >= ENOUGH and time.monotonic() - began > within:
            break
        for name in order if number % 2 == 0 else reversed(order):
            (taken,) = alive[name].ask({"run": 1})["times"]
            for clock, value in taken.items():
                getattr(found[name], clock).append(value)
    return found


def ratio(found: Mapping[str, Measured], other: str, ours: str) -> Ratio:
    """How many times as fast `ours` is as `other`."""
    return paired_ratio(found[other].seconds, found[ours].seconds)
