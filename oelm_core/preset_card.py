"""A preset on a card: its question, recipe, parameters, published figures with their audit, our runs, cost, command.

What is slow (parameters, audit) is handed in by who has it; the command line and the screen show the same card.
"""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oelm_core import formatting
from oelm_core.changes import as_text, changed_settings, differences, settings_in
from oelm_core.data.sets import set_title
from oelm_core.metric import METRICS, metric_named
from oelm_core.registry import method_name

if TYPE_CHECKING:
    from oelm_core.compare.comparison import Finding
    from oelm_core.config import Experiment, Study
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.estimate import Cost
    from oelm_core.method.facts import Count
    from oelm_core.published.figures import Figure
    from oelm_core.runs.store import Run

ADAM = 8
"""Bytes of Adam's two moments for a trained parameter."""


@dataclass(frozen=True)
class CardRow:
    name: str
    """"" for a paragraph."""
    value: str
    extra: str = ""
    """Said more quietly: a source, what a figure is known by."""
    tone: str = ""
    """breaks, confounds or note for a finding, command, faint, or nothing."""


@dataclass(frozen=True)
class CardSection:
    title: str
    rows: tuple[CardRow, ...]


@dataclass(frozen=True)
class PresetCard:
    id: str
    title: str
    sections: tuple[CardSection, ...]


FINDINGS = "docs/findings.md"
"""Where the evidence for what we recommend is."""


@dataclass(frozen=True)
class PresetFacts:
    """What is found out by counting and by auditing; None while it is not known."""

    count: Count | None = None
    findings: Sequence[Finding] | None = None
    """About this preset."""


def experiment_card(
    experiment: Experiment,
    catalogue: Catalogue,
    runs: Sequence[Run],
    cost: Cost | None,
    facts: PresetFacts,
    command: Sequence[str] = (),
) -> PresetCard:
    """`runs`: all of the lab, newest first; the configurations of those of this preset are read."""
    from oelm_core.config import as_dict

    mine = as_dict(experiment)
    baseline = next((one for one in catalogue.experiments.values() if one.id == experiment.baseline), None)
    sections = [
        CardSection("", _question(experiment, baseline)),
        CardSection("Recipe", _recipe(experiment)),
    ]
    if baseline is not None:
        other = as_dict(baseline)
        rows = [
            CardRow(key, as_text(here), f"{baseline.id}: {as_text(there)}")
            for key, (here, there) in differences(mine, other).items()
            if key != "method.name"
        ]
        sections.append(CardSection(f"What it changes from {baseline.id}", tuple(rows)))
    sections += [
        CardSection("Parameters", _parameters(experiment, facts)),
        CardSection("Published", _published(experiment)),
        CardSection("What the audit says of it", _audit(experiment, facts)),
        CardSection("Our runs", our_runs(experiment, runs)),
        CardSection("Cost here", _cost(experiment, cost)),
        CardSection("Start it", (CardRow("", shlex.join(command or ("oelm", "run", experiment.id)), tone="command"),)),
        CardSection("Every setting, as --set takes it", _settings(mine)),
    ]
    return PresetCard(experiment.id, experiment.title, tuple(one for one in sections if one.rows))


def study_card(study: Study, catalogue: Catalogue, runs: Sequence[Run], command: Sequence[str] = ()) -> PresetCard:
    arms = [catalogue.experiment(name) for name in study.arms]
    rows = []
    for arm in arms:
        means = our_runs(arm, runs)
        words = [method_name(arm.method.name), f"lr {as_text(arm.train.lr)}"]
        rows.append(CardRow(arm.id, ", ".join(words), f"ours: {means[0].value}" if means else "not run here"))
    seeds = CardRow("seeds", ", ".join(map(str, study.seeds)))
    sections = (
        CardSection("", (CardRow("", study.question),)),
        CardSection("Arms", (*rows, seeds)),
        CardSection("Start it", (CardRow("", shlex.join(command or ("oelm", "study", study.id)), tone="command"),)),
    )
    return PresetCard(study.id, study.title, sections)


