"""Tuned arms in a table: which runs stand for them, what their draws found, and whether all were tuned as hard."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, ArmTuning, Comparison, Finding, Group, sort_findings
from oelm_core.compare.settings import LABELS, Config, settings_of, shown
from oelm_core.formatting import listed
from oelm_core.metric import metric_named
from oelm_core.runs.schema import Tuning, setting

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.runs.store import Run


@dataclass(frozen=True)
class Draw:
    """One point that an arm tried, over its tuning seeds."""

    point: int
    settings: tuple[str, ...]
    state: str
    """done, failed, pruned, or open while a run of it is not over."""
    value: float | None
    """Mean over seeds of the best validation, of a pruned one until then; None where it failed or is open."""


def draws_of(runs: Iterable[Run], seeds: int | None = None) -> list[Draw]:
    """The draws that an arm's runs in one tuning make, by point; with fewer runs than `seeds` a draw is open."""
    by_point: dict[int, dict[int, tuple[Run, Tuning]]] = {}
    for run in sorted(runs, key=lambda run: run.created):
        if run.tuning is not None and run.tuning.role == "draw":
            by_point.setdefault(run.tuning.point, {})[run.seed] = run, run.tuning  # the newest of a seed
    return [_draw(point, list(made.values()), seeds) for point, made in sorted(by_point.items())]


def _draw(point: int, made: Sequence[tuple[Run, Tuning]], seeds: int | None) -> Draw:
    states = {run.state for run, _ in made}
    values = [run.metric_value for run, _ in made if run.metric_value is not None and math.isfinite(run.metric_value)]
    settings = made[0][1].settings
    complete = len(values) == len(made)
    if "failed" in states or (states == {"finished"} and not complete):
        return Draw(point, settings, "failed", None)
    if not states <= {"finished", "stopped"} or len(made) < (seeds or 1):
        return Draw(point, settings, "open", None)
    if "stopped" in states:  # stopped before its first validation it has shown nothing
        return (
            Draw(point, settings, "pruned", statistics.fmean(values))
            if complete
            else Draw(point, settings, "failed", None)
        )
    return Draw(point, settings, "done", statistics.fmean(values))


def best_draw(draws: Iterable[Draw], metric: str) -> Draw | None:
    """The best of those that came to their end, the earliest of equals; None where none did."""
    best: Draw | None = None
    for draw in draws:
        if draw.state != "done" or draw.value is None:
            continue
        if best is None or metric_named(metric).better(draw.value, best.value):
            best = draw
    return best


def expected_best(values: Sequence[float], *, higher_is_better: bool) -> tuple[float, ...]:
    """The mean best of m of these N values over all subsets of size m, for m = 1..N.

    Draws without replacement: the unbiased estimate of what m draws find. (With replacement, as in Dodge et al. 2019,
    one value may be drawn twice, so that the estimate is too low; see Tang et al. 2020.) The i-th worst value is the
    best of C(i-1, m-1) of the C(N, m) subsets.

    >>> expected_best([0.7, 0.9, 0.8], higher_is_better=True)[2]
    0.9
    """
    ordered, count = sorted(values, reverse=not higher_is_better), len(values)
    return tuple(
        math.fsum(value * (math.comb(place, m - 1) / math.comb(count, m)) for place, value in enumerate(ordered))
        for m in range(1, count + 1)
    )


# -- which runs stand for an arm ---------------------------------------------------------------------------------------


