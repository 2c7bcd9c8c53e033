"""The fairness audit of what runs did: data read, machine, code, resumes, reruns, seeds, cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import FINDINGS, Finding, Grade
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.statistics import trend
from oelm_core.config.seeds import seed_ranges
from oelm_core.formatting import duration, listed, metric_value, relative
from oelm_core.provenance import DIRTY
from oelm_core.runs.metrics_file import read_curves
from oelm_core.runs.schema import Attempt
from oelm_core.runs.tried import is_stopped_by_hand

BUSY = 0.5
"""Cores in use by others, before a run starts, that count as other work on the machine."""
COSTLY = 3.0
"""Ratio of wall clocks from which equal steps are no longer equal means."""
NAMED = 3
"""Runs that are named one by one; more are counted."""


class Fact(NamedTuple):
    """Something a run records that should be the same in both arms."""

    code: str
    grade: Grade
    doubt: str
    read: Callable[[Evidence], object]


FACTS = (
    Fact("data", "breaks", "the arms were not trained or judged on the same text", lambda e: e.text),
    Fact("examples", "breaks", "the arms were judged on different numbers of examples", lambda e: e.eval_examples),
    Fact(
        "test",
        "breaks",
        "the arms were tested on different text",
        lambda e: e.result.test and e.result.test.fingerprint,
    ),
    Fact("model", "breaks", "the arms did not start from the same network", lambda e: e.weights),
    Fact(
        "hardware", "confounds", "times and memory do not compare, and sums are rounded otherwise", lambda e: _device(e)
    ),
    Fact(
        "processes", "confounds", "times do not compare, and dropout is drawn otherwise", lambda e: e.result.world_size
    ),
    Fact("threads", "confounds", "times do not compare", lambda e: e.result.threads),
    Fact("host", "note", "times may not compare", lambda e: e.record.host),
)


def _device(e: Evidence) -> str | None:
    return " ".join(part for part in (e.result.device.kind, e.result.device.name) if part) or None


def of_one_kind(found: Collection[object]) -> bool:
    """One known value: unknown is not equal."""
    unknown = (None, (None, None))
    return len(found) == 1 and not any(value in unknown for value in found)


def audit_runs(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Findings from the records of real runs; nothing for arms without runs."""
    if not baseline.runs or not arm.runs:
        return
    for one in (baseline, arm):
        yield from _unfinished(one)
        yield from _reruns(one)
        yield from _moved_between_machines(one)
    if not baseline.scored or not arm.scored:
        return
    for check in (_differing, _code, _versions, _seeds, _cost, _order):
        yield from check(baseline, arm)
    yield from _frozen(arm)
    yield from _drift(baseline)
    yield from _drift(arm)


def run_again(*arms: ArmEvidence) -> str | None:
    """The command that runs arms again, with all their seeds; None where a preset's name would not say it all."""
    runs = [e for arm in arms for e in arm.runs]
    if any(e.run.imported for e in runs) or any(arm.name.lower() != arm.preset.lower() for arm in arms):
        return None
    seeds = sorted({e.seed for e in runs})
    return " ".join(["oelm run", *(arm.preset for arm in arms), *(f"--seed {seed}" for seed in seeds)])


def which_runs(ids: Sequence[str], of: int) -> str:
    """The runs by name, or how many of them there are.

    >>> which_runs(["a", "b", "c", "d"], 7)
    '4 of the 7 runs'
    """
    if len(ids) == of > 1:
        return f"each of the {of} runs"
    return listed(list(ids)) if len(ids) <= NAMED else f"{len(ids)} of the {of} runs"


# -- what became of each run -------------------------------------------------------------------------------------------


