"""The tables of a report as plain cells: each format only lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, Pair, SignificanceTest
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.formatting import (
    duration_words,
    gap,
    interval,
    metric_value,
    p_number,
    percent,
    relative,
    size,
    step_time,
    whole,
    with_spread,
)
from oelm_core.metric import metric_named
from oelm_core.registry import is_orthonormal
from oelm_core.report.translations import Translations

DASH = "-"
ARROWS = {"higher": "↑", "lower": "↓"}
MARKS = {"met": "✔", "missed": "✗", "unknown": "?", "no target": ""}
GRADE_MARKS = {"breaks": "✗", "confounds": "⚠", "note": "·"}
REFUTED, OTHER = "⚠", "≠"
"""Marks of a published figure: contradicted by what else was published; of another network or recipe than was run."""

Column = tuple[str, str, Sequence[str]]
"""Heading, l or r, cells."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class ReportTable:
    """Cells as text. `align` has one of l, r, c per column; `strong` numbers the rows to stress."""

    title: str
    columns: tuple[str, ...] = ()
    align: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    strong: tuple[int, ...] = ()


class References:
    """Sources of published figures, numbered in the order they are cited, and what is wrong with the figures."""

    def __init__(self) -> None:
        self._sources: list[str] = []
        self._doubts: list[str] = []

    def doubt(self, line: str) -> None:
        if line not in self._doubts:
            self._doubts.append(line)

    def cite(self, source: str) -> str:
        if source not in self._sources:
            self._sources.append(source)
        return f"[{self._sources.index(source) + 1}]"

    def lines(self) -> list[str]:
        cited = [f"[{number}] {source} (published by the author)" for number, source in enumerate(self._sources, 1)]
        return cited + self._doubts


def group_title(group: Group) -> str:
    return f"{group.dataset}, {group.model}"


def _table(
    title: str, translate: Translations, columns: Sequence[Column], *, keep: int = 1, strong: tuple[int, ...] = ()
) -> ReportTable:
    """A table by its columns; one that says nothing is dropped, but the first `keep` stay."""
    used = [
        column
        for place, column in enumerate(columns)
        if place < keep or any(cell not in ("", DASH) for cell in column[2])
    ]
    if len(used) < 2 or not used[0][2]:
        return ReportTable(title)
    headings, aligns, cells = zip(*used, strict=True)
    return ReportTable(title, tuple(map(translate, headings)), "".join(aligns), tuple(zip(*cells, strict=True)), strong)


def _cell(value: Value | None, show: Callable[[Value], str]) -> str:
    return DASH if value is None else show(value)


def _mean(arm: Arm, measure: str, show: Callable[[float], str]) -> str:
    return _cell(arm.mean(measure), show)


def _spread(arm: Arm, measure: str, show: Callable[[float], str]) -> str:
    return _cell(arm.measures.get(measure), lambda found: with_spread(found.mean, found.std, show))


def _show_metric(name: str) -> Callable[[float], str]:
    return lambda value: metric_value(name, value, unit=True)


def _share(value: float) -> str:
    return percent(value, 1)


def _headline(arm: Arm, group: Group) -> str:
    found = arm.metric
    return with_spread(found.mean, found.std, _show_metric(group.metric)) if found else "no result"


def _gap(group: Group, pair: Pair | None, references: References | None = None) -> str:
    """The gap, with ✗ when the audit says that the comparison is broken; why goes to the references."""
    if pair is None or pair.delta is None:
        return DASH
    text, broken = gap(group.metric, pair.delta), group.broken(pair.arm)
    if broken is None:
        return text
    if references:
        references.doubt(f"{GRADE_MARKS['breaks']} the gap of {pair.arm} does not stand: {broken.why}")
    return f"{GRADE_MARKS['breaks']} {text}"


