"""The fairness audit of what runs did: data read, steps done, batch, precision, machine, code, seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import FINDINGS, Finding, Grade
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.statistics import trend
from oelm_core.formatting import listed, relative
from oelm_core.runs.schema import Attempt

BUSY = 0.5
"""Cores in use by others, before a run starts, that count as other work on the machine."""


class Fact(NamedTuple):
    """Something a run records that should be the same in both arms."""

    code: str
    grade: Grade
    doubt: str
    read: Callable[[Evidence], object]


FACTS = (
    Fact("data", "breaks", "the arms were not trained or judged on the same text", lambda e: e.text),
    Fact("data", "breaks", "the arms were judged on different numbers of examples", lambda e: _eval_examples(e)),
    Fact("model", "breaks", "the arms did not start from the same network", lambda e: e.weights),
    Fact("effective-batch", "confounds", "the gradient noise per step differs", lambda e: e.result.effective_batch),
    Fact("precision", "confounds", "rounding and speed differ", lambda e: e.result.precision),
    Fact("hardware", "note", "times and memory do not compare", lambda e: _device(e)),
    Fact("processes", "note", "times do not compare", lambda e: e.result.world_size),
    Fact("threads", "note", "times do not compare", lambda e: e.result.threads),
    Fact("host", "note", "times may not compare", lambda e: e.record.host),
    Fact("commit", "note", "the code may have changed in between", lambda e: e.record.git_commit),
)


def _eval_examples(e: Evidence) -> int | None:
    return e.checks.data.eval_examples if e.result.data.eval_examples is None else e.result.data.eval_examples


def _device(e: Evidence) -> str | None:
    return " ".join(part for part in (e.result.device.kind, e.result.device.name) if part) or None


def audit_runs(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    """Findings from the records of real runs; nothing for arms without runs."""
    if not baseline.runs or not arm.runs:
        return
    yield from _unfinished(baseline)
    yield from _unfinished(arm)
    if not baseline.scored or not arm.scored:
        return
    for check in (_differing, _steps, _versions, _seeds):
        yield from check(baseline, arm)
    yield from _frozen(arm)
    yield from _order(baseline, arm)
    yield from _drift(baseline)
    yield from _drift(arm)
    yield from _best_of_many(baseline, arm)


def _unfinished(arm: ArmEvidence) -> Iterator[Finding]:
    for e in arm.runs:
        state = e.run.state
        if state == "finished":
            continue
        why = f"{e.id} {'' if state == 'failed' else 'is '}{e.run.state_and_reason}"
        resumable = state in ("failed", "stopped", "lost") and not e.run.imported
        remedy = f"oelm resume {e.id}" if resumable else None
        others = [other for other in arm.scored if other.run.state == "finished"]
        if others and not e.has_result:  # it gave no number, so the others stand
            why = f"{why} without a result: {arm.name} rests on the other {len(others)} of {len(arm.runs)} runs."
            yield Finding("note", "unfinished", (arm.name,), why, remedy)
        else:
            yield Finding("breaks", "unfinished", (arm.name,), f"{why}: its numbers are not a result.", remedy)


def _differing(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    for fact in FACTS:
        theirs, ours = (_recorded(side.scored, fact) for side in (baseline, arm))
        if not theirs or not ours or (theirs == ours and len(theirs) == 1):
            continue
        if sorted(theirs) == sorted(ours) and fact.grade == "note":
            continue  # both arms ran on the same mixture of machines
        shown = [", ".join(value[:40] for value in values) for values in (theirs, ours)]
        why = f"{FINDINGS[fact.code]} {shown[0]} ({baseline.name}) vs {shown[1]} ({arm.name}): {fact.doubt}."
        yield Finding(fact.grade, fact.code, (baseline.name, arm.name), why)


def _recorded(runs: Sequence[Evidence], fact: Fact) -> list[str]:
    """The different values that runs recorded."""
    return list(dict.fromkeys(str(value) for run in runs if (value := fact.read(run)) is not None))


def _steps(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    done = [sorted({e.step for e in side.scored if e.step and e.run.state == "finished"}) for side in (baseline, arm)]
    if all(done) and done[0] != done[1]:
        shown = [" / ".join(f"{step:,}" for step in steps) for steps in done]
        why = f"{shown[0]} steps done ({baseline.name}) vs {shown[1]} ({arm.name}): one arm trained longer."
        yield Finding("breaks", "duration", (baseline.name, arm.name), why)


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
        f"{listed([str(seed) for seed in sorted(extra)])} only {name}"
        for extra, name in ((theirs - ours, baseline.name), (ours - theirs, arm.name))
        if extra
    ]
    if lone:
        why = f"seeds do not match ({'; '.join(lone)}): only common seeds see the same batches and are paired."
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
        which = f"each of the {len(runs)} runs" if len(busy) == len(runs) > 1 else listed(busy)
        why = f"other work was on the machine when {which} started: times are in doubt."
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


def _best_of_many(baseline: ArmEvidence, arm: ArmEvidence) -> Iterator[Finding]:
    theirs, ours = (
        int(max((e.values.get("validations", 0) for e in side.scored), default=0)) for side in (baseline, arm)
    )
    if min(theirs, ours) < 2:
        return
    if theirs != ours:
        why = f"the best of {theirs} validations ({baseline.name}) is compared with the best of {ours} ({arm.name})."
    else:
        why = f"the metric is the best of {theirs} validations on the very set it is reported on, so a little lucky."
    yield Finding("note", "best-of-many", (baseline.name, arm.name), why)
