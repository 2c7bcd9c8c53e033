"""Everything that was ever tried in a lab: the runs that are there and those that only the ledger remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from oelm_core.recipe import recorded_method
from oelm_core.runs.ledger import LedgerEvent
from oelm_core.runs.status import FINAL
from oelm_core.runs.store import Run

BY_HAND = frozenset({"user", "signal", None})
"""Reasons of a stop that were somebody's will, as far as is known; the others are the machine's."""


def is_stopped_by_hand(state: str, reason: str | None) -> bool:
    return state == "stopped" and reason in BY_HAND


class Tried(Struct, frozen=True, kw_only=True):
    """One run, whether or not its folder is still there."""

    id: str
    preset: str = ""
    study: str | None = None
    config_hash: str = ""
    method: str | None = None
    """`oelm_core.recipe.method_hash`, where it is known."""
    seed: int | None = None
    created: float = 0.0
    state: str = "unknown"
    reason: str | None = None
    value: float | None = None
    """Of its headline metric, the best so far."""
    is_draw: bool = False
    imported: bool = False
    deleted: bool = False
    """By `oelm delete`, or by hand: it was launched and is gone."""

    @property
    def diverged(self) -> bool:
        return self.state == "failed" and self.reason == "nonfinite"

    @property
    def told_something(self) -> bool:
        """Whether somebody could have seen how good it was: a score, or that it diverged."""
        return self.value is not None or self.diverged

    @property
    def is_over(self) -> bool:
        return self.state in FINAL or self.deleted


class SearchEffort(Struct, frozen=True):
    """How much was tried for an arm."""

    configurations: int = 0
    runs: int = 0
    failed: int = 0
    diverged: int = 0
    """Of the failed, those whose loss was no number any more."""
    deleted: int = 0


def everything_tried(runs: Iterable[Run], events: Iterable[LedgerEvent]) -> list[Tried]:
    """Each run once, by its id. What its folder says counts more than what the ledger remembers."""
    known: dict[str, Tried] = {}
    for event in events:
        if event.run is not None and event.event not in ("registered", "looked-at-test"):
            known[event.run] = _remembered(event, known.get(event.run))
    for run in runs:
        known[run.id] = _seen(run, known.get(run.id))
    return list(known.values())


def search_effort(tried: Sequence[Tried], preset: str, method: str | None = None) -> SearchEffort:
    """What was tried for an arm: runs of its preset, whatever was `--set`, and of others with the very same method."""
    mine = related(tried, preset, method)
    return SearchEffort(
        configurations=len({one.config_hash for one in mine}),
        runs=len(mine),
        failed=sum(one.state == "failed" for one in mine),
        diverged=sum(one.diverged for one in mine),
        deleted=sum(one.deleted for one in mine),
    )


def related(tried: Sequence[Tried], preset: str, method: str | None = None) -> list[Tried]:
    return [
        one for one in tried if one.preset.lower() == preset.lower() or (method is not None and one.method == method)
    ]


def _remembered(event: LedgerEvent, before: Tried | None) -> Tried:
    """A run by its events so far. It counts as deleted until its folder is seen."""
    first = before or Tried(id=event.run or "", created=event.when)
    resumed = event.event == "resumed"
    return replace(
        first,
        preset=event.preset or first.preset,
        study=event.study or first.study,
        config_hash=event.config_hash or first.config_hash,
        method=event.method or first.method,
        seed=first.seed if event.seed is None else event.seed,
        state="unknown" if resumed else event.state or first.state,
        reason=None if resumed else event.reason or first.reason,
        value=first.value if event.value is None else event.value,
        is_draw=event.role == "draw" or first.is_draw,
        imported=event.event == "imported" or first.imported,
        deleted=True,
    )


def _seen(run: Run, told: Tried | None) -> Tried:
    return Tried(
        id=run.id,
        preset=run.preset,
        study=run.study,
        config_hash=run.config_hash,
        method=(told.method if told else None) or recorded_method(run.config),  # a run older than the ledger
        seed=run.seed,
        created=run.created,
        state=run.state,
        reason=run.reason,
        value=run.metric_value,
        is_draw=run.is_draw,
        imported=run.imported,
    )