def _published(
    arm: Arm, figure: str, show: Callable[[float], str], references: References | None, *, cite: bool = False
) -> str:
    """The figure with ⚠ when it is refuted and ≠ when it is of something else; why goes to the references."""
    published = arm.published or {}
    value = published.get(figure)
    if not isinstance(value, (int, float)):
        return DASH
    text = show(value)
    why, differs = (published.get("refuted") or {}).get(figure), published.get("differs")
    if references and why:
        references.doubt(f"{REFUTED} {arm.preset}, published {text}: {why}")
    if references and differs:
        references.doubt(f"{OTHER} published for another network or recipe than was run here; see the fairness audit.")
    source = f" {references.cite(str(published.get('source')))}" if references and cite else ""
    return "".join(f"{mark} " for mark, is_so in ((REFUTED, why), (OTHER, differs)) if is_so) + text + source


def _verdict(pair: Pair | None, translate: Translations) -> str:
    if pair is None or pair.verdict == "no target":
        return DASH
    return f"{MARKS[pair.verdict]} {translate(pair.verdict)}"


def results_table(group: Group, translate: Translations, references: References | None = None) -> ReportTable:
    """The experiment matrix: one row an arm, the baseline first."""
    arms, metric = group.arms, group.metric
    pairs = [group.pair(arm.id) for arm in arms]
    intervals = [pair.interval if pair else None for pair in pairs]
    return _table(
        group_title(group),
        translate,
        [
            ("Arm", "l", [arm.id for arm in arms]),
            ("Method", "l", [arm.method for arm in arms]),
            (f"{translate(metric)} {ARROWS[group.direction]}", "r", [_headline(arm, group) for arm in arms]),
            ("Gap", "r", [_gap(group, pair, references) for pair in pairs]),
            ("95 % interval", "r", [_cell(bounds, lambda v: interval(metric, v)) for bounds in intervals]),
            ("p", "r", [_cell(pair.p if pair else None, p_number) for pair in pairs]),
            ("Kept", "r", [_cell(pair.retention if pair else None, _share) for pair in pairs]),
            ("Target", "l", [_verdict(pair, translate) for pair in pairs]),
            ("Seeds", "r", [str(len(arm.seeds)) for arm in arms]),
            ("Published", "r", [_published(arm, metric, _show_metric(metric), references, cite=True) for arm in arms]),
        ],
        keep=3,
        strong=tuple(place for place, arm in enumerate(arms) if arm.id == group.baseline),
    )


def measures_table(group: Group, translate: Translations) -> ReportTable:
    def column(heading: str, measure: str, show: Callable[[float], str]) -> Column:
        return heading, "r", [_spread(arm, measure, show) for arm in group.arms]

    others = [("Loss", "loss"), ("F1", "f1"), ("matthews", "matthews"), ("mismatched_accuracy", "mismatched_accuracy")]
    return _table(
        translate("More measures"),
        translate,
        [
            ("Arm", "l", [arm.id for arm in group.arms]),
            column("Final", "final", _show_metric(group.metric)),
            *(column(heading, name, _show_metric(name)) for heading, name in others if name != group.metric),
            column("Steps to 80 %", "reached_80_step", whole),
            column("Time to 80 %", "reached_80_seconds", duration_words),
            column("Steps to 90 %", "reached_90_step", whole),
            column("Time to 90 %", "reached_90_seconds", duration_words),
        ],
    )


def parameters_table(group: Group, translate: Translations) -> ReportTable:
    def frozen_share(arm: Arm) -> float | None:
        frozen, total = arm.mean("frozen"), arm.mean("total")
        return frozen / total if frozen is not None and total else None

    arms = group.arms
    savings = [pair.parameter_saving if (pair := group.pair(arm.id)) else None for arm in arms]
    return _table(
        group_title(group),
        translate,
        [
            ("Arm", "l", [arm.id for arm in arms]),
            ("Total", "r", [_mean(arm, "total", whole) for arm in arms]),
            ("Trainable", "r", [_mean(arm, "trainable", whole) for arm in arms]),
            ("Frozen", "r", [_mean(arm, "frozen", whole) for arm in arms]),
            ("Frozen share", "r", [_cell(frozen_share(arm), _share) for arm in arms]),
            ("Saved", "r", [_cell(saving, _share) for saving in savings]),
            ("Checkpoint", "r", [_mean(arm, "checkpoint_bytes", size) for arm in arms]),
        ],
    )


