"""What finished runs themselves show to differ: data read, steps done, batch, precision, machine, code, seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oelm_core.compare.comparison import Finding, Grade
from oelm_core.compare.evidence import Evidence
from oelm_core.compare.statistics import trend
from oelm_core.formatting import listed, relative

Side = tuple[str, Mapping[str, Any], Sequence[Evidence]]
BUSY = 0.5
"""Cores in use by others, before a run starts, that count as other work on the machine."""

# fact -> (what, grade, doubt)
_FACTS: dict[str, tuple[str, Grade, str]] = {
    "data_fingerprint": ("data", "breaks", "the arms were not trained or judged on the same text"),
    "eval_examples": ("data", "breaks", "the arms were judged on different numbers of examples"),
    "model_fingerprint": ("model", "breaks", "the arms did not start from the same network"),
    "effective_batch": ("effective batch", "confounds", "the gradient noise per step differs"),
    "precision": ("precision", "confounds", "rounding and speed differ"),
    "device": ("hardware", "note", "times and memory do not compare"),
    "world_size": ("processes", "note", "times do not compare"),
    "threads": ("threads", "note", "times do not compare"),
    "host": ("host", "note", "times may not compare"),
    "git_commit": ("code commit", "note", "the code may have changed in between"),
}


def observed_findings(baseline: Side, arm: Side) -> list[Finding]:
    """Findings from the records of real runs; nothing for sides without runs."""
    if not baseline[2] or not arm[2]:
        return []
    found = [*_ended(baseline), *_ended(arm)]
    baseline, arm = _with_results(baseline), _with_results(arm)
    if not baseline[2] or not arm[2]:
        return found
    for fact, (what, grade, doubt) in _FACTS.items():
        found += _fact(baseline, arm, fact, what, grade, doubt)
    found += _steps(baseline, arm) + _versions(baseline, arm) + _seeds(baseline, arm)
    found += _frozen(arm) + _order(baseline, arm) + _drift(baseline) + _drift(arm)
    return found + _best_of_many(baseline, arm)


def _with_results(side: Side) -> Side:
    return side[0], side[1], tuple(run for run in side[2] if "metric" in run.values)


def _ended(side: Side) -> list[Finding]:
    name, _, runs = side
    found = []
    for run in runs:
        if run.state == "finished":
            continue
        what = run.state if run.state == "failed" else f"is {run.state}"
        why = f"{run.id} {what}" + (f" ({run.reason})" if run.reason else "")
        resumable = run.state in ("failed", "stopped", "lost")
        remedy = f"oelm resume {run.id}" if resumable and not run.imported else None
        others = [other for other in runs if other.state == "finished" and "metric" in other.values]
        if others and "metric" not in run.values:  # it gave no number, so the others stand
            why = f"{why} without a result: {name} rests on the other {len(others)} of {len(runs)} runs."
            found.append(Finding("note", "arm not finished", (name,), why, remedy))
            continue
        found.append(Finding("breaks", "arm not finished", (name,), f"{why}: its numbers are not a result.", remedy))
    return found


def _values(runs: Sequence[Evidence], fact: str) -> list[Any]:
    return list(dict.fromkeys(run.facts[fact] for run in runs if run.facts.get(fact) is not None))


def _fact(baseline: Side, arm: Side, fact: str, what: str, grade: Grade, doubt: str) -> list[Finding]:
    theirs, ours = _values(baseline[2], fact), _values(arm[2], fact)
    if not theirs or not ours or (theirs == ours and len(theirs) == 1):
        return []
    if sorted(map(str, theirs)) == sorted(map(str, ours)) and grade == "note":
        return []  # both arms ran on the same mixture of machines
    shown = [", ".join(str(v)[:40] for v in values) for values in (theirs, ours)]
    why = f"{what} {shown[0]} ({baseline[0]}) vs {shown[1]} ({arm[0]}): {doubt}."
    return [Finding(grade, what, (baseline[0], arm[0]), why)]


def _steps(baseline: Side, arm: Side) -> list[Finding]:
    done = [sorted({run.step for run in side[2] if run.step and run.state == "finished"}) for side in (baseline, arm)]
    if not all(done) or done[0] == done[1]:
        return []
    shown = [" / ".join(f"{step:,}" for step in steps) for steps in done]
    why = f"{shown[0]} steps done ({baseline[0]}) vs {shown[1]} ({arm[0]}): one arm trained longer."
    return [Finding("breaks", "training length", (baseline[0], arm[0]), why)]


def _versions(baseline: Side, arm: Side) -> list[Finding]:
    seen: list[dict[str, set[str]]] = []
    for side in (baseline, arm):
        packages: dict[str, set[str]] = {}
        for run in side[2]:
            for package, version in (run.facts.get("versions") or {}).items():
                packages.setdefault(package, set()).add(str(version))
        seen.append(packages)
    changed = [p for p in sorted(set(seen[0]) & set(seen[1])) if seen[0][p] != seen[1][p]]
    if not changed:
        return []
    said = "; ".join(f"{p} {'/'.join(sorted(seen[0][p]))} vs {'/'.join(sorted(seen[1][p]))}" for p in changed[:4])
    why = f"package versions differ ({said}): results may differ in the last digits, speed in more."
    return [Finding("note", "versions", (baseline[0], arm[0]), why)]


def _seeds(baseline: Side, arm: Side) -> list[Finding]:
    theirs, ours = ({run.seed for run in side[2]} for side in (baseline, arm))
    if theirs == ours:
        return []
    lone = [
        f"{listed([str(s) for s in sorted(extra)])} only {name}"
        for extra, name in ((theirs - ours, baseline[0]), (ours - theirs, arm[0]))
        if extra
    ]
    why = f"seeds do not match ({'; '.join(lone)}): only common seeds see the same batches and are paired."
    return [Finding("note", "seeds", (baseline[0], arm[0]), why)]


def one_seed_finding(sides: Sequence[Side]) -> list[Finding]:
    """Said once for a whole table, when no arm has a second seed."""
    runs = [run for side in sides for run in side[2] if "metric" in run.values]
    if not runs or any(len({run.seed for run in side[2]}) > 1 for side in sides):
        return []
    presets = " ".join(dict.fromkeys(run.preset for run in runs if not run.imported))
    last = max(run.seed for run in runs)
    remedy = f"oelm run {presets} --seed {last + 1} --seed {last + 2}" if presets else None
    why = "one seed: how much another seed would change a gap is not known."
    return [Finding("note", "seeds", tuple(side[0] for side in sides), why, remedy)]


def _frozen(arm: Side) -> list[Finding]:
    moved = [run.id for run in arm[2] if run.facts.get("frozen_unchanged") is False]
    if not moved:
        return []
    why = f"frozen weights of {listed(moved)} changed during training: the method under test did not happen."
    return [Finding("breaks", "frozen weights", (arm[0],), why)]


def load_finding(sides: Sequence[Side]) -> list[Finding]:
    """Other work on the machine, from the state that attempts record before they start; said once for a whole table."""
    runs = [run for side in sides for run in side[2] if "metric" in run.values]
    busy = [run for run in runs if any(_was_busy(attempt) for attempt in run.attempts)]
    if not busy:
        return []
    arms = tuple(name for name, _, members in sides if any(run in busy for run in members))
    which = f"each of the {len(runs)} runs" if len(busy) == len(runs) > 1 else listed([run.id for run in busy])
    why = f"other work was on the machine when {which} started: times are in doubt."
    return [Finding("note", "other load", arms, why)]


def _was_busy(attempt: Mapping[str, Any]) -> bool:
    """Whether others used a good part of a core when the run began."""
    before = (attempt.get("machine") or {}).get("before") or {}
    others = [process for process in before.get("busy") or [] if isinstance(process, Mapping)]
    return sum(float(process.get("cores") or 0.0) for process in others) >= BUSY


def _order(baseline: Side, arm: Side) -> list[Finding]:
    """Arms that ran one after the other instead of in turns see different machine states."""
    starts = sorted((run.started, name) for name, _, runs in (baseline, arm) for run in runs if not run.imported)
    names = [name for _, name in starts]
    if len(baseline[2]) < 2 or len(arm[2]) < 2 or len(names) < 4:
        return []
    changes = sum(a != b for a, b in itertools.pairwise(names))
    if changes > 1:
        return []
    why = f"all runs of {names[0]} came before those of {names[-1]}: drift of the machine falls on one arm's times."
    return [Finding("note", "order of runs", (baseline[0], arm[0]), why)]


def _drift(side: Side) -> list[Finding]:
    name, _, runs = side
    times = [run.values["step_time"] for run in sorted(runs, key=lambda r: r.started) if "step_time" in run.values]
    change = trend(times)
    if change is None or abs(change) < 0.05:
        return []
    way = "slower" if change > 0 else "faster"
    why = f"each run of {name} was {way} than the one before ({relative(change)} in all): the machine drifted."
    return [Finding("note", "drift", (name,), why)]


def _best_of_many(baseline: Side, arm: Side) -> list[Finding]:
    counts = [int(max(_validations(side[2]), default=0)) for side in (baseline, arm)]
    if min(counts) < 2:
        return []
    if counts[0] != counts[1]:
        why = (
            f"the best of {counts[0]} validations ({baseline[0]}) is compared with the best of {counts[1]} ({arm[0]})."
        )
    else:
        why = f"the metric is the best of {counts[0]} validations on the very set it is reported on, so a little lucky."
    return [Finding("note", "best of many", (baseline[0], arm[0]), why)]


def _validations(runs: Iterable[Evidence]) -> list[float]:
    return [run.values["validations"] for run in runs if "validations" in run.values]
