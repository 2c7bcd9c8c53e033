"""What the bench hands over: claims with a target and a verdict, tables, remarks; plain data for JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One line of the issue: what was to be reached, what was found, and why when it was not."""

    what: str
    target: str
    found: str
    met: bool | None
    """None when this machine, or a quick run, cannot tell."""
    why: str = ""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "short", None: "not judged"}[self.met]


@dataclass(frozen=True)
class Table:
    """Rows as printed. `note` says how to read them."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Section:
    """One subject of the bench."""

    name: str
    title: str
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def keep(self, what: str, measured: Mapping[str, Any]) -> None:
        """The figures behind a table, variant by variant, for who reads the JSON."""
        self.raw[what] = {name: one.as_dict() for name, one in measured.items()}

    def as_dict(self) -> dict[str, Any]:
        claims = [{**asdict(claim), "verdict": claim.verdict} for claim in self.claims]
        return {**asdict(self), "claims": claims}


@dataclass(frozen=True)
class Effort:
    """How much to measure. quick: tiny networks, to see that the command works; its figures mean nothing."""

    quick: bool
    threads: int

    def rounds(self, full: int) -> int:
        return 2 if self.quick else full


def seconds(value: float) -> str:
    """
    >>> seconds(0.01234), seconds(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"