def timing_table(group: Group, translate: Translations, references: References | None = None) -> ReportTable:
    arms = group.arms
    if not any("step_time" in arm.measures or "seconds" in arm.measures for arm in arms):
        return ReportTable(translate("Timing"))
    deltas = [pair.step_time_delta if (pair := group.pair(arm.id)) else None for arm in arms]
    return _table(
        group_title(group),
        translate,
        [
            ("Arm", "l", [arm.id for arm in arms]),
            ("Runs", "r", [str(len(arm.runs)) for arm in arms]),
            ("Per step", "r", [_spread(arm, "step_time", step_time) for arm in arms]),
            ("Gap", "r", [_cell(delta, relative) for delta in deltas]),
            ("Median", "r", [_mean(arm, "step_time_median", step_time) for arm in arms]),
            ("p95", "r", [_mean(arm, "step_time_p95", step_time) for arm in arms]),
            ("Tokens/s", "r", [_mean(arm, "tokens_per_s", whole) for arm in arms]),
            ("Total time", "r", [_mean(arm, "seconds", duration_words) for arm in arms]),
            ("Peak memory", "r", [_mean(arm, "memory", size) for arm in arms]),
            ("Published", "r", [_published(arm, "step_time", step_time, references) for arm in arms]),
        ],
    )