def without_draws(study: Study, runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """(the runs that stand for a study's arms, footnotes about the rest).

    Draws never do. Where an arm's chosen setting has finished on a fresh seed, the arm is that setting: its newest
    tuning's runs, and not those of the plain preset.
    """
    kept: list[Run] = []
    notes: list[str] = []
    draws = [run for run in runs if run.is_draw]
    if draws:
        ids = sorted({run.tuning.id for run in draws if run.tuning})
        notes.append(f"{len(draws)} runs are draws of {listed(ids)}: they choose a setting and are no arm.")
    for preset in dict.fromkeys(run.preset.lower() for run in runs):
        mine = [run for run in runs if run.preset.lower() == preset and not run.is_draw]
        plain = [run for run in mine if run.tuning is None]
        own = [run for run in mine if run.tuning and (run.study or "").lower() == study.id.lower()]
        finished = [run for run in own if run.state == "finished"]
        newest = max(finished or ([] if plain else own), key=lambda run: run.created, default=None)
        if newest is None:
            kept += plain
            notes += [f"{run.id} is left out: {run.state_and_reason}." for run in own]
        else:
            same = [run for run in own if _choice(run) == _choice(newest)]
            kept += same
            notes += _left_out(newest, plain, [run for run in own if run not in same])
        foreign = [run for run in mine if run.tuning and run not in own]
        notes += [f"{run.id} is left out: it was tuned for the study {run.study or 'unknown'}." for run in foreign]
    return kept, notes


def _choice(run: Run) -> tuple[str, int] | None:
    return (run.tuning.id, run.tuning.point) if run.tuning else None


def _left_out(newest: Run, plain: Sequence[Run], older: Sequence[Run]) -> list[str]:
    tuning = newest.tuning.id if newest.tuning else ""
    notes = [f"{run.id} is left out: {tuning} chose another setting since." for run in older]
    if plain:
        which = plain[0].id if len(plain) == 1 else f"{len(plain)} runs"
        are = "is" if len(plain) == 1 else "are"
        notes.append(f"{newest.preset}: {which} with untuned settings {are} left out: {tuning} chose this arm's.")
    return notes


# -- what the draws found, and whether all arms were tuned as hard -----------------------------------------------------


def with_tuning(comparison: Comparison, runs: Sequence[Run]) -> Comparison:
    """The comparison with what tuning found for each of its arms, by all runs there are."""
    if not any(run.tuning for run in runs):
        return comparison
    return dataclasses.replace(comparison, groups=tuple(_tuned_group(group, runs) for group in comparison.groups))


def _tuned_group(group: Group, runs: Sequence[Run]) -> Group:
    found = {arm.id: _draws_of_arm(arm, runs) for arm in group.arms}
    if not any(found.values()):
        return group
    metric = metric_named(group.metric)
    seen = [draw.value for one in found.values() if one for draw in one.draws if draw.value is not None]
    worst = (min if metric.higher_is_better else max)(seen, default=math.nan)
    tuned = {name: _summary(one, worst, metric.higher_is_better) for name, one in found.items() if one}
    arms = tuple(dataclasses.replace(arm, tuning=tuned.get(arm.id)) for arm in group.arms)
    group = dataclasses.replace(group, arms=arms)
    audit = [_excused(finding, group) for finding in group.audit]
    return dataclasses.replace(group, audit=tuple(sort_findings([*audit, *_unequal(group, runs)])))


@dataclass(frozen=True)
class _Drawn:
    tuning: Tuning
    draws: list[Draw]
    total: int


def _draws_of_arm(arm: Arm, runs: Sequence[Run]) -> _Drawn | None:
    """The draws behind the setting that an arm's runs carry; None for an arm that was not tuned."""
    chosen = [run for run in runs if run.id in arm.runs and run.tuning]
    if not chosen or chosen[0].tuning is None:
        return None
    tuning = chosen[0].tuning
    drawn = [run for run in runs if run.is_draw and _same_arm(run, chosen[0])]
    every = {(run.tuning.id, run.tuning.point) for run in drawn if run.tuning}
    of_this = draws_of(run for run in drawn if run.tuning and run.tuning.id == tuning.id)
    least = tuning.point if tuning.role == "chosen" else 0  # draws may have been deleted since
    return _Drawn(tuning, [draw for draw in of_this if draw.state != "open"], max(len(every), least))


def _same_arm(run: Run, other: Run) -> bool:
    return (run.preset.lower(), run.study) == (other.preset.lower(), other.study)


def _summary(drawn: _Drawn, worst: float, higher_is_better: bool) -> ArmTuning:
    states = [draw.state for draw in drawn.draws]
    values = [worst if draw.value is None else draw.value for draw in drawn.draws]
    return ArmTuning(
        id=drawn.tuning.id,
        draws=drawn.total,
        failed=states.count("failed"),
        pruned=states.count("pruned"),
        chosen=drawn.tuning.point if drawn.tuning.role == "chosen" else None,
        settings=drawn.tuning.settings,
        values=tuple(draw.value for draw in drawn.draws),
        expected_best=expected_best(values, higher_is_better=higher_is_better),
    )


def _unequal(group: Group, runs: Sequence[Run]) -> Iterable[Finding]:
    """An arm that was tuned harder than its baseline, or less hard, has the luckier or unluckier setting."""
    for pair in group.pairs:
        ours, theirs = group.arm(pair.arm), group.arm(pair.baseline)
        counts = [arm.tuning.draws if arm.tuning else 0 for arm in (ours, theirs)]
        if counts[0] == counts[1]:
            continue
        studies = {run.study for run in runs if run.tuning and run.id in (*ours.runs, *theirs.runs) and run.study}
        settle = f"oelm tune {min(studies)} --budget {max(counts)}" if len(studies) == 1 else None
        was = [f"{arm.id} with {count or 'no'} draws" for arm, count in zip((ours, theirs), counts, strict=True)]
        why = f"tuned unequally, {was[0]} and {was[1]}: the arm that searched harder has the luckier setting."
        yield Finding("confounds", "tuning", (theirs.id, ours.id), why, settle)


def _excused(finding: Finding, group: Group) -> Finding:
    """A setting in which two arms differ because each chose it, from the same points: only worth a note."""
    sides = [arm for name in finding.arms for arm in group.arms if arm.id == name]
    name = finding.code.replace("-", "_")
    if len(sides) != 2 or finding.grade == "note" or name not in LABELS:
        return finding
    one, other = sides
    if not one.tuning or not other.tuning or one.tuning.id != other.tuning.id or one.tuning.draws != other.tuning.draws:
        return finding
    keys = [text.partition("=")[0] for text in other.tuning.settings]
    ours, theirs = settings_of(other.config), settings_of(one.config)
    if settings_of(_with_values(other.config, one.config, keys))[name] != theirs[name]:
        return finding  # they would differ with the same point too
    why = f"{LABELS[name]} {shown(name, theirs[name])} ({one.id}) vs {shown(name, ours[name])} ({other.id}): "
    why += f"each arm's own choice from the same {one.tuning.draws} points."
    return dataclasses.replace(finding, grade="note", why=why, settle_with=None)


def _with_values(config: Config, source: Config, keys: Iterable[str]) -> Config:
    """The configuration with the values that another has under these dotted keys."""
    for key in keys:
        *parts, last = key.split(".")
        value: Any = {last: setting(source, key)}
        for part in reversed(parts):
            value = {part: value}
        config = _joined(config, value)
    return config


def _joined(base: Config, over: Config) -> Config:
    nested = {key: _joined(base[key], value) for key, value in over.items() if isinstance(base.get(key), dict)}
    return {**base, **over, **nested}
