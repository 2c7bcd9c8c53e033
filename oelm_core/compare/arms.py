"""Which runs count, which make one arm, which arms one table, which baseline each is set against; an arm's numbers."""

from __future__ import annotations

import dataclasses
import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from oelm_core.compare.comparison import Arm, Head, Measure, Reached, SeedCurve
from oelm_core.compare.draws import without_draws
from oelm_core.compare.evidence import Evidence, gather, is_finite
from oelm_core.compare.settings import Config, config_differences, is_untouched, substituted_model
from oelm_core.compare.statistics import time_to_reach
from oelm_core.errors import NotFound
from oelm_core.runs.schema import setting

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.runs.schema import MetricLine
    from oelm_core.runs.store import Run


class GroupKey(NamedTuple):
    """Across these nothing is compared."""

    family: str
    dataset: str
    model: str
    metric: str


@dataclass(frozen=True)
class ArmEvidence:
    """One arm before anything is computed: its configuration, and the runs that prove what happened, one per seed."""

    name: str
    config: Config
    runs: tuple[Evidence, ...] = ()
    """Empty for an arm that was only published."""
    preset: str = ""
    """Id of the recipe it should have been, for the remedy."""
    recipe: Config | None = None
    """That recipe, where `config` is what was run instead."""

    @property
    def scored(self) -> tuple[Evidence, ...]:
        return tuple(run for run in self.runs if run.has_result and not run.diverged)

    @property
    def diverged(self) -> tuple[Evidence, ...]:
        """Runs that ended in numbers that are not finite."""
        return tuple(run for run in self.runs if run.diverged)

    @property
    def failed(self) -> tuple[Evidence, ...]:
        """Runs that ended otherwise without a score."""
        return tuple(run for run in self.runs if run.run.is_over and not run.has_result and not run.diverged)


def arm_of_runs(name: str, runs: Sequence[Evidence]) -> ArmEvidence:
    newest = max(runs, key=lambda e: e.run.created)
    return ArmEvidence(name, newest.config, tuple(runs), newest.preset)


# -- which runs count --------------------------------------------------------------------------------------------------


def study_runs(study: Study, runs: Sequence[Run]) -> tuple[list[Evidence], list[str]]:
    """(finished runs of the study's presets, newest per configuration and seed; footnotes about the rest).

    An arm with no finished run is kept without numbers, so that the table says what became of it.
    """
    presets = {preset.lower() for preset in study.arms}
    mine, tuned = without_draws(study, [run for run in runs if run.preset.lower() in presets])
    kept, notes = newest_per_seed(gather(run) for run in mine if run.state == "finished")
    notes += tuned
    for arm in study.arms:
        rest = [run for run in mine if run.preset.lower() == arm.lower() and run.state != "finished"]
        done = any(e.preset.lower() == arm.lower() for e in kept)
        if rest and not done:
            newest = max(rest, key=lambda run: run.created)
            why = f"{arm}: no finished run; {newest.id} is {newest.state_and_reason}."
            kept.append(_without_numbers(gather(newest), why))
            rest = [run for run in rest if run is not newest]
        elif not done:
            notes.append(f"{arm}: no run of it yet.")
        shown = {(e.run.config_hash, e.seed) for e in kept if e.preset.lower() == arm.lower()}
        hashes = {config_hash for config_hash, _ in shown}
        for run in sorted(rest, key=lambda run: run.created, reverse=True):
            if run.is_over and run.config_hash in hashes and (run.config_hash, run.seed) not in shown:
                shown.add((run.config_hash, run.seed))  # a seed that failed is a result too
                kept.append(_without_numbers(gather(run), f"{run.id}: {run.state_and_reason}, without a score."))
            else:
                notes.append(f"{run.id} is left out: {run.state_and_reason}.")
    return kept, notes


def _without_numbers(evidence: Evidence, why: str) -> Evidence:
    counts = ("total", "trainable", "frozen")
    values = {name: value for name, value in evidence.values.items() if name in counts}
    return dataclasses.replace(evidence, values=values, evaluations=(), train=(), missing=(why,))


def newest_per_seed(runs: Iterable[Evidence]) -> tuple[list[Evidence], list[str]]:
    """(one run per configuration, weights, data and seed; footnotes about the older ones)."""
    kept: dict[tuple[str, str, int], list[Evidence]] = {}
    notes = []
    for e in sorted(runs, key=lambda e: e.run.created, reverse=True):
        alike = kept.setdefault((e.preset.lower(), e.run.config_hash, e.seed), [])
        place = next((place for place, other in enumerate(alike) if same_inputs(other, e)), None)
        if place is None:
            alike.append(e)
            continue
        newer = alike[place]
        alike[place] = dataclasses.replace(newer, older=(*newer.older, e))
        seed = "seed" if e.record.seed is not None else "no seed that would tell them apart"
        notes.append(f"{e.id} is left out: {newer.id} is newer, with the same recipe and {seed}.")
    return [e for alike in kept.values() for e in alike], notes