def curve_table(group: Group, translate: Translations, most_rows: int = 12) -> ReportTable:
    """Validation metric by step, mean over seeds; long curves are thinned evenly, the last step kept."""
    by_arm: list[dict[int, float]] = []
    for arm in group.arms:
        collected: dict[int, list[float]] = {}
        for curve in arm.curves.get(group.metric, ()):
            for step, value in curve.points:
                collected.setdefault(step, []).append(value)
        by_arm.append({step: sum(values) / len(values) for step, values in collected.items()})
    steps = sorted({step for arm in by_arm for step in arm})
    stride = -(-len(steps) // most_rows) if steps else 1
    chosen = [step for place, step in enumerate(reversed(steps)) if place % stride == 0][::-1]
    show = _show_metric(group.metric)
    columns: list[Column] = [("Step", "r", [whole(step) for step in chosen])]
    for arm, values in zip(group.arms, by_arm, strict=True):
        columns.append((arm.id, "r", [_cell(values.get(step), show) for step in chosen]))
    title = f"{translate('Validation curve')}: {group.dataset}, {translate(group.metric)}"
    return _table(title, translate, columns)


def across_table(comparison: Comparison, translate: Translations) -> ReportTable:
    """One line per data set and arm, then the mean per method where it is over several data sets of one metric."""
    title = translate("Across data sets")
    pairs = [(group, pair) for group in comparison.groups for pair in group.pairs if pair.delta is not None]
    if len({group.dataset for group, _ in pairs}) < 2:
        return ReportTable(title)
    rows = []
    for group, pair in pairs:
        arm, base = group.arm(pair.arm), group.arm(pair.baseline)
        numbers = (_headline(base, group), _headline(arm, group), _gap(group, pair), _cell(pair.retention, _share))
        rows.append((group.dataset, arm.method, *numbers))
    for method, kind in dict.fromkeys((group.arm(pair.arm).method, pair.kind) for group, pair in pairs):
        same = [p for g, p in pairs if g.arm(p.arm).method == method and p.kind == kind]
        if len(same) > 1:
            mean = sum(p.delta or 0.0 for p in same) / len(same)
            kept = [p.retention for p in same if p.retention is not None]
            kept_on_average = _share(sum(kept) / len(kept)) if kept else DASH
            rows.append((translate("Mean"), method, DASH, DASH, gap(same[0].metric, mean), kept_on_average))
    headings = ("Data set", "Method", "Baseline", "Arm", "Gap", "Kept")
    return ReportTable(title, tuple(map(translate, headings)), "llrrrr", tuple(rows))


def ablation_table(group: Group, translate: Translations) -> ReportTable:
    """Frozen arms by how Q/K start, against the first orthonormal one; empty unless some start otherwise."""
    title = f"{translate('Ablation')}: {group.dataset}"
    frozen = [(arm, settings) for arm in group.arms if (settings := settings_of(arm.config))["freeze"]]
    reference = next((arm for arm, settings in frozen if is_orthonormal(settings["init"])), None)
    if reference is None or all(is_orthonormal(settings["init"]) for _, settings in frozen):
        return ReportTable(title)
    rows = []
    for arm, settings in frozen:
        change = DASH
        if arm is not reference and arm.metric and reference.metric:
            change = gap(group.metric, metric_named(group.metric).gap(arm.metric.mean, reference.metric.mean))
        start = f"{settings['init']}, {'pretrained rows' if settings['qk_from'] == 'pretrained' else 'random draw'}"
        rows.append((arm.id, start, shown("qk_norm", settings["qk_norm"]), _headline(arm, group), change))
    headings = ("Arm", "Q/K start", "Row norm", group.metric, "Gap")
    return ReportTable(title, tuple(map(translate, headings)), "llrrr", tuple(rows))


def significance_table(comparison: Comparison, translate: Translations) -> ReportTable:
    rows = []
    for group in comparison.groups:
        for pair in group.pairs:
            rows += [_test_row(group, pair, test) for test in pair.tests]
            if not pair.tests:
                rows.append((pair.arm, DASH, DASH, DASH, DASH, pair.words))
    headings = ("Arm", "Test", "n", "95 % interval", "p", "In words")
    return ReportTable(translate("Significance"), tuple(map(translate, headings)), "llrrrl", tuple(rows))


def _test_row(group: Group, pair: Pair, test: SignificanceTest) -> tuple[str, ...]:
    measured = "step_time" if test.over == "timing" else group.metric
    seed = f", seed {test.seed}" if test.seed is not None and len(group.arm(pair.arm).seeds) > 1 else ""
    return (
        pair.arm,
        f"{test.name}{seed}",
        whole(test.n),
        _cell(test.interval, lambda bounds: interval(measured, bounds)),
        _cell(test.p, p_number),
        pair.words if test is pair.tests[0] else test.words,
    )


def fairness_table(
    findings: Sequence[Finding], translate: Translations, title: str, *, with_source: bool = False
) -> ReportTable:
    columns: list[Column] = [
        ("Grade", "l", [f"{GRADE_MARKS[f.grade]} {translate(f.grade)}" for f in findings]),
        ("What", "l", [f.what for f in findings]),
        ("Arms", "l", [", ".join(f.arms) for f in findings]),
        ("Why", "l", [f.why for f in findings]),
        ("Settle with", "l", [f.settle_with or DASH for f in findings]),
    ]
    if with_source:
        columns.append(("Source", "l", [f.source or DASH for f in findings]))
    return _table(title, translate, columns, keep=4)


def recipe_table(group: Group, translate: Translations) -> ReportTable:
    """Only the settings in which the arms differ."""
    every = [settings_of(arm.config) for arm in group.arms]
    names = [name for name in LABELS if any(s.get(name) != every[0].get(name) for s in every)]
    columns: list[Column] = [("Setting", "l", [translate(LABELS[name]) for name in names])]
    for arm, settings in zip(group.arms, every, strict=True):
        columns.append((arm.id, "l", [shown(name, settings.get(name)) for name in names]))
    return _table(group_title(group), translate, columns, keep=len(columns))
