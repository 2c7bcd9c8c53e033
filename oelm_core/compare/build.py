"""Builds a comparison from evidence: groups, and in each its arms, their pairs and the fairness audit."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.compare.arms import (
    ArmEvidence,
    GroupKey,
    build_arm,
    find_baseline,
    named_baseline,
    own_baseline,
    require_baseline,
    split_arms,
    split_groups,
)
from oelm_core.compare.audit import audit_ablation, audit_pair, audit_table, equal_settings, is_ablation
from oelm_core.compare.audit_imports import audit_imports
from oelm_core.compare.comparison import (
    Arm,
    ComparedStudy,
    Comparison,
    Decide,
    Finding,
    Group,
    MeanGap,
    Pair,
    SignificanceTest,
    sort_findings,
)
from oelm_core.compare.control_presets import ControlPresets
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.item_scores import Basis, can_be_computed, common_basis, level
from oelm_core.compare.machines import machines
from oelm_core.compare.settings import config_differences, target_of
from oelm_core.compare.significance import (
    ScoredArm,
    as_gap,
    pair_significance,
    score_arm,
    spread_of,
    time_per_step,
    timing_noise,
)
from oelm_core.compare.statistics import Estimate, Sample, Spread, holm, mean_of
from oelm_core.compare.verdict import judge
from oelm_core.config.seeds import seeds_option
from oelm_core.errors import NotFound
from oelm_core.formatting import listed, luck, p_value
from oelm_core.metric import metric_named
from oelm_core.registry import is_orthonormal
from oelm_core.runs.schema import setting
from oelm_core.study.calibration import Calibration, facts, find_calibration

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.config.catalogue import Catalogue

FIRST_LOOK = 3
"""Seeds asked for where nothing is known of how they spread."""
MOST_ADVISED = 30
"""More seeds than this are not asked for in a command."""


def build_comparison(
    evidence: Sequence[Evidence],
    catalogue: Catalogue,
    order: Sequence[str],
    notes: Sequence[str],
    *,
    asked: str | None = None,
    study: ComparedStudy | None = None,
) -> Comparison:
    """`order`: preset ids, as the arms are to stand. `asked`: the baseline by name. NotFound without any result."""
    if not any(e.has_result for e in evidence):
        raise NotFound(_nothing(evidence, study))
    rank = {preset.lower(): place for place, preset in enumerate(order)}
    split = split_groups(sorted(evidence, key=lambda e: (rank.get(e.preset.lower(), len(rank)), e.run.created)))
    arms_of = {key: split_arms(runs, order) for key, runs in split.items() if any(e.has_result for e in runs)}
    footnotes = list(notes)
    for key, runs in split.items():  # a group without any result is footnotes only
        footnotes += [line for e in runs if key not in arms_of for line in e.missing]
    require_baseline(asked, arms_of.values())
    if len(arms_of) > 1:
        names = [f"{key.dataset} ({key.metric}, {key.model})" for key in arms_of]
        footnotes.append(f"Not compared across: {listed(names)} are separate tables.")
    declared = study.contrasts if study else None
    controls = ControlPresets(catalogue)
    made = [_group(key, arms, controls, asked, declared) for key, arms in arms_of.items()]
    together = study or _study_of(evidence, catalogue)
    planned = _planned_comparisons(together, catalogue) if together else None
    groups = _one_command(_adjusted([group for group, _ in made], planned))
    for group in groups:
        if len(group.arms) == 1:
            footnotes.append(f"{group.dataset}: only {group.arms[0].id} is there; nothing to set it against.")
        elif group.baseline is None:
            names = [arm.id for arm in group.arms]
            footnotes.append(f"{group.dataset}: no baseline arm among {listed(names)}; no differences.")
        footnotes += [line for arm in group.arms for line in arm.missing]
    means = _means(groups, [found for _, found in made])
    return Comparison(tuple(groups), tuple(dict.fromkeys(footnotes)), study, means)


def _planned_comparisons(study: ComparedStudy | Study, catalogue: Catalogue) -> int:
    """How many a study declares: each arm against its baseline, and arms against one another."""
    planned = [catalogue.experiments[arm] for arm in study.arms if arm in catalogue.experiments]
    return sum(one.baseline is not None for one in planned) + len(study.contrasts)


def _study_of(evidence: Sequence[Evidence], catalogue: Catalogue) -> Study | None:
    """The study that all these runs were started by: naming its runs one by one does not make its family smaller."""
    names = {e.record.study for e in evidence}
    name = names.pop() if len(names) == 1 else None
    return catalogue.studies.get(name) if name else None


def _nothing(evidence: Sequence[Evidence], study: ComparedStudy | None) -> str:
    """Why there is no table, in a sentence, and what to do about it."""
    where = f"study {study.id}" if study else "these runs"
    hint = f" Start it with: oelm study {study.id}." if study else ""
    if not evidence:
        return f"nothing to compare{f' in {where}' if study else ''}: none of it has run yet.{hint}"
    states = Counter(e.run.state_and_reason for e in evidence)
    found = listed([f"{count} {state}" for state, count in states.items()])
    return f"nothing to compare in {where}: no run has a result; {found}.{hint}"


@dataclass(frozen=True)
class _Table:
    """One group while it is computed: its arms scored on one basis, and what is known of how seeds spread."""

    key: GroupKey
    scored: dict[str, ScoredArm]
    built: dict[str, Arm]
    spreads: dict[str, Spread]
    """By arm: how its seeds spread, those of its calibration included."""
    noise: float | None

    def others(self, *names: str) -> list[Spread]:
        """How seeds spread in the other arms."""
        return [spread for name, spread in self.spreads.items() if name not in names]


def _group(
    key: GroupKey,
    arms: list[ArmEvidence],
    controls: ControlPresets,
    asked: str | None,
    declared: Sequence[tuple[str, str]] | None,
) -> tuple[Group, dict[tuple[str, str], Estimate]]:
    """(the group, the estimate behind each pair)."""
    leader = find_baseline(arms, asked)
    if leader is not None:  # the baseline leads, the rest keep their order
        arms = [leader, *(arm for arm in arms if arm is not leader)]
    pairs, baselines = _pairs(arms, leader, asked)
    basis = common_basis([e for arm in arms for e in arm.scored], key.metric)
    calibrations = {arm.name: known for arm in arms if (known := _calibration(arm, key.metric, basis)) is not None}
    scored = {arm.name: _calibrated(score_arm(arm, key.metric, basis), calibrations.get(arm.name)) for arm in arms}
    built = {
        arm.name: build_arm(
            arm,
            key.metric,
            {run: one.value for run, one in scored[arm.name].scores.items()},
            is_baseline=arm.name in baselines,
        )
        for arm in arms
    }
    spreads = {name: spread for name, arm in scored.items() if (spread := spread_of(arm)) is not None}
    table = _Table(key, scored, built, spreads, timing_noise(arms))
    estimates: dict[tuple[str, str], Estimate] = {}
    against = [_pair(table, arm, base, estimates) for arm, base in pairs]
    contrasts = _contrasts(arms, baselines, declared)
    ablations = contrasts if declared else _all_pairs(arms, baselines)
    group = Group(
        *key,
        metric_named(key.metric).direction,
        leader.name if leader else None,
        tuple(built.values()),
        tuple(against),
        tuple(
            sort_findings(
                [
                    *_audit(arms, pairs, ablations, key.metric, basis, controls),
                    *_without_examples(against, estimates),
                ]
            )
        ),
        contrasts=tuple(_pair(table, arm, other, estimates, target=False) for arm, other in contrasts),
        basis=basis,
        timing_noise=table.noise,
        calibration=tuple(facts(found) for found in calibrations.values()),
        same=equal_settings(arms),
        machines=machines([e for arm in arms for e in arm.scored]),
    )
    return dataclasses.replace(group, decide=_what_would_decide(group)), estimates


def _calibrated(arm: ScoredArm, found: Calibration | None) -> ScoredArm:
    """The arm with how other seeds of its recipe spread, by its calibration."""
    if found is None:
        return arm
    used = {e.seed for e in arm.runs}
    values = [score for seed, score in zip(found.seeds, found.scores, strict=False) if seed not in used]
    if len(values) < 2:
        return arm
    sample = Sample(tuple(level(arm.metric, value) for value in values))
    source = f"{found.preset} (calibrated, {len(values)} seeds)"
    return dataclasses.replace(arm, calibrated=Spread(sample.variance, sample.df, source))


def _calibration(arm: ArmEvidence, metric: str, basis: Basis) -> Calibration | None:
    """What is known of this recipe, on this network and text."""
    newest = max(arm.runs, key=lambda e: e.run.created)
    return find_calibration(newest.run.config_hash, metric, basis, newest.weights, newest.text)


def _contrasts(
    arms: list[ArmEvidence], baselines: set[str], declared: Sequence[tuple[str, str]] | None
) -> list[tuple[ArmEvidence, ArmEvidence]]:
    """Arms set against one another: as declared, else each random start against the nearest orthonormal one."""
    if declared:
        by_preset = {arm.preset.lower(): arm for arm in reversed(arms)}
        found = [(by_preset.get(one.lower()), by_preset.get(other.lower())) for one, other in declared]
        return [(arm, other) for arm, other in found if arm is not None and other is not None]
    others = [arm for arm in arms if arm.name not in baselines]
    chosen = []
    for arm in others:
        if is_orthonormal(setting(arm.config, "method.init", "none")):
            continue
        alike = [other for other in others if other is not arm and is_ablation(arm.config, other.config)]
        if alike:
            nearest = min(alike, key=lambda other: len(config_differences(arm.config, other.config)))
            chosen.append((nearest, arm))
    return chosen


def _pairs(
    arms: list[ArmEvidence], leader: ArmEvidence | None, asked: str | None
) -> tuple[list[tuple[ArmEvidence, ArmEvidence]], set[str]]:
    """(arms with the baseline each is set against, names of the arms that are baselines)."""
    against = {arm.name: leader if asked else own_baseline(arm, arms, leader) for arm in arms if arm is not leader}
    chosen = {base.name for arm in arms if named_baseline(arm) and (base := against.get(arm.name))}
    pairs = [(arm, base) for arm in arms if arm.name not in chosen and (base := against.get(arm.name))]
    return pairs, chosen | ({leader.name} if leader else set())


def _all_pairs(arms: list[ArmEvidence], baselines: set[str]) -> list[tuple[ArmEvidence, ArmEvidence]]:
    """Without declared contrasts a reader may set any two arms against one another."""
    return list(itertools.combinations([arm for arm in arms if arm.name not in baselines], 2))


def _without_examples(pairs: Sequence[Pair], estimates: Mapping[tuple[str, str], Estimate]) -> Iterator[Finding]:
    """A p that leaves out the noise of the examples is too small."""
    bare = [pair for pair in pairs if pair.p is not None and not estimates[pair.arm, pair.baseline].n]
    if bare and can_be_computed(bare[0].metric):
        arms = tuple(dict.fromkeys(name for pair in bare for name in (pair.baseline, pair.arm)))
        why = "no run of an arm kept what it predicted, so the noise of the examples is in no interval: p is too small."
        yield Finding("confounds", "examples", arms, why)


def _audit(
    arms: list[ArmEvidence],
    pairs: list[tuple[ArmEvidence, ArmEvidence]],
    ablations: list[tuple[ArmEvidence, ArmEvidence]],
    metric: str,
    basis: Basis,
    controls: ControlPresets,
) -> list[Finding]:
    arms = [controls.with_recipe(arm) for arm in arms]
    pairs, ablations = (
        [(controls.with_recipe(arm), controls.with_recipe(other)) for arm, other in some] for some in (pairs, ablations)
    )
    found = [finding for arm, base in pairs for finding in audit_pair(base, arm, controls, basis)]
    for one, other in ablations:
        if is_ablation(one.config, other.config):
            found += audit_ablation(one, other, controls, basis)
    found += audit_imports(arms, pairs, metric)
    found += audit_table(arms) if pairs else []
    return [controls.with_known_presets(finding) for finding in found]


def _pair(
    table: _Table,
    arm: ArmEvidence,
    base: ArmEvidence,
    estimates: dict[tuple[str, str], Estimate],
    *,
    target: bool = True,
) -> Pair:
    metric, ours, theirs = table.key.metric, table.built[arm.name], table.built[base.name]
    scored, against = table.scored[arm.name], table.scored[base.name]
    others = table.others(arm.name, base.name)
    found = pair_significance(against, scored, others)
    if found.estimate is not None:
        estimates[arm.name, base.name] = found.estimate
    bound = target_of(arm.config) if target else None
    if bound is not None and not bound.of_baseline:
        others = table.others(arm.name)
    judged = judge(bound, against, scored, others)
    saving = _change(ours, theirs, "trainable")
    per_step, clock = time_per_step(base, arm, table.noise)
    about_method = SignificanceTest(
        "seeds x examples" if found.estimate and found.estimate.n else "seeds",
        "seeds",
        found.words,
        found.p,
        found.delta,
        found.interval,
        min(found.seeds.baseline, found.seeds.arm),
    )
    tests = [about_method, *found.models, *([clock] if clock else [])]
    return Pair(
        arm=arm.name,
        baseline=base.name,
        metric=metric,
        direction=metric_named(metric).direction,
        kind="points" if metric_named(metric).is_share else "relative",
        delta=found.delta,
        interval=found.interval,
        p=found.p,
        p_adjusted=None,
        seeds=found.seeds,
        verdict=judged.verdict,
        verdict_why=judged.why,
        seeds_needed=judged.seeds_needed,
        retention=found.kept if metric_named(metric).higher_is_better else None,
        parameter_saving=-saving if saving is not None else None,
        step_time_delta=per_step,
        seconds_delta=_change(ours, theirs, "seconds"),
        memory_delta=_change(ours, theirs, "memory"),
        spread_from=found.spread_from,
        models=found.models[0] if found.models else None,
        tests=tuple(tests),
        words=found.words,
    )


def _change(ours: Arm, theirs: Arm, name: str) -> float | None:
    a, b = ours.mean(name), theirs.mean(name)
    return a / b - 1 if a is not None and b else None


# -- over the whole comparison -----------------------------------------------------------------------------------------


def _adjusted(groups: Sequence[Group], planned: int | None) -> list[Group]:
    """The groups with p adjusted: over all tables of a study, whose plan counts; else within each table."""
    if planned is None:
        return [_adjust([group], 0)[0] for group in groups]
    return _adjust(groups, planned)


def _adjust(groups: Sequence[Group], planned: int) -> list[Group]:
    pairs = [pair for group in groups for pair in (*group.pairs, *group.contrasts)]
    size = max(planned, len(pairs))
    by_pair = {id(pair): p for pair, p in zip(pairs, holm([pair.p for pair in pairs], size), strict=True)}

    def with_adjusted(pair: Pair) -> Pair:
        p = by_pair[id(pair)]
        if p is None:
            return pair
        many = f"Adjusted for {size} comparisons: {p_value(p)}, {luck(p)}."
        words = f"{pair.words} {many if size > 1 else f'{luck(p).capitalize()}.'}"
        return dataclasses.replace(pair, p_adjusted=p, words=words)

    return [
        dataclasses.replace(
            group,
            family_size=size,
            pairs=tuple(map(with_adjusted, group.pairs)),
            contrasts=tuple(map(with_adjusted, group.contrasts)),
        )
        for group in groups
    ]


def _one_command(groups: Sequence[Group]) -> list[Group]:
    """One command for all tables of a comparison, under the last that has something open."""
    made = [group.decide for group in groups if group.decide]
    if len(made) < 2 or len({one.seeds_asked for one in made}) > 1:
        return list(groups)
    presets = tuple(dict.fromkeys(name for one in made for name in one.presets))
    times = [one.seconds for one in made if one.seconds is not None]
    merged = dataclasses.replace(
        made[-1],
        command=f"oelm run {' '.join(presets)} {made[0].seeds_asked}",
        seeds=max(one.seeds for one in made),
        seconds=math.fsum(times) if len(times) == len(made) else None,
        presets=presets,
    )
    last = next(group for group in reversed(groups) if group.decide)
    return [
        group if not group.decide else dataclasses.replace(group, decide=merged if group is last else None)
        for group in groups
    ]


def _means(groups: Sequence[Group], estimates: Sequence[dict[tuple[str, str], Estimate]]) -> tuple[MeanGap, ...]:
    """The mean gap of each method that was tried on several data sets, by one kind of metric."""
    alike: dict[tuple[str, str], list[tuple[Group, Pair, Estimate]]] = {}
    for group, found in zip(groups, estimates, strict=True):
        for pair in group.pairs:
            if (pair.arm, pair.baseline) in found:
                method = group.arm(pair.arm).method
                one = (group, pair, found[pair.arm, pair.baseline])
                alike.setdefault((method, pair.kind), []).append(one)
    return tuple(
        _mean_gap(method, members)
        for (method, _), members in alike.items()
        if len({group.dataset for group, _, _ in members}) > 1
    )


def _mean_gap(method: str, members: Sequence[tuple[Group, Pair, Estimate]]) -> MeanGap:
    first = members[0][1]
    found = mean_of([estimate for _, _, estimate in members])
    bounds = found.interval()
    kept = [pair.retention for _, pair, _ in members if pair.retention is not None]
    return MeanGap(
        method,
        first.kind,
        first.metric,
        tuple(dict.fromkeys(group.dataset for group, _, _ in members)),
        as_gap(first.metric, found.value),
        (as_gap(first.metric, bounds[0]), as_gap(first.metric, bounds[1])) if bounds else None,
        found.p() if all(pair.p is not None for _, pair, _ in members) else None,
        math.fsum(kept) / len(kept) if len(kept) == len(members) else None,
    )


def _what_would_decide(group: Group) -> Decide | None:
    """The one command that would decide the targets that are not, and its time here; None where none is open."""
    open_pairs = [pair for pair in group.pairs if pair.verdict == "undecided" and pair.delta is not None]
    known = {arm.id: arm for arm in group.arms if arm.id == arm.preset and arm.seeds}
    names = [name for name in dict.fromkeys(n for p in open_pairs for n in (p.baseline, p.arm)) if name in known]
    wanted = [pair.seeds_needed for pair in open_pairs if pair.seeds_needed]
    unknown = any(min(pair.seeds.baseline, pair.seeds.arm) < 2 and not pair.seeds_needed for pair in open_pairs)
    seeds = max([*wanted, *([FIRST_LOOK] if unknown else [])], default=None)
    if seeds is None or len(names) < 2 or seeds > MOST_ADVISED:
        return None
    have = min(len(known[name].seeds) for name in names)
    first = max(seed for name in names for seed in known[name].seeds) + 1
    more = max(1, seeds - have)
    asked = seeds_option(range(first, first + more))
    times = [known[name].mean("seconds") for name in names]
    seconds = more * math.fsum(time for time in times if time is not None) if all(times) else None
    return Decide(f"oelm run {' '.join(names)} {asked}", seeds, seconds, tuple(names), asked)
