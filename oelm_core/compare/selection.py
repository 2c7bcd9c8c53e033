"""Selection, seen: how much was tried for each arm of a table, and which of its runs are not shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, Looks, Search, sort_findings
from oelm_core.compare.planned import hold_against_plan, plan_behind
from oelm_core.config.seeds import seed_ranges
from oelm_core.formatting import listed, metric_value
from oelm_core.recipe import recorded_method
from oelm_core.runs.ledger import Ledger, read_ledger
from oelm_core.runs.tried import Tried, everything_tried, related, search_effort

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.runs.store import Run

SEVERAL = 3
"""So many times more configurations than the baseline's make an arm's best a luckier best."""


def with_selection(comparison: Comparison, runs: Sequence[Run], study: Study | None = None) -> Comparison:
    """The comparison with what was tried for its arms, and what of a study's plan is not there.

    `runs`: every run of the lab, also those that the table does not show.
    """
    root = Path(runs[0].path).parent if runs else None
    ledger = read_ledger(root)
    places = {(group.family, group.dataset) for group in comparison.groups}
    presets = {arm.preset.lower() for group in comparison.groups for arm in group.arms}
    near = [run for run in runs if (run.family, run.dataset) in places or run.preset.lower() in presets]
    tried = everything_tried(near, ledger.events)
    plan = plan_behind(study, ledger) if study else None
    groups = []
    for group in comparison.groups:
        found = list(_search_findings(group, tried, ledger, study))
        registered = None
        if plan is not None:
            registered, deviations = hold_against_plan(group, plan, tried)
            found += deviations
        groups.append(
            dataclasses.replace(
                group,
                search={arm.id: _search(arm, tried) for arm in group.arms},
                registered=registered,
                test_looks=_test_looks(group, ledger) if group.basis == "test" else None,
                audit=tuple(sort_findings([*group.audit, *found])),
            )
        )
    return dataclasses.replace(comparison, groups=tuple(groups))


def _test_looks(group: Group, ledger: Ledger) -> Looks:
    """Looks of any run at the texts that the runs shown were tested on."""
    shown = {run for arm in group.arms for run in arm.runs}
    every = list(ledger.of("looked-at-test"))
    texts = {event.data for event in every if event.run in shown}
    looks = [event.run for event in every if event.data in texts]
    return Looks(len(looks), len(set(looks)), len(shown & set(looks)))


def _search(arm: Arm, tried: Sequence[Tried]) -> Search:
    return Search(**msgspec.to_builtins(search_effort(tried, arm.preset, recorded_method(arm.config))))


def _search_findings(group: Group, tried: Sequence[Tried], ledger: Ledger, study: Study | None) -> Iterator[Finding]:
    if not group.pairs:
        return
    if ledger.breaks:
        why = f"the ledger is broken ({ledger.breaks[0]}): more may have been tried than is counted."
        yield Finding("confounds", "search", tuple(arm.id for arm in group.arms), why)
    paired = {name for pair in group.pairs for name in (pair.arm, pair.baseline)}
    hidden = {arm.id: list(_not_shown(group, arm, tried)) for arm in group.arms if arm.id in paired}
    for found in hidden.values():
        yield from found
    for pair in group.pairs:
        arm, base = group.arm(pair.arm), group.arm(pair.baseline)
        ours, theirs = _search(arm, tried), _search(base, tried)
        yield from _unequal(arm, base, ours, theirs, study)
        if not hidden[arm.id] and ours.deleted >= SEVERAL * max(1, theirs.deleted):
            why = f"{_runs(ours.deleted)} of {arm.id} were deleted and {theirs.deleted or 'none'} of {base.id}: "
            yield Finding("confounds", "search", (base.id, arm.id), f"{why}what is left may be what looked best.")


def _unequal(arm: Arm, base: Arm, ours: Search, theirs: Search, study: Study | None) -> Iterator[Finding]:
    """The best of many configurations is a luckier best than that of a few."""
    a, b = ours.configurations, theirs.configurations
    if a == b or not b:
        return
    several = a >= SEVERAL * b
    lucky = f"the best of {a} is a luckier best than {'one that was run once' if b == 1 else f'that of {b}'}"
    doubt = lucky if a > b else "the baseline was searched harder"
    why = f"{_configurations(a)} were tried for {arm.id}, {b} for {base.id}: {doubt}."
    settle = f"oelm tune {study.id} --budget {max(a, b)}" if study and several else None
    yield Finding("confounds" if several else "note", "search", (base.id, arm.id), why, settle)


def _not_shown(group: Group, arm: Arm, tried: Sequence[Tried]) -> Iterator[Finding]:
    """Runs of the very configuration of an arm that told something and are not in the table."""
    same = [
        one
        for one in related(tried, arm.preset)
        if one.config_hash == arm.config_hash and one.id not in arm.runs and one.told_something and not one.is_draw
    ]
    gone = [one for one in same if one.deleted]
    other_seeds = [one for one in gone if one.seed not in arm.seeds]
    if other_seeds:
        why = f"{_runs(len(other_seeds))} of {arm.id} with the configuration shown here {_were(other_seeds)} deleted "
        why += f"({_seeds(other_seeds)}{_scores(other_seeds, group.metric)}): the seeds that are left were chosen."
        again = " ".join(["oelm run", arm.preset, *(f"--seed {seed}" for seed in _numbers(other_seeds))])
        yield Finding("breaks", "search", (arm.id,), why, again if arm.id == arm.preset else None)
    repeated = [one for one in gone if one.seed in arm.seeds]
    if repeated:
        why = f"{_runs(len(repeated))} of {arm.id} {_were(repeated)} deleted and run again ({_seeds(repeated)}"
        yield Finding(
            *("confounds", "search", (arm.id,)),
            f"{why}{_scores(repeated, group.metric)}): a seed that is run until it looks good proves nothing.",
        )
    left_out = [one for one in same if not one.deleted and one.state == "finished" and one.seed not in arm.seeds]
    if left_out:
        are = "is" if len(left_out) == 1 else "are"
        why = f"{_runs(len(left_out))} of {arm.id} with the configuration shown here {are} not among those compared "
        why += f"({_seeds(left_out)}{_scores(left_out, group.metric)}): the seeds were chosen."
        yield Finding("confounds", "search", (arm.id,), why, f"oelm compare {' '.join(one.id for one in left_out)} ...")


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _were(tried: Sequence[Tried]) -> str:
    return "was" if len(tried) == 1 else "were"


def _configurations(count: int) -> str:
    return f"{count} configuration{'s' * (count != 1)}"


def _numbers(tried: Sequence[Tried]) -> list[int]:
    return sorted({one.seed for one in tried if one.seed is not None})


def _seeds(tried: Sequence[Tried]) -> str:
    numbers = _numbers(tried)
    return f"seed{'s' * (len(numbers) != 1)} {listed(seed_ranges(numbers))}" if numbers else "seeds unknown"


def _scores(tried: Sequence[Tried], metric: str) -> str:
    """How good they were, as far as it is known: ", 81.20 % to 84.00 %, 1 diverged"."""
    values = sorted({one.value for one in tried if one.value is not None})
    words = [metric_value(metric, value, unit=True) for value in dict.fromkeys([*values[:1], *values[-1:]])]
    diverged = sum(one.diverged for one in tried)
    return (f", {' to '.join(words)}" if words else "") + (f", {diverged} diverged" if diverged else "")