def _question(experiment: Experiment, baseline: Experiment | None) -> tuple[CardRow, ...]:
    rows = [CardRow("", experiment.about)] if experiment.about else []
    if experiment.finding:
        rows.append(CardRow("recommended", experiment.finding, FINDINGS))
    if baseline is not None:
        rows.append(CardRow("against", baseline.id, baseline.title))
    elif experiment.baseline is None:
        rows.append(CardRow("against", "nothing: others are compared with it"))
    if (target := experiment.target) is not None:
        for word, bound in (("above", target.above), ("at least", target.at_least), ("at most", target.at_most)):
            if bound is not None:
                is_factor = target.of == "baseline"
                value = f"{bound:g} x the baseline's" if is_factor else formatting.metric_value(target.metric, bound)
                rows.append(CardRow("target", f"{target.metric} {word} {value}"))
    return tuple(rows)


def _recipe(experiment: Experiment) -> tuple[CardRow, ...]:
    train, data, method, model = experiment.train, experiment.data, experiment.method, experiment.model
    frozen = ", ".join(method.freeze) or "nothing"
    how = [f"init {method.init}"] + ([f"from {method.source}"] if method.init != "none" else [])
    batch = f"{train.batch_size}" + (f" x {train.accumulate}" if train.accumulate > 1 else "")
    length = f"{train.max_steps:,} steps" if train.max_steps else f"{train.epochs:g} epochs"
    parts = [f"lr {as_text(train.lr)}", train.schedule, f"batch {batch}", f"length {data.max_length}", length]
    shape = model.shape
    sizes = f"{shape.layers} layers, width {shape.d_model}, {shape.heads} heads" if shape else ""
    return (
        CardRow("method", ", ".join([method_name(method.name), *how, f"frozen: {frozen}"])),
        CardRow("model", f"{model.name}, {experiment.start}", sizes),
        CardRow("data", f"{set_title(data.name)}, judged by {experiment.metric}"),
        CardRow("training", ", ".join([*parts, train.precision])),
    )


def _parameters(experiment: Experiment, facts: PresetFacts) -> tuple[CardRow, ...]:
    count = facts.count
    if count is None or not count.total:
        words = "being counted" if count is None else "cannot be counted here: a library or a file is missing"
        return (CardRow("total", words, tone="faint"),)
    rows = [
        CardRow("total", f"{count.total:,}"),
        CardRow("trainable", f"{count.trainable:,}"),
        CardRow("frozen", f"{count.frozen:,}", f"{count.frozen / count.total * 100:.1f} %"),
    ]
    if experiment.method.unfreeze is None:
        size = formatting.size(4 * count.total + ADAM * count.trainable)
        rows.append(CardRow("checkpoint", size, "weights and Adam's moments in fp32"))
    return tuple(rows)


def _published(experiment: Experiment) -> tuple[CardRow, ...]:
    if experiment.published is None:
        return ()
    from oelm_core.published.figures import figures_of

    figures = [one for one in figures_of(experiment) if not one.arms or one.arms[0].lower() == experiment.id.lower()]
    rows = [CardRow(_CLAIMS.get(one.what, one.what.replace("_", " ")), _figure(one), one.source) for one in figures]
    if experiment.published.as_run_note:
        rows.append(CardRow("as run", experiment.published.as_run_note))
    return tuple(rows)


def _audit(experiment: Experiment, facts: PresetFacts) -> tuple[CardRow, ...]:
    """What else was published, and arithmetic, say against the figures; worst first."""
    if experiment.published is None:
        return ()
    if facts.findings is None:
        return (CardRow("", "being checked", tone="faint"),)
    if not facts.findings:
        return (CardRow("", "nothing found against these figures"),)
    return tuple(
        CardRow(
            one.grade,
            one.sentence.removeprefix(f"{experiment.id}: "),
            f"Settle it with: {one.settle_with}." if one.settle_with else "",
            one.grade,
        )
        for one in facts.findings
    )


def _figure(one: Figure) -> str:
    name = one.what.removeprefix("best_").removeprefix("baseline_").removeprefix("target_")
    projected = " (projected)" if one.projected else ""
    return f"{_number(name, one.value)}{projected}"