def same_inputs(one: Evidence, other: Evidence) -> bool:
    """Whether two runs of one recipe read the same weights and text. Unknown is not equal to known.

    A run that came to no result may not have come to read anything. Two that both do not say stay together, as they
    cannot be told apart; the audit says that it is not known.
    """
    pairs = ((one.weights, other.weights), (one.text, other.text))
    lenient = not (one.has_result and other.has_result)
    return all(a == b or (lenient and None in (a, b)) for a, b in pairs)


def _other_inputs(one: Evidence, other: Evidence) -> str:
    """In what two runs of one recipe differ, in two words."""
    pairs = (("weights", one.weights, other.weights), ("data", one.text, other.text))
    found = [f"{name} not recorded" if b is None else f"other {name}" for name, a, b in pairs if a != b]
    return ", ".join(found) or "again"


def _same_recipe(one: Evidence, other: Evidence) -> bool:
    """Whether two runs are of one arm. Imports are by their hash: replicates lie in folders of different names."""
    if one.run.config_hash != other.run.config_hash or not same_inputs(one, other):
        return False
    if one.run.imported and other.run.imported:
        return one.seed != other.seed
    return one.preset == other.preset


# -- groups, arms, baselines -------------------------------------------------------------------------------------------


def split_groups(runs: Sequence[Evidence]) -> dict[GroupKey, list[Evidence]]:
    groups: dict[GroupKey, list[Evidence]] = {}
    models = _model_names(runs)
    for e in runs:
        family, dataset = setting(e.config, "family"), setting(e.config, "data.name")
        key = GroupKey(str(family or "unknown"), str(dataset or "unknown"), models[e.id], e.metric)
        groups.setdefault(key, []).append(e)
    return groups


def _model_names(runs: Sequence[Evidence]) -> dict[str, str]:
    """Run id -> name of its network; runs that read the same weights bear one name, whatever their paths."""
    own = {e.id: str(setting(e.config, "model.name") or "unknown") for e in runs}
    other = {e.id: substituted_model(e.config) for e in runs}
    by_weights: dict[tuple[str, str], str] = {}
    for e in sorted(runs, key=lambda e: other[e.id] is not None):  # the preset's own name wins
        if e.weights is not None:
            by_weights.setdefault((own[e.id], e.weights), other[e.id] or own[e.id])
    names = {}
    for e in runs:
        named = other[e.id]
        names[e.id] = own[e.id] if named is None else by_weights.get((own[e.id], e.weights or ""), named)
    return names


def split_arms(runs: Sequence[Evidence], order: Sequence[str] = ()) -> list[ArmEvidence]:
    """Arms in the order of `order` (preset ids), then by age. Two configurations of one preset get telling names."""
    by_arm: list[list[Evidence]] = []
    for e in sorted(runs, key=lambda e: e.run.created):
        home = next((arm for arm in by_arm if all(_same_recipe(e, other) for other in arm)), None)
        if home is None:
            by_arm.append(home := [])
        home.append(e)
    first_of: dict[str, Evidence] = {}
    arms: list[ArmEvidence] = []
    for members in by_arm:
        name = members[0].preset
        first = first_of.setdefault(name, members[0])
        if first is not members[0]:
            differences = ", ".join(config_differences(first.config, members[0].config))
            name = f"{name} ({differences or _other_inputs(first, members[0])})"
        taken = sum(arm.name == name or arm.name.startswith(f"{name} #") for arm in arms)
        arms.append(arm_of_runs(f"{name} #{taken + 1}" if taken else name, members))
    rank = {preset.lower(): place for place, preset in enumerate(order)}
    return sorted(arms, key=lambda arm: rank.get(arm.preset.lower(), len(rank)))


def named_baseline(arm: ArmEvidence) -> str:
    """The preset that an arm's own names as its baseline, in lower case; "" for none."""
    return str(setting(arm.config, "baseline", "")).lower()


def find_baseline(arms: Sequence[ArmEvidence], asked: str | None = None) -> ArmEvidence | None:
    """The arm asked for (run id, its prefix, or preset); else the one others name, else an untouched one."""
    if asked:
        wanted = asked.lower()
        for arm in arms:
            if arm.name.lower() == wanted or any(run.id.lower().startswith(wanted) for run in arm.runs):
                return arm
        return None
    named = [name for arm in arms if (name := named_baseline(arm))]
    candidates = [arm for arm in arms if arm.preset.lower() in named]
    candidates = candidates or [arm for arm in arms if is_untouched(arm.config)]
    candidates = candidates or [arm for arm in arms if setting(arm.config, "method.name") == "baseline"]  # touched
    if not candidates:
        return None
    return max(candidates, key=lambda arm: (named.count(arm.preset.lower()), len(arm.runs), -arms.index(arm)))