def _unfinished(arm: ArmEvidence) -> Iterator[Finding]:
    """Runs without a proper end. One that diverged is a result: it enters the test as the worst."""
    others = [e for e in arm.scored if e.run.state == "finished"]
    by_hand = [e for e in arm.runs if others and not e.has_result and _validations_before_a_stop(e)]
    yield from _stopped_by_hand(arm, by_hand)
    for e in arm.runs:
        state = e.run.state
        if state == "finished" or e.diverged or e in by_hand:
            continue
        why = f"{e.id} {'' if state == 'failed' else 'is '}{e.run.state_and_reason}"
        resumable = state in ("failed", "stopped", "lost") and not e.run.imported
        remedy = f"oelm resume {e.id}" if resumable else None
        if others and not e.has_result:  # it gave no number, so the others stand
            why = f"{why} without a result: {arm.name} rests on the other {len(others)} of {len(arm.runs)} runs."
            yield Finding("note", "unfinished", (arm.name,), why, remedy)
        else:
            yield Finding("breaks", "unfinished", (arm.name,), f"{why}: its numbers are not a result.", remedy)
    if arm.diverged:
        count = f"{len(arm.diverged)} of {len(arm.runs)} run{'s' * (len(arm.runs) != 1)}"
        why = f"{count} of {arm.name} diverged: in the test they count as the worst."
        yield Finding("note", "diverged", (arm.name,), why)


def _validations_before_a_stop(e: Evidence) -> int:
    """How often somebody could have looked at a run before it was stopped by hand; a study's table drops its curve."""
    if not is_stopped_by_hand(e.run.state, e.run.reason):
        return 0
    evaluations, _ = read_curves(e.run.folder.metrics, 1)
    return len(evaluations)


def _stopped_by_hand(arm: ArmEvidence, runs: Sequence[Evidence]) -> Iterator[Finding]:
    """Seeds that somebody gave up after having seen how they did."""
    if not runs:
        return
    steps = _range([e.run.step for e in runs])
    looks = [_validations_before_a_stop(e) for e in runs]
    seeds = f"{len(runs)} seed{'s' * (len(runs) != 1)} of {arm.name} {'was' if len(runs) == 1 else 'were'}"
    why = (
        f"{seeds} stopped by hand at step {steps}, after {_range(looks)} validation{'s' * (max(looks) != 1)}: "
        f"what {'it' if len(runs) == 1 else 'they'} would have given is not known."
    )
    yield Finding("confounds", "unfinished", (arm.name,), why, f"oelm resume {' '.join(e.id for e in runs)}")


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _reruns(arm: ArmEvidence) -> Iterator[Finding]:
    """The newest of several runs of a seed counts; where they differ, somebody may have stopped at a good one."""
    chosen = []
    for e in arm.scored:
        others = [older.score for older in e.older if older.has_result]
        if any(score != e.score for score in others):
            low, high = (metric_value(e.metric, value, unit=True) for value in (min(others), max(others)))
            before = low if low == high else f"{low} to {high}"
            number = f"{len(others) + 1} runs of seed {e.seed}"
            chosen.append(
                f"{number}, of which the newest counts ({metric_value(e.metric, e.score, unit=True)}; before {before})"
            )
    if chosen:
        seeds = sorted({e.seed for e in arm.runs})
        fresh = f"oelm run {arm.preset} --seed {seeds[-1] + 1} --seed {seeds[-1] + 2}"
        why = f"{arm.name} has {'; '.join(chosen)}: which one stands was a choice."
        yield Finding("confounds", "reruns", (arm.name,), why, fresh if run_again(arm) else None)


def _moved_between_machines(arm: ArmEvidence) -> Iterator[Finding]:
    """Runs whose attempts were on different machines, or with another number of processes or threads."""
    for e in arm.scored:
        made = [attempt for attempt in e.attempts if attempt.deleted is None]
        places: dict[str, set[str | int | None]] = {
            "on": {attempt.host for attempt in made},
            "processes": {attempt.world_size for attempt in made},
            "threads": {attempt.threads for attempt in made},
        }
        found = {name: sorted(str(value) for value in values - {None}) for name, values in places.items()}
        changed = [
            f"on {listed(values)}" if name == "on" else f"with {listed(values)} {name}"
            for name, values in found.items()
            if len(values) > 1
        ]
        if changed:
            times = "once" if len(made) == 2 else f"{len(made) - 1} times"
            why = f"{e.id} was resumed {times}, {', '.join(changed)}: it is not one run of one machine."
            yield Finding("confounds", "resumed", (arm.name,), why, f"oelm run {e.preset} --seed {e.seed}")


def audit_resumed(arms: Sequence[ArmEvidence]) -> Iterator[Finding]:
    """Resumed runs, said once for a whole table: theirs is the same result, but not the same clock."""
    runs = [e for arm in arms for e in arm.scored]
    resumed = [e.id for e in runs if sum(attempt.deleted is None for attempt in e.attempts) > 1]
    if resumed:
        affected = tuple(arm.name for arm in arms if any(e.id in resumed for e in arm.runs))
        why = f"{which_runs(resumed, len(runs))} went on from a checkpoint: their times are of several attempts."
        yield Finding("note", "resumed", affected, why)


