"""Published figures with the range their rounding allows, so that only real contradictions count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Finding, Grade

if TYPE_CHECKING:
    from oelm_core.config import Claim, Experiment

TIMES = ("seconds", "training_seconds", "clock_start", "clock_end", "seconds_to_80", "seconds_to_90")


@dataclass(frozen=True)
class Figure:
    """One published number and the values it may have been rounded from."""

    what: str
    value: float
    low: float
    high: float
    source: str = ""
    arms: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    """Those it was obtained with, where they differ from the recipe."""
    projected: bool = False
    """Not measured: the author's forecast or estimate."""

    def agrees(self, other: Figure, slack: float = 0.0) -> bool:
        """Whether some pair of unrounded values could be equal; `slack` is relative."""
        room = slack * max(abs(self.value), abs(other.value))
        return self.low - room <= other.high and other.low - room <= self.high


def half_unit(value: float) -> float:
    """Half of the last digit that was written.

    >>> half_unit(0.9128), half_unit(82.0e6), half_unit(109484547)
    (5e-05, 500000.0, 0.5)
    """
    exponent = Decimal(repr(float(value))).normalize().as_tuple().exponent
    return 0.5 * 10.0 ** int(exponent) if value else 0.0


def figure(what: str, value: float, source: str = "", **more: Any) -> Figure:
    room = half_unit(value)
    if what in TIMES:  # times were written to the minute, or to the second
        room = 60.0 if value % 60 == 0 else 1.0
    return Figure(what, value, value - room, value + room, source, **more)


def derived(what: str, compute: Callable[..., float], *inputs: Figure, source: str = "") -> Figure:
    """A figure computed from others; its range is that of all combinations of the inputs' ends."""
    ends: list[list[float]] = [[]]
    for given in inputs:
        ends = [[*chosen, end] for chosen in ends for end in (given.low, given.high)]
    values = [compute(*chosen) for chosen in ends]
    return Figure(what, compute(*(given.value for given in inputs)), min(values), max(values), source)


def mean_figure(what: str, figures: Sequence[Figure]) -> Figure:
    each = ([one.value, one.low, one.high] for one in figures)
    return Figure(what, *(sum(ends) / len(figures) for ends in zip(*each, strict=True)))


def figures_of(experiment: Experiment, study_claims: Sequence[Figure] = ()) -> list[Figure]:
    """Everything published about an experiment, each (what, value, source) once."""
    published = experiment.published
    if published is None:
        return []
    found = [
        figure(name, value, published.source)
        for name in ("accuracy", "f1", "loss", "perplexity", "seconds", "step_time")
        if (value := getattr(published, name)) is not None
    ]
    found += [claim_figure(claim) for claim in published.claims]
    mine = experiment.id.lower()
    found += [claim for claim in study_claims if len(claim.arms) == 1 and claim.arms[0].lower() == mine]
    unique: dict[tuple[str, float], Figure] = {}
    for one in found:
        key = (one.what, one.value)
        if key not in unique or (one.settings and not unique[key].settings):
            unique[key] = one
    runs = [claim_figure(claim) for claim in published.claims if claim.what == "step_time_run"]
    return [one for one in unique.values() if one.what != "step_time_run"] + runs


def claim_figure(claim: Claim) -> Figure:
    more = {"arms": tuple(claim.arms), "settings": dict(claim.settings), "projected": claim.projected}
    return figure(claim.what, claim.value, claim.source, **more)


def named(figures: Sequence[Figure], *names: str) -> list[Figure]:
    return [one for one in figures if one.what in names]


def cited(grade: Grade, code: str, arms: tuple[str, ...], why: str, *figures: Figure, **more: Any) -> Finding:
    """A finding that names the sources of the figures it is about; `more` are other fields of it."""
    return Finding(grade, code, arms, why, source=sources(*figures), **more)


def sources(*figures: Figure) -> str:
    return ", ".join(dict.fromkeys(part for one in figures for part in one.source.split(", ") if part))