def _number(name: str, value: float) -> str:
    if name in METRICS:
        return formatting.metric_value(name, value, unit=True)
    if name in ("delta", "mean_delta"):
        return formatting.points(value)
    if name == "relative_delta":
        return formatting.relative(value)
    if name in ("seconds", "training_seconds", "seconds_to_80", "seconds_to_90"):
        return formatting.duration_words(value)
    if name in ("clock_start", "clock_end"):
        return f"{int(value) // 3600:02d}:{int(value) % 3600 // 60:02d}:{int(value) % 60:02d}"
    if name in ("step_time", "step_time_run"):
        return formatting.step_time(value)
    if name.endswith(("share", "retention")) or name in ("speedup", "step_time_spread"):
        return formatting.percent(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


_CLAIMS = {
    "seconds": "wall clock",
    "training_seconds": "training alone",
    "step_time": "a step",
    "step_time_run": "a timing run",
    "it_per_s": "steps a second",
    "total": "parameters",
    "checkpoint_mib": "checkpoint, MiB",
    "relative_delta": "difference",
    "delta": "difference",
    "speedup": "time saved",
}


def our_runs(experiment: Experiment, runs: Sequence[Run]) -> tuple[CardRow, ...]:
    """Means over seeds, the newest run of each: as the preset has it first, then each changed recipe; and the rest."""
    from oelm_core.config import as_dict, config_hash

    name = experiment.id.lower()
    ours = [run for run in runs if run.preset.lower() == name and not run.is_draw]
    if not ours:
        return ()
    preset = as_dict(experiment)
    own = config_hash(preset)
    groups: dict[str, dict[int, Run]] = {own: {}}
    for run in ours:
        if run.state == "finished" and run.metric_value is not None:
            groups.setdefault(run.config_hash, {}).setdefault(run.seed, run)
    rows = []
    for recipe, by_seed in groups.items():
        if not by_seed:
            continue
        first = next(iter(by_seed.values()))
        changed = "" if recipe == own else ", ".join(changed_settings(first.config, preset)) or "another recipe"
        values = [run.metric_value for run in by_seed.values() if run.metric_value is not None]
        mean, extra = statistics.fmean(values), f"seed{'s' * (len(values) > 1)} {_seeds(sorted(by_seed))}"
        spread = statistics.stdev(values) if len(values) > 1 else None
        text = formatting.with_spread(mean, spread, partial(formatting.metric_value, first.metric_name, unit=True))
        published = getattr(experiment.published, first.metric_name, None) if experiment.published else None
        if published is not None and not changed:
            gap = metric_named(first.metric_name).gap(mean, published)
            extra += f"; {formatting.gap(first.metric_name, gap)} from published"
        rows.append(CardRow(changed or first.metric_name, text, extra))
    others = Counter(run.state for run in ours if run.state != "finished")
    if others:
        rows.append(CardRow("also", ", ".join(f"{count} {state}" for state, count in others.items())))
    return tuple(rows)


def _seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds)) if len(seeds) <= 8 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)})"


def _cost(experiment: Experiment, cost: Cost | None) -> tuple[CardRow, ...]:
    if cost is None:
        return (CardRow("time", "looking at earlier runs", tone="faint"),)
    steps = f"{cost.steps:,}" if cost.steps else ""
    rows = [CardRow("steps", steps or cost.steps_from, cost.steps_from if steps else ""), _time(experiment, cost)]
    if cost.memory:
        rows.append(CardRow("memory", formatting.size_short(cost.memory), cost.memory_from))
    return tuple(rows)


def _time(experiment: Experiment, cost: Cost) -> CardRow:
    """By our runs; else what the author reported, which another machine took."""
    if cost.seconds is not None:
        return CardRow("time", f"{cost.seconds_sign} {formatting.duration(cost.seconds)}".strip(), cost.seconds_from)
    published = experiment.published
    if published is not None and published.seconds:
        words = "published, on the author's machine; no run here to judge by"
        return CardRow("time", formatting.duration(published.seconds), words)
    if published is not None and published.step_time and cost.steps:
        words = f"by the published {formatting.step_time(published.step_time)} a step, on the author's machine"
        return CardRow("time", formatting.duration(published.step_time * cost.steps), words)
    return CardRow("time", cost.seconds_from)


def _settings(config: dict[str, object]) -> tuple[CardRow, ...]:
    return tuple(
        CardRow(key, as_text(value)) for key, value in settings_in(config).items() if value not in (None, [], {})
    )