# -- what differs between two arms -------------------------------------------------------------------------------------


def _differing(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    said: set[str] = set()
    for fact in FACTS:
        theirs, ours = (_recorded(side.scored, fact) for side in (baseline, arm))
        if not theirs or not ours or (theirs == ours and len(theirs) == 1):
            continue
        if sorted(theirs) == sorted(ours) and fact.grade != "breaks":
            continue  # both arms ran on the same mixture of machines
        if fact.code == "host" and "hardware" in said:
            continue  # another machine, as was just said
        said.add(fact.code)
        shown = [", ".join(value[:40] for value in values) for values in (theirs, ours)]
        why = f"{FINDINGS[fact.code]} {shown[0]} ({baseline.name}) vs {shown[1]} ({arm.name}): {fact.doubt}."
        remedy = run_again(baseline, arm) if fact.grade != "note" else None
        yield Finding(fact.grade, fact.code, (baseline.name, arm.name), why, remedy)


def _recorded(runs: Sequence[Evidence], fact: Fact) -> list[str]:
    """The different values that runs recorded."""
    return list(dict.fromkeys(str(value) for run in runs if (value := fact.read(run)) is not None))


def _code(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """The commit, and for trees with changes that are not in it, the hash of these."""
    names = baseline.name, arm.name
    states = [{(e.record.git_commit, e.record.git_diff) for e in side.scored} for side in (baseline, arm)]
    commits = [{(commit or "").removesuffix(DIRTY) for commit, _ in found} for found in states]
    if (states[0] == states[1] and not _unknown_changes(states[0])) or any("" in found for found in commits):
        return
    if commits[0] != commits[1]:
        each = [listed(sorted(commit[:10] for commit in found)) for found in commits]
        why = f"code commit {each[0]} ({names[0]}) vs {each[1]} ({names[1]}): the code may have changed in between."
        yield Finding("note", "commit", names, why)
    elif _unknown_changes(states[0] | states[1]):
        why = f"{names[0]} and {names[1]} ran from trees with uncommitted changes that were not recorded."
        yield Finding("note", "commit", names, why)
    else:
        each = [listed(sorted(diff or "none" for _, diff in found)) for found in states]
        why = f"uncommitted changes {each[0]} ({names[0]}) vs {each[1]} ({names[1]}): the arms ran different code."
        yield Finding("confounds", "commit", names, why, run_again(baseline, arm))


def _unknown_changes(states: Collection[tuple[str | None, str | None]]) -> bool:
    return any((commit or "").endswith(DIRTY) and diff is None for commit, diff in states)


def _cost(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Equal steps are not equal means where one arm took many times as long by the clock."""
    clocks = [[e.values["seconds"] for e in side.scored if "seconds" in e.values] for side in (baseline, arm)]
    if not all(clocks) or not all(map(fmean, clocks)):
        return
    theirs, ours = map(fmean, clocks)
    ratio = max(theirs, ours) / min(theirs, ours)
    if ratio < COSTLY:
        return
    cheap, dear = (baseline, arm) if theirs < ours else (arm, baseline)
    times = duration(min(theirs, ours)), duration(max(theirs, ours))
    why = (
        f"{dear.name} took {ratio:.1f}x as long by the clock ({times[1]}) as {cheap.name} ({times[0]}): "
        "at equal time the gap may be another."
    )
    steps = max((e.steps or 0 for e in cheap.scored), default=0)
    longer = f"oelm run {cheap.preset} --set train.max_steps={round(steps * ratio)}" if steps else None
    yield Finding("confounds", "cost", (baseline.name, arm.name), why, longer if run_again(cheap) else None)


def _versions(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    theirs, ours = _packages(baseline), _packages(arm)
    changed = [package for package in sorted(set(theirs) & set(ours)) if theirs[package] != ours[package]]
    if changed:
        each = [f"{p} {'/'.join(sorted(theirs[p]))} vs {'/'.join(sorted(ours[p]))}" for p in changed[:4]]
        why = f"package versions differ ({'; '.join(each)}): results may differ in the last digits, speed in more."
        yield Finding("note", "versions", (baseline.name, arm.name), why)


def _packages(arm: ArmEvidence) -> dict[str, set[str]]:
    packages: dict[str, set[str]] = {}
    for e in arm.scored:
        for package, version in e.versions.items():
            packages.setdefault(package, set()).add(version)
    return packages


def _seeds(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    theirs, ours = ({e.seed for e in side.scored} for side in (baseline, arm))
    lone = [
        f"{listed(seed_ranges(extra))} only {name}"
        for extra, name in ((theirs - ours, baseline.name), (ours - theirs, arm.name))
        if extra
    ]
    if lone:
        why = f"seeds do not match ({'; '.join(lone)}): the arms did not see the same batches."
        yield Finding("note", "seeds", (baseline.name, arm.name), why)


def audit_seed_count(arms: Sequence[ArmEvidence]) -> Iterator[Finding]:
    """Said once for a whole table, when no arm has a second seed."""
    runs = [e for arm in arms for e in arm.scored]
    if not runs or any(len({e.seed for e in arm.runs}) > 1 for arm in arms):
        return
    presets = " ".join(dict.fromkeys(e.preset for e in runs if not e.run.imported))
    last = max(e.seed for e in runs)
    remedy = f"oelm run {presets} --seed {last + 1} --seed {last + 2}" if presets else None
    why = "one seed: how much another seed would change a gap is not known."
    yield Finding("note", "one-seed", tuple(arm.name for arm in arms), why, remedy)


def _frozen(arm: ArmEvidence) -> Iterator[Finding]:
    moved = [e.id for e in arm.scored if e.result.frozen.unchanged is False]
    if moved:
        why = f"frozen weights of {listed(moved)} changed during training: the method under test did not happen."
        yield Finding("breaks", "frozen-moved", (arm.name,), why)


def audit_machine_load(arms: Sequence[ArmEvidence]) -> Iterator[Finding]:
    """Other work on the machine, from the state that attempts record before they start; said once for a whole table."""
    runs = [e for arm in arms for e in arm.scored]
    busy = [e.id for e in runs if any(_was_busy(attempt) for attempt in e.attempts)]
    if busy:
        affected = tuple(arm.name for arm in arms if any(e.id in busy for e in arm.runs))
        why = f"other work was on the machine when {which_runs(busy, len(runs))} started: times are in doubt."
        yield Finding("note", "other-load", affected, why)


def _was_busy(attempt: Attempt) -> bool:
    """Whether others used a good part of a core when the run began."""
    return attempt.machine is not None and sum(process.cores for process in attempt.machine.before.busy) >= BUSY


def _order(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Arms that ran one after the other instead of in turns see different machine states."""
    starts = sorted((e.started, side.name) for side in (baseline, arm) for e in side.scored if not e.run.imported)
    names = [name for _, name in starts]
    if len(baseline.scored) < 2 or len(arm.scored) < 2 or len(names) < 4:
        return
    if sum(a != b for a, b in itertools.pairwise(names)) <= 1:
        why = f"all runs of {names[0]} came before those of {names[-1]}: drift of the machine falls on one arm's times."
        yield Finding("note", "order", (baseline.name, arm.name), why)


def _drift(arm: ArmEvidence) -> Iterator[Finding]:
    in_order = sorted(arm.scored, key=lambda e: e.started)
    change = trend([e.values["step_time"] for e in in_order if "step_time" in e.values])
    if change is not None and abs(change) >= 0.05:
        way = "slower" if change > 0 else "faster"
        why = f"each run of {arm.name} was {way} than the one before ({relative(change)} in all): the machine drifted."
        yield Finding("note", "drift", (arm.name,), why)


def audit_best_of_many(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Of tables whose numbers are those of the validation that chose the checkpoint."""
    theirs, ours = (
        int(max((e.values.get("validations", 0) for e in side.scored), default=0)) for side in (baseline, arm)
    )
    if min(theirs, ours) < 2:
        return
    if theirs != ours:
        why = f"the best of {theirs} validations ({baseline.name}) is compared with the best of {ours} ({arm.name})."
        yield Finding("confounds", "best-of-many", (baseline.name, arm.name), why)
    else:
        why = f"the metric is the best of {theirs} validations on the very set it is reported on, so a little lucky."
        yield Finding("note", "best-of-many", (baseline.name, arm.name), why)