def own_baseline(arm: ArmEvidence, arms: Sequence[ArmEvidence], of_group: ArmEvidence | None) -> ArmEvidence | None:
    """The arm of the baseline preset that the arm names, nearest in recipe (both may carry --set); else the group's."""
    named = [other for other in arms if other.preset.lower() == named_baseline(arm) and other is not arm]
    if not named:
        return of_group
    return min(named, key=lambda other: len(config_differences(other.config, arm.config)))


def require_baseline(asked: str | None, groups: Iterable[Sequence[ArmEvidence]]) -> None:
    """A baseline asked for by name must be in some group."""
    groups = list(groups)
    if asked and all(find_baseline(arms, asked) is None for arms in groups):
        known = ", ".join(arm.name for arms in groups for arm in arms)
        raise NotFound(f"--baseline {asked} is not among the compared runs; they are of: {known}.")


# -- an arm's numbers --------------------------------------------------------------------------------------------------


def build_arm(arm: ArmEvidence, metric: str, scores: Mapping[str, float], *, is_baseline: bool) -> Arm:
    """Means over seeds, curves, what is missing. `scores`: the headline of each run that has one, by its id."""
    every = sorted(arm.runs, key=lambda e: e.seed)
    runs = [e for e in every if e.id in scores] or every
    newest = max(runs, key=lambda e: e.run.created)
    names = sorted({name for e in runs for name in e.values} - {"metric"})
    measures = {name: _measure([e.values[name] for e in runs if name in e.values]) for name in names}
    return Arm(
        id=arm.name,
        preset=arm.preset,
        title=str(setting(arm.config, "title") or arm.preset),
        method=newest.run.method or "unknown",
        config_hash=newest.run.config_hash,
        is_baseline=is_baseline,
        seeds=tuple(e.seed for e in runs if e.id in scores),
        runs=tuple(e.id for e in every),
        metric=_measure([scores[e.id] for e in runs if e.id in scores]),
        measures={name: found for name, found in measures.items() if found},
        target=setting(arm.config, "target"),
        curves=_curves(runs, metric),
        heads=tuple(head for e in runs for head in _heads(e)),
        diverged=len(arm.diverged),
        failed=len(arm.failed),
        reached={mark: reached for mark in ("0.8", "0.9") if (reached := _reached(every, mark))},
        missing=tuple(line for e in every for line in e.missing),
        config=arm.config,
        versions=newest.versions,
        git_commit=newest.record.git_commit,
        commands=tuple(_command(e.record.command) for e in every if e.record.command),
        created=max(e.run.created for e in every),
    )


def _heads(run: Evidence) -> Iterator[Head]:
    look = run.attention
    if look is None:
        return
    apart: Iterable[Iterable[float | None]] = look.from_baseline or repeat(repeat(None))
    for layer, rows in enumerate(zip(look.entropy, look.distance, apart, strict=False)):
        for place, (entropy, distance, from_baseline) in enumerate(zip(*rows, strict=False)):
            if is_finite(entropy) and is_finite(distance):
                yield Head(run.seed, layer, place, entropy, distance, from_baseline)


def _reached(runs: Sequence[Evidence], mark: str) -> Reached | None:
    """When the runs first reached a share of one, all seeds counted; None where nobody looked.

    A run that ended early was watched until then; one that diverged would never have got there.
    """
    if not any(mark in e.result.reached for e in runs):
        return None
    found = [e.result.reached.get(mark) for e in runs]
    steps = time_to_reach(
        [at.step if at else None for at in found], [math.inf if e.diverged else e.step or 0 for e in runs]
    )
    seconds = time_to_reach(
        [at.seconds if at else None for at in found],
        [math.inf if e.diverged else e.values.get("seconds", 0.0) for e in runs],
    )
    return Reached(steps.median, seconds.median, steps.reached, steps.runs)


def _measure(values: Sequence[float]) -> Measure | None:
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Measure(statistics.fmean(values), spread, len(values), tuple(values))


def _curves(runs: Sequence[Evidence], metric: str) -> dict[str, tuple[SeedCurve, ...]]:
    curves = {
        metric: [_curve(e, e.evaluations, metric) for e in runs],
        "loss": [_curve(e, e.evaluations, "loss") for e in runs],
        "train_loss": [_curve(e, e.train, "loss") for e in runs],
    }
    kept = {name: tuple(curve for curve in found if curve.points) for name, found in curves.items()}
    return {name: found for name, found in kept.items() if found}


def _curve(e: Evidence, lines: Sequence[MetricLine], name: str) -> SeedCurve:
    return SeedCurve(e.seed, tuple((at.step, float(at.values[name])) for at in lines if is_finite(at.values.get(name))))


def _command(command: list[str] | str) -> str:
    return shlex.join(command) if isinstance(command, list) else command
