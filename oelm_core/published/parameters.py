"""Checks of published parameter counts and checkpoint sizes against ours: by arithmetic, or counted once and kept."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.compare.comparison import Finding, Grade
from oelm_core.formatting import percent
from oelm_core.home import home
from oelm_core.method import parameter_count
from oelm_core.method.facts import Count
from oelm_core.published.figures import Figure, cited, named
from oelm_core.runs.folder import read_record, write_record

if TYPE_CHECKING:
    from oelm_core.config import Experiment

ABOUT = ("total", "trainable", "frozen", "frozen_share", "saved_share", "checkpoint_mib")
"""Claims that are checked here."""
MIB = 2**20
ADAM = 8
"""Bytes of AdamW's two moments per trained parameter; weights are 4."""


def count_parameters(experiment: Experiment, keep: bool = True) -> Count:
    """Parameters of an experiment; a network of unknown shape is built for it, which loads torch, and the count kept.

    Arms that differ only in data or rates are counted once; the answer only changes with the code. `keep=False` writes
    nothing.
    """
    known = known_count(experiment)
    if known is not None:
        return known
    from oelm_core.method.census import census_of  # late: this room must not load torch

    found = census_of(experiment)
    counted = Count(found.total or 0, found.trainable or 0, found.frozen or 0)
    try:
        if keep:
            path = _kept_in(experiment)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_record(path, counted)
    except OSError:
        pass  # a home that cannot be written only costs the time to count again
    return counted


def known_count(experiment: Experiment) -> Count | None:
    """By arithmetic, else as counted before, without loading anything."""
    total, frozen = parameter_count.parameters(experiment)
    if total is not None and frozen is not None:
        return Count(total, total - frozen, frozen)
    kept = read_record(_kept_in(experiment), Count, follow=True)
    return kept if kept is not None and kept.total else None


def _kept_in(experiment: Experiment) -> Path:
    alike = (experiment.model, experiment.data.classes, experiment.method.model_copy(update={"name": ""}))
    name = hashlib.sha256(f"{_code()} {alike!r}".encode()).hexdigest()[:16]
    return home() / "cache" / "census" / f"{name}.json"


@functools.cache
def _code() -> str:
    """Names the code that decides a count."""
    core = Path(__file__).parent.parent
    files = [core / "method" / "census.py", core / "method" / "freezing.py", *sorted((core / "models").glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def parameters(
    experiment: Experiment, figures: Sequence[Figure], counted: Count, others: Mapping[str, float]
) -> Iterator[Finding]:
    """`others`: frozen shares of the other models, to name a copied one."""
    evidence = _checkpoint_evidence(figures, counted)
    for name, count in (("total", counted.total), ("trainable", counted.trainable), ("frozen", counted.frozen)):
        for claim in named(figures, name):
            if not claim.low <= count <= claim.high:
                given = f"{claim.value / 1e6:,.4g}M"
                why = f"{name} parameters given as {given}; counted, they are {count:,}.{evidence}"
                yield cited("breaks", "parameters", (experiment.id,), why, claim)
    share = counted.frozen / counted.total
    for claim in named(figures, "frozen_share", "saved_share"):
        if not claim.low <= share <= claim.high:
            copied = [model for model, other in others.items() if claim.low <= other <= claim.high]
            given, true = percent(claim.value, 1), percent(share, 1)
            whose = f" {given} is the share of {copied[0]}." if copied else ""
            by = "estimated" if claim.projected else "said"
            why = f"{given} of the parameters are {by} to be saved; counted, it is {true}.{whose}"
            grade: Grade = "note" if claim.projected else "breaks"
            yield cited(grade, "parameters", (experiment.id,), why, claim)
    for claim in named(figures, "checkpoint_mib"):
        expected = checkpoint_mib(counted)
        if abs(expected / claim.value - 1) > 0.05:
            why = f"a checkpoint of {claim.value:g} MiB is listed; weights and AdamW's moments take {expected:.0f} MiB."
            yield cited("note", "checkpoint", (experiment.id,), why, claim)


def checkpoint_mib(counted: Count) -> float:
    return (4 * counted.total + ADAM * counted.trainable) / MIB


def _checkpoint_evidence(figures: Sequence[Figure], counted: Count) -> str:
    """Whether the author's own checkpoint size bears out the count."""
    for claim in named(figures, "checkpoint_mib"):
        if abs(checkpoint_mib(counted) / claim.value - 1) < 0.01:
            return f" The author's own checkpoint of {claim.value:g} MiB agrees with the count."
    return ""
