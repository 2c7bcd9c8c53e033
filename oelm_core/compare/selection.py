"""Selection, seen: how much was tried for each arm of a table, and which of its runs are not shown."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, Looks, Search, sort_findings
from oelm_core.compare.planned import hold_against_plan, plan_behind
from oelm_core.config.seeds import seed_ranges
from oelm_core.formatting import listed, metric_value
from oelm_core.recipe import recorded_method
from oelm_core.runs.ledger import Ledger, read_ledger
from oelm_core.runs.status import ENDED
from oelm_core.runs.tried import Tried, everything_tried, is_stopped_by_hand, related, search_effort

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
    shown = {run for group in comparison.groups for arm in group.arms for run in arm.runs}
    groups = []
    for group in comparison.groups:
        found = list(_search_findings(group, tried, ledger, study, shown))
        if study is None and group.pairs:
            here = {run.id for run in runs if (run.family, run.dataset) == (group.family, group.dataset)}
            found += _other_configurations(group, [one for one in tried if one.id in here], shown)
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


def _search_findings(
    group: Group, tried: Sequence[Tried], ledger: Ledger, study: Study | None, shown: Set[str]
) -> Iterator[Finding]:
    if not group.pairs:
        return
    if ledger.breaks:
        why = f"the ledger is broken ({ledger.breaks[0]}): more may have been tried than is counted."
        yield Finding("confounds", "search", tuple(arm.id for arm in group.arms), why)
    yield from _unknown_to_ledger(group, tried, ledger)
    paired = {name for pair in group.pairs for name in (pair.arm, pair.baseline)}
    hidden = {arm.id: list(_not_shown(group, arm, tried, shown)) for arm in group.arms if arm.id in paired}
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


def _unknown_to_ledger(group: Group, tried: Sequence[Tried], ledger: Ledger) -> Iterator[Finding]:
    """Runs that were never launched here, as far as the ledger goes; imports never are."""
    imported = {one.id for one in tried if one.imported}
    runs = {run for arm in group.arms for run in arm.runs} - imported
    strange = runs - {event.run for event in ledger.of("launched", "resumed", "ended")}
    if strange and not ledger.breaks:
        which = f"{'any' if strange == runs else len(strange)} of these {_runs(len(runs))}"
        why = f"the ledger does not know {which}: what else was tried is not counted."
        yield Finding("note", "search", tuple(arm.id for arm in group.arms if strange.intersection(arm.runs)), why)


def _other_configurations(group: Group, tried: Sequence[Tried], shown: Set[str]) -> Iterator[Finding]:
    """Where runs were named one by one: what was tried with other settings and is not in the table."""
    paired = {name for pair in group.pairs for name in (pair.arm, pair.baseline)}
    compared = {arm.config_hash for arm in group.arms}
    arms: list[str] = []
    hidden: dict[str, Tried] = {}
    for arm in group.arms:
        found = [
            one
            for one in related(tried, arm.preset, recorded_method(arm.config))
            if one.state == "finished" and one.config_hash not in compared and one.id not in shown
            if not one.is_draw and not one.imported
        ]
        if found and arm.id in paired:
            arms.append(arm.id)
            hidden |= {one.id: one for one in found}
    if hidden:
        count = _configurations(len({one.config_hash for one in hidden.values()}))
        are = "is" if len(hidden) == 1 else "are"
        why = f"{_runs(len(hidden))} of {listed(arms)} with {count} not shown here {are} finished in this lab"
        every = list(hidden.values())
        yield Finding(
            *("confounds", "search", tuple(arms)),
            f"{why}{_scores(every, group.metric)}: those compared may have been chosen for their result.",
            "oelm compare --all",
        )


def _not_shown(group: Group, arm: Arm, tried: Sequence[Tried], shown: Set[str]) -> Iterator[Finding]:
    """Runs of the very configuration of an arm, by whatever preset, that are not in the table and tell something."""
    every = [
        one
        for one in tried
        if one.config_hash == arm.config_hash and one.id not in shown and not one.is_draw
        if one.preset.lower() == arm.preset.lower() or not one.imported
    ]
    same = [one for one in every if one.told_something]
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
    seeds = {one.seed for one in tried if one.id in arm.runs}
    yield from _left_out(group, arm, [one for one in every if not one.deleted and one.seed not in seeds])
    scores = {one.seed: one.value for one in tried if one.id in arm.runs and one.value is not None}
    counted = any(finding.code == "reruns" and arm.id in finding.arms for finding in group.audit)
    others = [
        one
        for one in same
        if not one.deleted and one.seed in scores
        if one.diverged or (one.state == "finished" and not counted and one.value != scores[one.seed])
    ]
    if others:
        why = f"{_runs(len(others))} of seeds of {arm.id} that are shown ended otherwise and {_are(others)} not among "
        why += f"those compared ({_seeds(others)}{_scores(others, group.metric)}): which one stands was a choice."
        yield Finding("confounds", "search", (arm.id,), why)


def _left_out(group: Group, arm: Arm, runs: Sequence[Tried]) -> Iterator[Finding]:
    """Other seeds of an arm's configuration that ended, whichever way, and were not named."""
    finished = [one for one in runs if one.state == "finished" and one.told_something]
    given_up = [one for one in runs if one.diverged or (one.value is not None and _by_hand(one))]
    broken = [one for one in runs if one.state in ENDED - {"finished"} and one not in given_up]
    seen = finished + given_up
    compared = "with the configuration shown here"
    if seen:
        ends = f": {_ends(given_up)}" if given_up else ""
        why = f"{_runs(len(seen))} of {arm.id} {compared} {_are(seen)} not among those compared "
        why += f"({_seeds(seen)}{_values(seen, group.metric)}{ends}): the seeds were chosen."
        yield Finding("confounds", "search", (arm.id,), why, f"oelm compare {' '.join(one.id for one in seen)} ...")
    if broken:
        why = f"{_runs(len(broken))} of {arm.id} {compared} ended without a result and {_are(broken)} not among those "
        yield Finding("note", "search", (arm.id,), f"{why}compared ({_seeds(broken)}: {_ends(broken)}).")


def _by_hand(one: Tried) -> bool:
    return is_stopped_by_hand(one.state, one.reason)


def _ends(tried: Sequence[Tried]) -> str:
    """How they ended: "2 diverged and 1 stopped by hand"."""
    words = [
        "diverged" if one.diverged else "stopped by hand" if _by_hand(one) else f"{one.state} ({one.reason or 'error'})"
        for one in tried
    ]
    return listed([f"{count} {word}" for word, count in Counter(words).items()])


def _are(tried: Sequence[Tried]) -> str:
    return "is" if len(tried) == 1 else "are"


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


def _values(tried: Sequence[Tried], metric: str) -> str:
    """How good they were, as far as it is known: ", 81.20 % to 84.00 %"."""
    values = sorted({one.value for one in tried if one.value is not None})
    words = [metric_value(metric, value, unit=True) for value in dict.fromkeys([*values[:1], *values[-1:]])]
    return f", {' to '.join(words)}" if words else ""


def _scores(tried: Sequence[Tried], metric: str) -> str:
    """The same with those that diverged: ", 81.20 % to 84.00 %, 1 diverged"."""
    diverged = sum(one.diverged for one in tried)
    return _values(tried, metric) + (f", {diverged} diverged" if diverged else "")
