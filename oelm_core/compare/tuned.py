"""Tuned arms in a table: what their draws found, whether all were tuned as hard, and what would settle the rest."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, ArmTuning, Comparison, Finding, Group, sort_findings
from oelm_core.compare.draws import Draw, draws_of, expected_best
from oelm_core.compare.settings import LABELS, Config, settings_of, shown
from oelm_core.metric import metric_named
from oelm_core.runs.schema import Tuning, setting

if TYPE_CHECKING:
    from oelm_core.runs.store import Run


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
    audit = [_remedied(_excused(finding, group), group, runs) for finding in group.audit]
    decide = group.decide
    if decide is not None and all(arm.tuning for arm in group.arms):
        more = max(1, decide.seeds - min(len(arm.seeds) for arm in group.arms))
        command = _more_fresh_seeds(group, runs, more)
        decide = dataclasses.replace(decide, command=command) if command else None
    return dataclasses.replace(group, audit=tuple(sort_findings([*audit, *_unequal(group, runs)])), decide=decide)


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


def _remedied(finding: Finding, group: Group, runs: Sequence[Run]) -> Finding:
    """Another seed of a tuned arm is one of its chosen setting, not of the plain preset."""
    if finding.code != "one-seed" or not all(arm.tuning for arm in group.arms):
        return finding
    return dataclasses.replace(finding, settle_with=_more_fresh_seeds(group, runs, 2))


def _more_fresh_seeds(group: Group, runs: Sequence[Run], more: int) -> str | None:
    """The command that tuned these arms, with so many fresh seeds more; None where it is not recorded."""
    tunings = {arm.tuning.id for arm in group.arms if arm.tuning}
    typed = (_words(text) for arm in group.arms for text in arm.commands)
    command = next((words for words in typed if "tune" in words), None)
    if command is None or len(tunings) != 1:
        return None
    there = sorted({seed for arm in group.arms for seed in arm.seeds})
    used = {run.seed for run in runs if run.tuning and run.tuning.id in tunings}
    first = max(used | set(there)) + 1
    asked = "--fresh-seeds", ",".join(map(str, (*there, *range(first, first + more))))
    return shlex.join(["oelm", *(word for word in command[1:] if word != "--detach"), *asked])


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed: no command of ours
        return []


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
