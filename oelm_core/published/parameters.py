"""Checks of published parameter counts and checkpoint sizes against a count on the meta device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Finding
from oelm_core.formatting import percent
from oelm_core.published.figures import Figure, of

if TYPE_CHECKING:
    from oelm_core.config import Experiment

Census = Callable[["Experiment"], Mapping[str, Any]]
MIB = 2**20
ADAM = 8
"""Bytes of AdamW's two moments per trained parameter; weights are 4."""


def parameters(
    experiment: Experiment, figures: Sequence[Figure], counted: Mapping[str, Any], others: Mapping[str, float]
) -> list[Finding]:
    """`counted`: {total, trainable, frozen}; `others`: frozen shares of the other models, to name a copied one."""
    found = []
    evidence = _checkpoint_evidence(figures, counted)
    for name in ("total", "trainable", "frozen"):
        for claim in of(figures, name):
            if not claim.low <= counted[name] <= claim.high:
                given = f"{claim.value / 1e6:,.4g}M"
                why = f"{name} parameters given as {given}; counted, they are {counted[name]:,}.{evidence}"
                found.append(Finding("breaks", "parameters", (experiment.id,), why, None, claim.source))
    share = counted["frozen"] / counted["total"]
    for claim in of(figures, "frozen_share", "saved_share"):
        if not claim.low <= share <= claim.high:
            copied = [model for model, other in others.items() if claim.low <= other <= claim.high]
            whose = f" {percent(claim.value, 1)} is the share of {copied[0]}." if copied else ""
            said = "estimated" if claim.projected else "said"
            given, true = percent(claim.value, 1), percent(share, 1)
            why = f"{given} of the parameters are {said} to be saved; counted, it is {true}.{whose}"
            found.append(
                Finding(
                    "note" if claim.projected else "breaks", "parameters", (experiment.id,), why, None, claim.source
                )
            )
    for claim in of(figures, "checkpoint_mib"):
        expected = checkpoint_mib(counted)
        if abs(expected / claim.value - 1) > 0.05:
            why = f"a checkpoint of {claim.value:g} MiB is listed; weights and AdamW's moments take {expected:.0f} MiB."
            found.append(Finding("note", "checkpoint", (experiment.id,), why, None, claim.source))
    return found


def checkpoint_mib(counted: Mapping[str, Any]) -> float:
    return float(4 * counted["total"] + ADAM * counted["trainable"]) / MIB


def _checkpoint_evidence(figures: Sequence[Figure], counted: Mapping[str, Any]) -> str:
    """Whether the author's own checkpoint size bears out the count."""
    for claim in of(figures, "checkpoint_mib"):
        if abs(checkpoint_mib(counted) / claim.value - 1) < 0.01:
            return f" The author's own checkpoint of {claim.value:g} MiB agrees with the count."
    return ""
