"""Runs of one configuration become one arm: means over seeds, curves, what is missing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oelm_core.compare.comparison import Arm, Curve, Measure
from oelm_core.compare.evidence import Evidence, is_number

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


def measure(values: Sequence[float]) -> Measure | None:
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Measure(statistics.fmean(values), spread, len(values), tuple(values))


def build_arm(name: str, runs: Sequence[Evidence], catalogue: Catalogue, metric: str, *, is_baseline: bool) -> Arm:
    """`runs`: one per seed, all of one configuration."""
    runs = sorted(runs, key=lambda e: e.seed)
    newest = max(runs, key=lambda e: e.created)
    names = sorted({key for e in runs for key in e.values} - {"metric"})
    measures = {key: measure([e.values[key] for e in runs if key in e.values]) for key in names}
    preset = published_preset(catalogue, newest.preset)
    return Arm(
        id=name,
        preset=newest.preset,
        title=str(newest.config.get("title") or newest.preset),
        method=newest.method,
        config_hash=newest.config_hash,
        is_baseline=is_baseline,
        seeds=tuple(e.seed for e in runs),
        runs=tuple(e.id for e in runs),
        metric=measure([e.values["metric"] for e in runs if "metric" in e.values]),
        measures={key: found for key, found in measures.items() if found},
        published=published_of(preset, newest.config),
        target=newest.config.get("target"),
        curves=_curves(runs, metric),
        missing=tuple(line for e in runs for line in e.missing),
        config=newest.config,
        versions={k: str(v) for k, v in (newest.facts.get("versions") or {}).items()},
        git_commit=newest.facts.get("git_commit"),
        commands=tuple(_command(e) for e in runs if e.run.get("command")),
    )


def published_preset(catalogue: Catalogue, preset: str) -> Any:
    return next((e for name, e in catalogue.experiments.items() if name.lower() == preset.lower()), None)


def published_of(preset: Any, config: dict[str, Any]) -> dict[str, Any] | None:
    """The catalogue's word on a preset wins over the copy a run kept: figures may be corrected later."""
    if preset is not None:
        found = preset.published.model_dump(mode="json") if preset.published else None
    else:
        found = config.get("published")
    if not found:
        return None
    return {key: value for key, value in found.items() if value not in (None, [], {})}


def _curves(runs: Sequence[Evidence], metric: str) -> dict[str, tuple[Curve, ...]]:
    curves: dict[str, tuple[Curve, ...]] = {}
    for name, key, train in ((metric, metric, False), ("loss", "loss", False), ("train_loss", "loss", True)):
        found = []
        for e in runs:
            records = e.train if train else e.evals
            points = tuple((r["step"], float(r[key])) for r in records if is_number(r.get(key)))
            if points:
                found.append(Curve(e.seed, points))
        if found:
            curves[name] = tuple(found)
    return curves


def _command(evidence: Evidence) -> str:
    import shlex

    command = evidence.run["command"]
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command)
