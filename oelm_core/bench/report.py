"""What a bench reports: subjects measured one after another, their tables, and the machine they hold for."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oelm_core.errors import BadInput, did_you_mean
from oelm_core.provenance import package_versions, processor_name

if TYPE_CHECKING:
    from oelm_core.bench.turns import Measured

SUBJECTS = ("gpt", "bert", "loop")
"""What `oelm bench` measures, in this order."""


@dataclass(frozen=True)
class Effort:
    """How much to measure. quick: tiny networks, to see that the command works; its figures mean nothing."""

    quick: bool
    threads: int

    def rounds(self, full: int) -> int:
        return 2 if self.quick else full


@dataclass(frozen=True)
class BenchTable:
    """Rows as printed. `note` says how to read them."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class BenchSection:
    """One subject: what is printed of it, and the figures behind."""

    name: str
    title: str
    tables: list[BenchTable] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def keep(self, what: str, measured: Mapping[str, Measured]) -> None:
        """The figures behind a table, variant by variant, for who reads the JSON."""
        self.raw[what] = {name: one.as_dict() for name, one in measured.items()}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


S = TypeVar("S", bound=BenchSection)


@dataclass(frozen=True)
class BenchMachine:
    """What has to be known to read the figures."""

    cpu: str
    cores: int
    threads: int
    memory: int
    gpu: str | None
    system: str
    python: str
    versions: dict[str, str]
    load: float


@dataclass
class BenchReport(Generic[S]):
    """All that a command measured."""

    command: str
    quick: bool
    created: float
    seconds: float
    machine: BenchMachine
    sections: list[S]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        sections = [section.as_dict() for section in self.sections]
        return {"schema": 1, **vars(self), "machine": asdict(self.machine), "sections": sections}


def choose(names: Sequence[str], subjects: Collection[str]) -> list[str]:
    """Subjects in their order; none or `all` means all of them."""
    asked = [name.lower() for name in names] or ["all"]
    for name in asked:
        if name not in subjects and name != "all":
            known = ", ".join([*subjects, "all"])
            raise BadInput(f"no bench '{name}'.{did_you_mean(name, subjects) or f' There are: {known}.'}")
    return [name for name in subjects if name in asked or "all" in asked]


def measure(
    subjects: Mapping[str, Callable[[Effort], S]],
    effort: Effort,
    command: str,
    show: Callable[[str], None] = lambda _: None,
) -> BenchReport[S]:
    """Every subject in turn. `show` is told what is being measured, and how long it took."""
    machine = describe_machine(effort.threads)
    created, began = time.time(), time.monotonic()
    sections = []
    for name, subject in subjects.items():
        show(f"measuring {name}")
        start = time.monotonic()
        section = subject(effort)
        section.seconds = time.monotonic() - start
        show(f"{name} took {section.seconds:.0f} s")
        sections.append(section)
    return BenchReport(command, effort.quick, created, time.monotonic() - began, machine, sections)


def measure_here(
    names: Sequence[str], effort: Effort, command: str = "oelm bench", show: Callable[[str], None] = lambda _: None
) -> BenchReport[BenchSection]:
    """What `oelm bench NAMES` finds on this machine."""
    chosen = choose(names, SUBJECTS)
    from oelm_core.bench import subjects  # it loads torch: not before a mistyped name is refused

    by_name = {"gpt": subjects.measure_gpt, "bert": subjects.measure_bert, "loop": subjects.measure_loop}
    return measure({name: by_name[name] for name in chosen}, effort, command, show)


def describe_machine(threads: int) -> BenchMachine:
    from oelm_core.devices.machine import snapshot

    here, versions = snapshot(), package_versions()
    return BenchMachine(
        cpu=processor_name(),
        cores=here.cpu.cores,
        threads=threads,
        memory=here.memory.total,
        gpu=here.gpus[0].name if here.gpus else None,
        system=platform.platform(),
        python=versions["python"],
        versions={name: versions[name] for name in ("torch", "transformers", "tokenizers", "datasets")},
        load=here.cpu.load[0],
    )
