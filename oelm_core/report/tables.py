"""The tables of a report as plain cells: each format only lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from oelm_core.compare.comparison import Arm, ArmTuning, Comparison, Finding, Group, Pair, Reached, SignificanceTest
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
from oelm_core.metric import further_scores, metric_named
from oelm_core.registry import is_orthonormal
from oelm_core.report.translations import Translations

DASH = "-"
MOST_STEPS = 12
ARROWS = {"higher": "↑", "lower": "↓"}
MARKS = {"met": "✔", "missed": "✗", "undecided": "?"}
GRADE_MARKS = {"breaks": "✗", "confounds": "⚠", "note": "·"}
REFUTED, OTHER = "⚠", "≠"
"""Marks of a published figure: contradicted by what else was published; of another network or recipe than was run."""

Value = TypeVar("Value")
Item = TypeVar("Item")
"""What a row is about: an arm, a finding, a step, ..."""
Column = tuple[str, str, Callable[[Item], str]]
"""Heading, l or r, what it says of an item."""


@dataclass(frozen=True)
class ReportTable:
    """Cells as text. `align` has l or r for each column; `strong` numbers the rows to stress."""

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
    title: str,
    translate: Translations,
    items: Sequence[Item],
    columns: Sequence[Column[Item]],
    *,
    keep: int = 1,
    strong: tuple[int, ...] = (),
) -> ReportTable:
    """One row an item; a column that says nothing is dropped, but the first `keep` stay."""
    filled = [(translate(heading), align, [show(item) for item in items]) for heading, align, show in columns]
    used = [
        column
        for place, column in enumerate(filled)
        if place < keep or any(cell not in ("", DASH) for cell in column[2])
    ]
    if len(used) < 2 or not items:
        return ReportTable(title)
    headings, aligns, cells = zip(*used, strict=True)
    return ReportTable(title, headings, "".join(aligns), tuple(zip(*cells, strict=True)), strong)


def _arm_id(arm: Arm) -> str:
    return arm.id


def _cell(value: Value | None, show: Callable[[Value], str]) -> str:
    return DASH if value is None else show(value)


def _mean(measure: str, show: Callable[[float], str]) -> Callable[[Arm], str]:
    return lambda arm: _cell(arm.mean(measure), show)


def _spread(measure: str, show: Callable[[float], str]) -> Callable[[Arm], str]:
    return lambda arm: _cell(arm.measures.get(measure), lambda found: with_spread(found.mean, found.std, show))


def _against_baseline(group: Group, show: Callable[[Pair], str]) -> Callable[[Arm], str]:
    return lambda arm: _cell(group.pair(arm.id), show)


def _show_metric(name: str) -> Callable[[float], str]:
    return partial(metric_value, name, unit=True)


def _share(value: float) -> str:
    return percent(value, 1)


def _headline(arm: Arm, group: Group) -> str:
    found = arm.metric
    return with_spread(found.mean, found.std, _show_metric(group.metric)) if found else "no result"


def _gap(group: Group, pair: Pair, references: References | None = None) -> str:
    """The gap, with ✗ when the audit says that the comparison is broken; why goes to the references."""
    if pair.delta is None:
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


def _verdict(pair: Pair, translate: Translations) -> str:
    return DASH if pair.verdict is None else f"{MARKS[pair.verdict]} {translate(pair.verdict)}"


def results(group: Group, translate: Translations, references: References | None = None) -> ReportTable:
    """The experiment matrix: one row an arm, the baseline first."""
    metric, against = group.metric, partial(_against_baseline, group)
    columns: list[Column[Arm]] = [
        ("Arm", "l", _arm_id),
        ("Method", "l", lambda arm: arm.method),
        (f"{translate(metric)} {ARROWS[group.direction]}", "r", lambda arm: _headline(arm, group)),
        ("Gap", "r", against(lambda pair: _gap(group, pair, references))),
        ("95 % interval", "r", against(lambda pair: _cell(pair.interval, partial(interval, metric)))),
        ("p", "r", against(lambda pair: _cell(pair.p, p_number))),
        ("Kept", "r", against(lambda pair: _cell(pair.retention, _share))),
        ("Target", "l", against(lambda pair: _verdict(pair, translate))),
        ("Seeds", "r", lambda arm: str(len(arm.seeds))),
        ("Published", "r", lambda arm: _published(arm, metric, _show_metric(metric), references, cite=True)),
    ]
    strong = tuple(place for place, arm in enumerate(group.arms) if arm.id == group.baseline)
    return _table(group_title(group), translate, group.arms, columns, keep=3, strong=strong)


def _reached(mark: str, read: Callable[[Reached], float | None], show: Callable[[float], str]) -> Callable[[Arm], str]:
    """The median over seeds, with how many reached it where some did not."""

    def cell(arm: Arm) -> str:
        found = arm.reached.get(mark)
        if found is None:
            return DASH
        median = read(found)
        of = "" if found.reached == found.runs else f" ({found.reached}/{found.runs})"
        return f"{show(median) if median is not None else 'not reached'}{of}"

    return cell


def measures(group: Group, translate: Translations) -> ReportTable:
    headings = {"loss": "Loss", "f1": "F1"}
    others = [name for name in ("loss", *further_scores(), "mismatched_accuracy") if name != group.metric]
    columns: list[Column[Arm]] = [
        ("Arm", "l", _arm_id),
        ("Final", "r", _spread("final", _show_metric(group.metric))),
        *((headings.get(name, name), "r", _spread(name, _show_metric(name))) for name in others),
        ("Steps to 80 %", "r", _reached("0.8", lambda at: at.median_step, whole)),
        ("Time to 80 %", "r", _reached("0.8", lambda at: at.median_seconds, duration_words)),
        ("Steps to 90 %", "r", _reached("0.9", lambda at: at.median_step, whole)),
        ("Time to 90 %", "r", _reached("0.9", lambda at: at.median_seconds, duration_words)),
    ]
    return _table(translate("More measures"), translate, group.arms, columns)


def parameters(group: Group, translate: Translations) -> ReportTable:
    def frozen_share(arm: Arm) -> str:
        frozen, total = arm.mean("frozen"), arm.mean("total")
        return _share(frozen / total) if frozen is not None and total else DASH

    columns: list[Column[Arm]] = [
        ("Arm", "l", _arm_id),
        ("Total", "r", _mean("total", whole)),
        ("Trainable", "r", _mean("trainable", whole)),
        ("Frozen", "r", _mean("frozen", whole)),
        ("Frozen share", "r", frozen_share),
        ("Saved", "r", _against_baseline(group, lambda pair: _cell(pair.parameter_saving, _share))),
        ("Checkpoint", "r", _mean("checkpoint_bytes", size)),
    ]
    return _table(group_title(group), translate, group.arms, columns)


def timing(group: Group, translate: Translations, references: References | None = None) -> ReportTable:
    if not any("step_time" in arm.measures or "seconds" in arm.measures for arm in group.arms):
        return ReportTable(translate("Timing"))
    columns: list[Column[Arm]] = [
        ("Arm", "l", _arm_id),
        ("Runs", "r", lambda arm: str(len(arm.runs))),
        ("Per step", "r", _spread("step_time", step_time)),
        ("Gap", "r", _against_baseline(group, lambda pair: _cell(pair.step_time_delta, relative))),
        ("Median", "r", _mean("step_time_median", step_time)),
        ("p95", "r", _mean("step_time_p95", step_time)),
        ("Tokens/s", "r", _mean("tokens_per_s", whole)),
        ("Total time", "r", _mean("seconds", duration_words)),
        ("Peak memory", "r", _mean("memory", size)),
        ("Published", "r", lambda arm: _published(arm, "step_time", step_time, references)),
    ]
    return _table(group_title(group), translate, group.arms, columns)


def curve(group: Group, translate: Translations) -> ReportTable:
    """Validation metric by step, mean over seeds; long curves are thinned evenly, the last step kept."""
    by_arm: dict[str, dict[int, list[float]]] = {arm.id: {} for arm in group.arms}
    for arm in group.arms:
        for curve in arm.curves.get(group.metric, ()):
            for step, value in curve.points:
                by_arm[arm.id].setdefault(step, []).append(value)
    steps = sorted({step for values in by_arm.values() for step in values})
    stride = -(-len(steps) // MOST_STEPS) or 1
    show = _show_metric(group.metric)

    def mean(name: str) -> Callable[[int], str]:
        return lambda step: _cell(by_arm[name].get(step), lambda values: show(sum(values) / len(values)))

    title = f"{translate('Validation curve')}: {group.dataset}, {translate(group.metric)}"
    columns: list[Column[int]] = [("Step", "r", whole), *((name, "r", mean(name)) for name in by_arm)]
    return _table(title, translate, steps[::-1][::stride][::-1], columns)


def across(comparison: Comparison, translate: Translations) -> ReportTable:
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
    for mean in comparison.means:
        bounds = f" {interval(mean.metric, mean.interval)}" if mean.interval else ""
        shown = f"{gap(mean.metric, mean.delta)}{bounds}"
        rows.append((translate("Mean"), mean.method, DASH, DASH, shown, _cell(mean.retention, _share)))
    headings = ("Data set", "Method", "Baseline", "Arm", "Gap", "Kept")
    return ReportTable(title, tuple(map(translate, headings)), "llrrrr", tuple(rows))


def ablation(group: Group, translate: Translations) -> ReportTable:
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


def tuned(group: Group, translate: Translations) -> ReportTable:
    """What each arm chose, and from how many draws; empty unless an arm was tuned."""
    title = f"{translate('Chosen settings')}: {group.dataset}"
    if not any(arm.tuning for arm in group.arms):
        return ReportTable(title)

    def of_tuning(show: Callable[[ArmTuning], str]) -> Callable[[Arm], str]:
        return lambda arm: _cell(arm.tuning, show)

    columns: list[Column[Arm]] = [
        ("Arm", "l", _arm_id),
        ("Draws", "r", lambda arm: str(arm.tuning.draws if arm.tuning else 0)),
        ("Setting", "l", of_tuning(lambda one: " ".join(one.settings))),
        ("Point", "r", of_tuning(lambda one: _cell(one.chosen, str))),
        ("Failed", "r", of_tuning(lambda one: str(one.failed) if one.failed else DASH)),
        ("Pruned", "r", of_tuning(lambda one: str(one.pruned) if one.pruned else DASH)),
    ]
    return _table(title, translate, group.arms, columns, keep=2)


def best_after_draws(group: Group, translate: Translations) -> ReportTable:
    """The expected best validation after m draws; past the first dozen at powers of two, and the last."""
    found = [(arm.id, arm.tuning.expected_best) for arm in group.arms if arm.tuning]
    most = max((len(values) for _, values in found), default=0)
    counts = [m for m in range(1, most + 1) if m <= MOST_STEPS or m & (m - 1) == 0 or m == most]
    show = _show_metric(group.metric)

    def after(values: tuple[float, ...]) -> Callable[[int], str]:
        return lambda m: show(values[m - 1]) if m <= len(values) else DASH

    title = f"{translate('Expected best after m draws')}: {group.dataset}, {translate(group.metric)}"
    columns: list[Column[int]] = [("m", "r", str), *((name, "r", after(values)) for name, values in found)]
    return _table(title, translate, counts, columns)


def significance(comparison: Comparison, translate: Translations) -> ReportTable:
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


def fairness(
    findings: Sequence[Finding], translate: Translations, title: str, *, with_source: bool = False
) -> ReportTable:
    columns: list[Column[Finding]] = [
        ("Grade", "l", lambda finding: f"{GRADE_MARKS[finding.grade]} {translate(finding.grade)}"),
        ("What", "l", lambda finding: finding.what),
        ("Arms", "l", lambda finding: ", ".join(finding.arms)),
        ("Why", "l", lambda finding: finding.why),
        ("Settle with", "l", lambda finding: finding.settle_with or DASH),
    ]
    if with_source:
        columns.append(("Source", "l", lambda finding: finding.source or DASH))
    return _table(title, translate, findings, columns, keep=4)


def recipe(group: Group, translate: Translations) -> ReportTable:
    """Only the settings in which the arms differ."""
    every = {arm.id: arm.settings for arm in group.arms}
    first = next(iter(every.values()), {})
    names = [name for name in LABELS if any(one.get(name) != first.get(name) for one in every.values())]

    def setting(arm: str) -> Callable[[str], str]:
        return lambda name: shown(name, every[arm].get(name))

    columns: list[Column[str]] = [
        ("Setting", "l", lambda name: translate(LABELS[name])),
        *((arm, "l", setting(arm)) for arm in every),
    ]
    return _table(group_title(group), translate, names, columns, keep=len(columns))
