"""A report before it has a format: sections of text, tables, curves and commands; rows and data for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oelm_core.compare.comparison import GRADES, Arm, BandPoint, Comparison, Finding, Group
from oelm_core.compare.settings import LABELS, shown
from oelm_core.config.seeds import seed_ranges
from oelm_core.formatting import day
from oelm_core.metric import further_scores
from oelm_core.report import gaps, tables
from oelm_core.report.answer import answers
from oelm_core.report.attention import HeadPanels, attention_table, head_panels
from oelm_core.report.cells import PairLine, References, ReportTable, group_title
from oelm_core.report.translations import Translations

Row = Mapping[str, str | int | float | None]
MEASURES = (
    *("final", "loss", *further_scores(), "best_step"),
    *("total", "trainable", "frozen", "step_time", "step_time_median", "step_time_p95"),
    *("tokens_per_s", "seconds", "training_seconds", "validation_seconds", "memory", "checkpoint_bytes"),
)
"""Those with a column of their own in the rows."""
MOST_ARMS = 6
"""Named under the title; the others are counted."""


class ChartLine(NamedTuple):
    """An arm's curve."""

    label: str
    points: tuple[BandPoint, ...]
    seeds: int = 1
    """What mean, least and greatest are over."""


@dataclass(frozen=True)
class ReportChart:
    """One plot of a metric by step."""

    title: str
    x: str
    metric: str
    lines: tuple[ChartLine, ...]
    y: str = ""
    logarithmic: bool = False


