"""Variants that take turns: each in its own process, one running at a time, the order turned round every round."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oelm_core.bench.statistics import Ratio, paired_ratio
from oelm_core.errors import LabError
from oelm_core.training.waiting import SPIN


@dataclass(frozen=True)
class Recipe:
    """How a child makes a variant: a function by name, and its arguments."""

    make: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    """Modules it will need, imported before its memory is counted."""
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
    """A process that holds one variant."""

    def __init__(self, name: str, recipe: Recipe, threads: int) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "GOMP_SPINCOUNT": SPIN,  # as the worker has it; more, and CPU time counts threads that only wait
            "TOKENIZERS_PARALLELISM": "true",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oelm_core.bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**environment, **recipe.environment},
        )
        make = {"make": recipe.make, "with": dict(recipe.arguments), "imports": recipe.imports, "threads": threads}
        self._tell(make)

    def ready(self) -> dict[str, Any]:
        """Waits until the variant is made; what it says about itself."""
        about: dict[str, Any] = self._answer()["about"]
        return about

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self._tell(command)
        return self._answer()

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise LabError(
                f"bench {self.name}: its process {_ending(self._process.wait())}. {self._last_words()}".strip()
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LabError(f"bench {self.name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """Its input ends, so it leaves and takes its temporary files along; one that hangs is killed."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._said.close()


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
    alive: dict[str, Child] = {}
    try:
        for name, recipe in recipes.items():
            alive[name] = Child(name, recipe, threads)
        yield alive
    finally:
        for child in alive.values():
            child.close()


def take_turns(
    recipes: Mapping[str, Recipe], *, rounds: int, threads: int, warmup: int = 1, repeat: int = 1
) -> dict[str, Measured]:
    """Every variant once per round (`repeat` steps, their mean), forwards and backwards in turn; warm-up dropped."""
    with children(recipes, threads) as alive:
        found = {name: Measured(name, about=child.ready()) for name, child in alive.items()}
        for name, child in alive.items():
            found[name].first_wall = sum(t["wall"] for t in child.ask({"run": warmup})["times"])
        order = list(alive)
        for number in range(rounds):
            for name in order if number % 2 == 0 else reversed(order):
                _note(found[name], alive[name].ask({"run": repeat})["times"])
        for name, child in alive.items():
            found[name].peak = child.ask({"peak": True})
    return found


def _note(measured: Measured, times: list[dict[str, float]]) -> None:
    clocks = {"cpu": measured.cpu, "wall": measured.wall, "device": measured.device}
    for clock in times[0]:
        clocks[clock].append(statistics.fmean(t[clock] for t in times))


def ratio(found: Mapping[str, Measured], other: str, ours: str) -> Ratio:
    """How many times as fast `ours` is as `other`."""
    return paired_ratio(found[other].seconds, found[ours].seconds)
