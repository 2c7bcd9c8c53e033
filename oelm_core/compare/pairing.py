"""Groups runs that may be compared, makes arms of equal configurations, finds each arm's baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oelm_core.compare.evidence import Evidence
from oelm_core.compare.model_identity import model_labels, same_inputs
from oelm_core.errors import NotFound

GroupKey = tuple[str, str, str, str]


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm before anything is computed, one per seed."""

    name: str
    runs: tuple[Evidence, ...]

    @property
    def newest(self) -> Evidence:
        return max(self.runs, key=lambda e: e.created)

    @property
    def config(self) -> dict[str, Any]:
        return self.newest.config


def group_key(evidence: Evidence, model: str) -> GroupKey:
    """Family, data set, model, metric: across these nothing is compared."""
    config = evidence.config
    return (
        str(config.get("family") or "unknown"),
        str((config.get("data") or {}).get("name") or "unknown"),
        model,
        evidence.metric,
    )


def newest_per_seed(runs: Iterable[Evidence]) -> tuple[list[Evidence], list[str]]:
    """(one run per configuration, weights, data and seed; footnotes about the older ones)."""
    kept: dict[tuple[str, str, int], list[Evidence]] = {}
    notes = []
    for run in sorted(runs, key=lambda e: e.created, reverse=True):
        alike = kept.setdefault((run.preset.lower(), run.config_hash, run.seed), [])
        newer = next((other for other in alike if same_inputs(other, run)), None)
        if newer:
            notes.append(f"{run.id} is left out: {newer.id} is newer, with the same recipe and seed.")
        else:
            alike.append(run)
    return [run for alike in kept.values() for run in alike], notes


def split_groups(runs: Sequence[Evidence]) -> dict[GroupKey, list[Evidence]]:
    groups: dict[GroupKey, list[Evidence]] = {}
    labels = model_labels(runs)
    for run in runs:
        groups.setdefault(group_key(run, labels[run.id]), []).append(run)
    return groups


def arms_of(runs: Sequence[Evidence], order: Sequence[str] = ()) -> list[ArmRuns]:
    """Arms in the order of `order` (preset ids), then by age. Two configurations of one preset get telling names."""
    by_arm: list[list[Evidence]] = []
    for run in sorted(runs, key=lambda e: e.created):
        alike = (arm for arm in by_arm if (arm[0].preset, arm[0].config_hash) == (run.preset, run.config_hash))
        home = next((arm for arm in alike if all(same_inputs(run, other) for other in arm)), None)
        if home is None:
            by_arm.append(home := [])
        home.append(run)
    first_of: dict[str, Evidence] = {}
    arms: list[ArmRuns] = []
    for members in by_arm:
        name = members[0].preset
        first = first_of.setdefault(name, members[0])
        if first is not members[0]:
            other = "again" if same_inputs(first, members[0]) else "other data"
            name = f"{name} ({', '.join(config_differences(first.config, members[0].config)) or other})"
        taken = sum(arm.name == name or arm.name.startswith(f"{name} #") for arm in arms)
        arms.append(ArmRuns(f"{name} #{taken + 1}" if taken else name, tuple(members)))
    rank = {preset.lower(): place for place, preset in enumerate(order)}
    return sorted(arms, key=lambda arm: rank.get(arm.newest.preset.lower(), len(rank)))


def config_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """["train.lr=5e-05", ...]: what `other` sets that `one` does not, in the parts that decide a result."""
    found = []
    for part in ("model", "data", "method", "train"):
        a, b = one.get(part) or {}, other.get(part) or {}
        found += [
            f"{part}.{key}={b.get(key)}" for key in sorted({*a, *b}) if a.get(key) != b.get(key) and key != "name"
        ]
    return found


def find_baseline(arms: Sequence[ArmRuns], asked: str | None = None) -> ArmRuns | None:
    """The arm asked for (run id, its prefix, or preset); else the one others name; else the only untouched one."""
    if asked:
        wanted = asked.lower()
        for arm in arms:
            if arm.name.lower() == wanted or any(run.id.lower().startswith(wanted) for run in arm.runs):
                return arm
        return None
    named = [str(arm.config["baseline"]).lower() for arm in arms if arm.config.get("baseline")]
    candidates = [arm for arm in arms if arm.newest.preset.lower() in named]
    candidates = candidates or [arm for arm in arms if is_untouched(arm.config)]
    if not candidates:
        return None
    return max(candidates, key=lambda arm: (named.count(arm.newest.preset.lower()), len(arm.runs), -arms.index(arm)))


def own_baseline(arm: ArmRuns, arms: Sequence[ArmRuns], group_baseline: ArmRuns | None, asked: bool) -> ArmRuns | None:
    """The arm of the baseline preset that the arm names, nearest in recipe (both may carry --set); else the group's."""
    if asked:
        return group_baseline
    name = str(arm.config.get("baseline") or "").lower()
    named = [other for other in arms if other.newest.preset.lower() == name and other is not arm]
    if not named:
        return group_baseline
    return min(named, key=lambda other: len(config_differences(other.config, arm.config)))


def is_untouched(config: Mapping[str, Any]) -> bool:
    method = config.get("method") or {}
    if "init" not in method:  # imported: only its name tells
        return bool(method.get("name") == "baseline")
    return bool(method["init"] == "none" and not method.get("freeze") and not method.get("peer"))


def require_baseline(asked: str | None, groups: Iterable[Sequence[ArmRuns]]) -> None:
    """A baseline asked for by name must be in some group."""
    groups = list(groups)
    if asked and all(find_baseline(arms, asked) is None for arms in groups):
        known = ", ".join(arm.name for arms in groups for arm in arms)
        raise NotFound(f"--baseline {asked} is not among the compared runs; they are of: {known}.")
