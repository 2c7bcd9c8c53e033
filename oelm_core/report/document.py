"""A report before it has a format: sections with text, tables, findings, curves and commands."""

from __future__ import annotations

from dataclasses import dataclass, field

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group
from oelm_core.compare.settings import settings_of, shown
from oelm_core.metric import metric_named
from oelm_core.report.headings import Words
from oelm_core.report.tables import (
    References,
    Table,
    ablation_table,
    across_table,
    curve_table,
    fairness_table,
    measures_table,
    parameters_table,
    recipe_table,
    results_table,
    significance_table,
    timing_table,
)


@dataclass(frozen=True)
class Chart:
    """One plot: lines of (label, points), with what the axes show."""

    title: str
    x: str
    y: str
    lines: tuple[tuple[str, tuple[tuple[int, float], ...]], ...]
    logarithmic: bool = False
    share: bool = False
    """The values are fractions, shown in percent."""


@dataclass(frozen=True)
class Section:
    heading: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    charts: tuple[Chart, ...] = ()
    code: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    title: str
    lang: str
    sections: tuple[Section, ...] = field(default=())


def build_document(comparison: Comparison, lang: str = "en") -> Document:
    """Question, recipe, results, fairness, curves, significance, how to reproduce; only what there is."""
    words, references = Words(lang), References()
    study = comparison.study
    sections: list[Section] = []
    if study:
        sections.append(Section(words("Question"), (study.question,)))
    sections += [_recipe(comparison, words), _results(comparison, words, references), _fairness(comparison, words)]
    sections += _timing_and_parameters(comparison, words, references)
    sections.append(_curves(comparison, words))
    significance = significance_table(comparison, words)
    if significance.rows:
        sections.append(Section(words("Significance"), tables=(significance,)))
    if comparison.published:
        table = fairness_table(comparison.published, words, with_source=True)
        sections.append(Section(words("Published figures"), tables=(table,), findings=comparison.published))
    sections.append(_reproduce(comparison, words))
    notes = list(comparison.footnotes) + references.lines()
    if notes:
        sections.append(Section(words("Footnotes"), items=tuple(notes)))
    title = study.title if study else words("Comparison")
    return Document(title, lang, tuple(section for section in sections if not _is_empty(section)))


def _is_empty(section: Section) -> bool:
    full = (section.paragraphs, section.findings, section.charts, section.code, section.items)
    return not any(full) and not any(table.rows for table in section.tables)


def name_of(group: Group) -> str:
    return f"{group.dataset}, {group.model}"


def _recipe(comparison: Comparison, words: Words) -> Section:
    tables = tuple(recipe_table(group, words) for group in comparison.groups)
    texts = []
    for group in comparison.groups:
        if not group.same or not group.arms:
            continue
        values = settings_of(group.arms[0].config)
        facts = [
            f"{words(label)}: {shown(key, values[key])}"
            for key, label in (
                ("duration", "training length"),
                ("effective_batch", "effective batch"),
                ("max_length", "sequence length"),
                ("schedule", "schedule"),
                ("precision", "precision"),
            )
            if label in group.same
        ]
        texts.append(f"{name_of(group)}: {'; '.join(facts)}.")
    return Section(words("Recipe"), tuple(texts), tables)


def _results(comparison: Comparison, words: Words, references: References) -> Section:
    tables: list[Table] = []
    for group in comparison.groups:
        tables.append(results_table(group, words, references))
        tables.append(measures_table(group, words))
        tables.append(ablation_table(group, words))
    tables.append(across_table(comparison, words))
    return Section(words("Results"), tables=tuple(table for table in tables if table.rows))


def _timing_and_parameters(comparison: Comparison, words: Words, references: References) -> list[Section]:
    parameters = tuple(parameters_table(group, words) for group in comparison.groups)
    timing = tuple(timing_table(group, words, references) for group in comparison.groups)
    return [Section(words("Parameters"), tables=parameters), Section(words("Timing"), tables=timing)]


def _curves(comparison: Comparison, words: Words) -> Section:
    charts, tables = [], []
    for group in comparison.groups:
        for key, where in ((group.metric, "validation"), ("loss", "validation"), ("train_loss", "training")):
            lines = tuple(
                (_line_name(arm, curve.seed), curve.points) for arm in group.arms for curve in arm.curves.get(key, ())
            )
            if lines and not (key == "loss" and group.metric == "loss"):
                title = f"{name_of(group)}: {words(where)}, {words('loss' if key == 'train_loss' else key)}"
                y = words("loss" if "loss" in key else key)
                charts.append(Chart(title, words("Step"), y, lines, key == "perplexity", metric_named(key).is_share))
        tables.append(curve_table(group, words))
    return Section(words("Curves"), tables=tuple(table for table in tables if table.rows), charts=tuple(charts))


def _line_name(arm: Arm, seed: int) -> str:
    return arm.id if len(arm.seeds) == 1 else f"{arm.id} s{seed}"


def _fairness(comparison: Comparison, words: Words) -> Section:
    tables, texts = [], []
    for group in comparison.groups:
        if group.same:
            texts.append(f"{name_of(group)}. {words('Same in all arms')}: {', '.join(map(words, group.same))}.")
        if group.audit:
            tables.append(fairness_table(group.audit, words, title=name_of(group)))
        elif group.pairs:
            texts.append(f"{name_of(group)}: {words('No differences found.')}")
    findings = tuple(finding for group in comparison.groups for finding in group.audit)
    return Section(words("Fairness"), tuple(texts), tuple(tables), findings)


def _reproduce(comparison: Comparison, words: Words) -> Section:
    arms = [arm for group in comparison.groups for arm in group.arms]
    study = comparison.study
    commands: list[str] = []
    if study:
        seeds = sorted({seed for arm in arms for seed in arm.seeds})
        commands.append(" ".join([f"oelm study {study.id}", *(f"--seed {seed}" for seed in seeds)]))
        commands.append(f"oelm compare {study.id}")
    else:
        commands += [command for arm in arms for command in arm.commands]
    commits = sorted({arm.git_commit for arm in arms if arm.git_commit})
    versions = sorted({f"{package} {version}" for arm in arms for package, version in arm.versions.items()})
    facts = []
    if commits:
        facts.append(f"{words('Code commit')}: {', '.join(commits)}")
    if versions:
        facts.append(f"{words('Versions')}: {', '.join(versions)}")
    facts.append(f"{words('Runs')}: {', '.join(run for arm in arms for run in arm.runs)}")
    return Section(words("How to reproduce"), code=tuple(dict.fromkeys(commands)), items=tuple(facts))