@dataclass(frozen=True)
class ReportSection:
    heading: str
    paragraphs: tuple[str, ...] = ()
    pairs: tuple[PairLine, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    findings: tuple[Finding, ...] = ()
    charts: tuple[ReportChart, ...] = ()
    heads: tuple[HeadPanels, ...] = ()
    code: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    title: str
    lang: str
    sections: tuple[ReportSection, ...]
    """For readers."""
    rows: Sequence[Row]
    """For spreadsheets: numbers in plain units, every row with the same columns."""
    data: Callable[[], Mapping[str, object]]
    """For programs: everything there is, put together when it is asked for."""
    about: str = ""
    """Under the title: arms, seeds and date."""


def comparison_report(comparison: Comparison, lang: str = "en") -> Report:
    """The answer and what puts it in doubt come first, then the numbers, then what they rest on; only what there is."""
    translate, references = Translations(lang), References()
    study, groups = comparison.study, comparison.groups
    published = translate("Published figures")
    numbers = tuple(tables.curve(group, translate) for group in groups)
    sections = [
        ReportSection(
            translate("Verdict"),
            (study.question,) if study else (),
            pairs=tuple(line for group in groups for line in answers(group, translate)),
            charts=_charts(groups, translate, headline=True),
        ),
        _fairness(comparison, translate),
        _results(comparison, translate, references),
        _tuning(comparison, translate),
        _recipe(comparison, translate),
        ReportSection(translate("Parameters"), tables=tuple(tables.parameters(group, translate) for group in groups)),
        ReportSection(
            translate("Timing"), tables=tuple(tables.timing(group, translate, references) for group in groups)
        ),
        ReportSection(translate("Curves"), tables=numbers, charts=_charts(groups, translate, headline=False)),
        ReportSection(
            translate("Attention"),
            tables=tuple(attention_table(group, translate) for group in groups),
            heads=tuple(panels for group in groups if (panels := head_panels(group))),
        ),
        ReportSection(
            translate("The method (over seeds)"), tables=tuple(gaps.method_tests(group, translate) for group in groups)
        ),
        ReportSection(
            translate("Two trained models (says nothing about the method)"),
            tables=tuple(gaps.model_tests(group, translate) for group in groups),
        ),
        _findings(published, published, comparison.published, translate),
        _reproduce(comparison, translate),
        ReportSection(translate("Footnotes"), items=(*comparison.footnotes, *references.lines())),
    ]
    return Report(
        study.title if study else translate("Comparison"),
        lang,
        tuple(section for section in sections if not _is_empty(section)),
        [_row(group, arm) for group in groups for arm in group.arms],
        comparison.to_json,
        _about(comparison, translate),
    )


def _about(comparison: Comparison, translate: Translations) -> str:
    """Arms, seeds, and the day of the newest run."""
    arms = [arm for group in comparison.groups for arm in group.arms]
    names = [arm.id for arm in arms]
    more = [translate("{} more").format(len(names) - MOST_ARMS)] if len(names) > MOST_ARMS + 1 else []
    parts = [", ".join([*names[:MOST_ARMS], *more] if more else names)]
    seeds = sorted({seed for arm in arms for seed in arm.seeds})
    if seeds:
        word = translate("seed" if len(seeds) == 1 else "seeds")
        parts.append(f"{word} {', '.join(seed_ranges(seeds))}")
    newest = max((arm.created for arm in arms if arm.created is not None), default=None)
    return " · ".join([*parts, *([day(newest)] if newest is not None else [])])


def audit_report(findings: Sequence[Finding], lang: str = "en") -> Report:
    """The audit of published figures by itself, the gravest first."""
    translate = Translations(lang)
    title = translate("Published figures")
    by_grade = [(grade, [finding for finding in findings if finding.grade == grade]) for grade in GRADES]
    sections = [_findings(translate(grade), title, group, translate) for grade, group in by_grade if group]
    data = [finding.to_json() for finding in findings]
    rows = [{**finding, "arms": " ".join(finding["arms"])} for finding in data]
    return Report(title, lang, tuple(sections), rows, lambda: {"audit": data})


def _findings(heading: str, title: str, findings: Sequence[Finding], translate: Translations) -> ReportSection:
    table = tables.fairness(findings, translate, title, with_source=True)
    return ReportSection(heading, tables=(table,), findings=tuple(findings))


def _is_empty(section: ReportSection) -> bool:
    drawn = (section.charts, section.heads)
    full = (section.paragraphs, section.pairs, section.findings, *drawn, section.code, section.items)
    return not any(full) and not any(table.rows for table in section.tables)


def _recipe(comparison: Comparison, translate: Translations) -> ReportSection:
    texts = []
    for group in comparison.groups:
        if not group.same or not group.arms:
            continue
        values = group.arms[0].settings
        facts = [
            f"{translate(LABELS[key])}: {shown(key, values[key])}"
            for key in ("duration", "effective_batch", "max_length", "schedule", "precision")
            if LABELS[key] in group.same
        ]
        texts.append(f"{group_title(group)}: {'; '.join(facts)}.")
    recipes = tuple(tables.recipe(group, translate) for group in comparison.groups)
    return ReportSection(translate("Recipe"), tuple(texts), tables=recipes)


def _results(comparison: Comparison, translate: Translations, references: References) -> ReportSection:
    found: list[ReportTable] = []
    planned = comparison.study.seeds if comparison.study else ()
    for group in comparison.groups:
        found += [gaps.results(group, translate, references, planned), gaps.contrasts(group, translate)]
        found += [tables.ablation(group, translate), tables.measures(group, translate)]
    found.append(gaps.across(comparison, translate))
    return ReportSection(translate("Results"), tables=tuple(found))


def _tuning(comparison: Comparison, translate: Translations) -> ReportSection:
    found = [show(group, translate) for group in comparison.groups for show in (tables.tuned, tables.best_after_draws)]
    return ReportSection(translate("Tuning"), tables=tuple(found))


def _charts(groups: Sequence[Group], translate: Translations, *, headline: bool) -> tuple[ReportChart, ...]:
    """The headline metric of each group, or its other curves."""
    charts = []
    for group in groups:
        others = (("loss", "validation"), ("train_loss", "training"))
        for key, where in ((group.metric, "validation"),) if headline else others:
            if not headline and key == group.metric:
                continue
            lines = tuple(line for arm in group.arms for line in _lines(arm, key))
            if lines:
                y = translate(key.removeprefix("train_"))
                title = f"{group_title(group)}: {translate(where)}, {y}"
                charts.append(ReportChart(title, translate("Step"), key, lines, y, logarithmic=key == "perplexity"))
    return tuple(charts)


def _lines(arm: Arm, key: str) -> list[ChartLine]:
    """The arm's mean and band; each seed by itself where they have no step in common."""
    curves = arm.curves.get(key, ())
    band = arm.band(key)
    if band:
        return [ChartLine(arm.id, band, len(curves))]
    apart = [(curve.seed, [BandPoint(step, y, y, y) for step, y in curve.points]) for curve in curves]
    return [ChartLine(f"{arm.id} s{seed}", tuple(points)) for seed, points in apart]


def _fairness(comparison: Comparison, translate: Translations) -> ReportSection:
    audits, clean, same = [], [], []
    for group in comparison.groups:
        title = group_title(group)
        if group.same:
            same.append(f"{title}. {translate('Same in all arms')}: {', '.join(map(translate, group.same))}.")
        if group.audit:
            audits.append(tables.fairness(group.audit, translate, title))
        elif group.pairs:
            clean.append(f"{title}: {translate('No differences found.')}")
    every = [finding for group in comparison.groups for finding in group.audit]
    gravest = sorted(every, key=lambda finding: GRADES.index(finding.grade))
    return ReportSection(
        translate("Fairness"), tuple(clean), tables=tuple(audits), findings=tuple(gravest), items=tuple(same)
    )


def _reproduce(comparison: Comparison, translate: Translations) -> ReportSection:
    arms = [arm for group in comparison.groups for arm in group.arms]
    study = comparison.study
    commands: list[str] = []
    tuned = [arm for arm in arms if arm.tuning]
    if study:
        seeds = sorted({seed for arm in arms for seed in arm.seeds})
        if len(tuned) < len(arms):
            commands.append(" ".join([f"oelm study {study.id}", *(f"--seed {seed}" for seed in seeds)]))
        commands += [command for arm in tuned for command in arm.commands]
        commands.append(f"oelm compare {study.id}")
    else:
        commands += [command for arm in arms for command in arm.commands]
    commits = sorted({arm.git_commit for arm in arms if arm.git_commit})
    versions = sorted({f"{package} {version}" for arm in arms for package, version in arm.versions.items()})
    facts = []
    if commits:
        facts.append(f"{translate('Code commit')}: {', '.join(commits)}")
    if versions:
        facts.append(f"{translate('Versions')}: {', '.join(versions)}")
    facts.append(f"{translate('Runs')}: {', '.join(run for arm in arms for run in arm.runs)}")
    return ReportSection(translate("How to reproduce"), code=tuple(dict.fromkeys(commands)), items=tuple(facts))


def _row(group: Group, arm: Arm) -> Row:
    pair = group.pair(arm.id)
    interval = pair.interval if pair and pair.interval else (None, None)
    published = arm.published or {}
    grades = [finding.grade for finding in group.findings_about(arm.id)]
    return {
        "family": group.family,
        "dataset": group.dataset,
        "model": group.model,
        "arm": arm.id,
        "preset": arm.preset,
        "method": arm.method,
        "baseline": pair.baseline if pair else None,
        "seeds": " ".join(map(str, arm.seeds)),
        "baseline_seeds": pair.seeds.baseline if pair else None,
        "shared_seeds": pair.seeds.shared if pair else None,
        "diverged": arm.diverged,
        "failed": arm.failed,
        "metric": group.metric,
        "direction": group.direction,
        "basis": group.basis,
        "mean": arm.metric.mean if arm.metric else None,
        "std": arm.metric.std if arm.metric else None,
        "n": arm.metric.n if arm.metric else 0,
        "delta": pair.delta if pair else None,
        "delta_kind": pair.kind if pair else None,
        "interval_low": interval[0],
        "interval_high": interval[1],
        "p": pair.p if pair else None,
        "p_adjusted": pair.p_adjusted if pair else None,
        "family_size": group.family_size,
        "retention": pair.retention if pair else None,
        "verdict": pair.verdict if pair else None,
        "seeds_needed": pair.seeds_needed if pair else None,
        "parameter_saving": pair.parameter_saving if pair else None,
        **{name: arm.mean(name) for name in MEASURES},
        "published": published.get(group.metric),
        "published_source": published.get("source"),
        "breaks": grades.count("breaks"),
        "confounds": grades.count("confounds"),
        "runs": " ".join(arm.runs),
    }
