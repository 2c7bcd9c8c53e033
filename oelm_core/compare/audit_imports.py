"""The audit of imported runs: which of an arm's figures were chosen, from a sweep or from among validations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import Finding
from oelm_core.compare.settings import settings_of, shown
from oelm_core.formatting import listed
from oelm_core.metric import metric_named
from oelm_core.runs.schema import setting


def audit_imports(
    arms: Sequence[ArmEvidence], pairs: Sequence[tuple[ArmEvidence, ArmEvidence]], metric: str
) -> Iterator[Finding]:
    """`pairs`: arms with the baseline each is set against; a table without a baseline has none."""
    baselines = {arm.name: base for arm, base in pairs}
    for members in _sweeps(arms):
        yield _sweep(members, baselines, metric)
    for arm, base in pairs:
        kinds = [_which_score(side) for side in (base, arm)]
        if None not in kinds and kinds[0] != kinds[1]:
            why = (
                f"the figure of {base.name} is its {kinds[0]} validation's, that of {arm.name} its {kinds[1]}: "
                "a best is a luckier figure than a last."
            )
            yield Finding("confounds", "best-against-final", (base.name, arm.name), why)


def _which_score(arm: ArmEvidence) -> str | None:
    """best or last; None where its runs differ, or have no figure."""
    kinds = {"best" if run.result.best else "last" for run in arm.scored if run.result.best or run.result.final}
    return kinds.pop() if len(kinds) == 1 else None


# -- sweeps ------------------------------------------------------------------------------------------------------------


def _sweeps(arms: Sequence[ArmEvidence]) -> list[list[ArmEvidence]]:
    """Imported arms that are alike in all but the learning rate; one alone where its siblings are not in the table."""
    alike: dict[str, list[ArmEvidence]] = {}
    for arm in arms:
        if any(run.run.imported for run in arm.scored) and setting(arm.config, "train.lr") is not None:
            alike.setdefault(_but_for_the_rate(arm), []).append(arm)
    return [members for members in alike.values() if len(_rates(members)) > 1]


def _but_for_the_rate(arm: ArmEvidence) -> str:
    known: Mapping[str, object] = {**settings_of(arm.config), "lr": None}
    return json.dumps([setting(arm.config, "method.name"), known], sort_keys=True, default=str)


def _rates(arms: Sequence[ArmEvidence]) -> list[float]:
    """Those in the table, and those of the runs that were imported together with them."""
    found = {float(setting(arm.config, "train.lr")) for arm in arms}
    for run in (run for arm in arms for run in arm.runs if run.record.imported):
        found |= set(run.record.imported.rates)  # type: ignore[union-attr]
    return sorted(found)


def _sweep(members: Sequence[ArmEvidence], baselines: Mapping[str, ArmEvidence], metric: str) -> Finding:
    rates = _rates(members)
    tried = f"{len(rates)} learning rates ({', '.join(shown('lr', rate) for rate in rates)})"
    names = tuple(arm.name for arm in members)
    means = {arm.name: sum(run.score for run in arm.scored) / len(arm.scored) for arm in members}
    best = (max if metric_named(metric).higher_is_better else min)(names, key=means.__getitem__)
    why = f"{listed(names)} {'are' if len(names) > 1 else 'is one'} of a sweep over {tried}: {best} is the best of them"
    base = baselines.get(best)
    once = base is not None and len(_rates([base]) if setting(base.config, "train.lr") is not None else [0.0]) == 1
    if len(names) == 1:
        why = f"{best} is one of a sweep over {tried}: whether it is the best of them the table cannot show"
    if base is not None and once:
        return Finding("confounds", "sweep", names, f"{why}, and {base.name} was run at one rate.")
    return Finding("note", "sweep", names, f"{why}, so a little lucky.")
