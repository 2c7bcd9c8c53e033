"""Tables of what was measured, set and audited, as plain cells; those of gaps are in gaps.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from oelm_core.compare.comparison import Arm, ArmTuning, Finding, Group, Pair, Reached
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.formatting import duration_words, interval, p_number, size, step_time, whole
from oelm_core.metric import further_scores
from oelm_core.registry import is_orthonormal
from oelm_core.report.cells import (
    DASH,
    GRADE_MARKS,
    Column,
    References,
    ReportTable,
    against_baseline,
    arm_id,
    cell,
    group_title,
    headline,
    make_table,
    mean,
    published_figure,
    share,
    show_metric,
    spread,
)
from oelm_core.report.notes import step_time_gap, step_time_test, timing_notes
from oelm_core.report.translations import Translations

MOST_STEPS = 12


def _reached(
    mark: str, read: Callable[[Reached], float | None], show: Callable[[float], str], never: str
) -> Callable[[Arm], str]:
    """The median over seeds (Kaplan-Meier), with how many reached it where some did not."""

    def shown_of(arm: Arm) -> str:
        found = arm.reached.get(mark)
        if found is None:
            return DASH
        median = read(found)
        of = "" if found.reached == found.runs else f" ({found.reached}/{found.runs})"
        return f"{show(median) if median is not None else never}{of}"

    return shown_of


def measures(group: Group, translate: Translations) -> ReportTable:
    headings = {"loss": "Loss", "f1": "F1"}
    others = [name for name in ("loss", *further_scores(), "mismatched_accuracy") if name != group.metric]
    never = translate("not reached")
    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Final", "r", spread("final", show_metric(group.metric))),
        *((headings.get(name, name), "r", spread(name, show_metric(name))) for name in others),
        ("Steps to 80 %", "r", _reached("0.8", lambda at: at.median_step, whole, never)),
        ("Time to 80 %", "r", _reached("0.8", lambda at: at.median_seconds, duration_words, never)),
        ("Steps to 90 %", "r", _reached("0.9", lambda at: at.median_step, whole, never)),
        ("Time to 90 %", "r", _reached("0.9", lambda at: at.median_seconds, duration_words, never)),
    ]
    return make_table(translate("More measures"), translate, group.arms, columns)


def parameters(group: Group, translate: Translations) -> ReportTable:
    def frozenshare(arm: Arm) -> str:
        frozen, total = arm.mean("frozen"), arm.mean("total")
        return share(frozen / total) if frozen is not None and total else DASH

    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Total", "r", mean("total", whole)),
        ("Trainable", "r", mean("trainable", whole)),
        ("Frozen", "r", mean("frozen", whole)),
        ("Frozen share", "r", frozenshare),
        ("Saved", "r", against_baseline(group, lambda pair: cell(pair.parameter_saving, share))),
        ("Checkpoint", "r", mean("checkpoint_bytes", size)),
    ]
    return make_table(group_title(group), translate, group.arms, columns)


def timing(group: Group, translate: Translations, references: References | None = None) -> ReportTable:
    if not any("step_time" in arm.measures or "seconds" in arm.measures for arm in group.arms):
        return ReportTable(translate("Timing"))
    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Runs", "r", lambda arm: cell(arm.measures.get("step_time"), lambda found: str(found.n))),
        ("Per step", "r", spread("step_time", step_time)),
        ("Gap", "r", against_baseline(group, lambda pair: step_time_gap(group, pair, translate) or DASH)),
        ("95 % interval", "r", against_baseline(group, lambda pair: _step_time_interval(pair, translate))),
        (
            "p",
            "r",
            against_baseline(group, lambda pair: cell(step_time_test(pair), lambda test: cell(test.p, p_number))),
        ),
        ("Median", "r", mean("step_time_median", step_time)),
        ("p95", "r", mean("step_time_p95", step_time)),
        ("Tokens/s", "r", mean("tokens_per_s", whole)),
        ("Total time", "r", mean("seconds", duration_words)),
        ("Peak memory", "r", mean("memory", size)),
        ("Published", "r", lambda arm: published_figure(arm, "step_time", step_time, references)),
    ]
    narrow = (
        "Median",
        "p95",
        "p",
        "Tokens/s",
        "Runs",
        "Published",
        "Peak memory",
        "95 % interval",
        "Total time",
        "Gap",
    )
    table = make_table(group_title(group), translate, group.arms, columns, narrow=narrow)
    return dataclasses.replace(table, notes=timing_notes(group, translate)) if table.rows else table


def _step_time_interval(pair: Pair, translate: Translations) -> str:
    test = step_time_test(pair)
    if test is None or test.interval is None:
        return DASH if pair.step_time_delta is None else translate("unknown")
    return interval("step_time", test.interval)


def curve(group: Group, translate: Translations) -> ReportTable:
    """Validation metric by step, mean over an arm's seeds; long curves are thinned evenly, the last step kept."""
    by_arm = {arm.id: dict(arm.mean_curve(group.metric)) for arm in group.arms}
    steps = sorted({step for values in by_arm.values() for step in values})
    stride = -(-len(steps) // MOST_STEPS) or 1
    show = show_metric(group.metric)

    def at(name: str) -> Callable[[int], str]:
        return lambda step: cell(by_arm[name].get(step), show)

    title = f"{translate('Validation curve')}: {group.dataset}, {translate(group.metric)}"
    columns: list[Column[int]] = [("Step", "r", whole), *((name, "r", at(name)) for name in by_arm)]
    return make_table(title, translate, steps[::-1][::stride][::-1], columns)


def ablation(group: Group, translate: Translations) -> ReportTable:
    """Frozen arms by how Q/K start; empty unless some are orthonormal and some not. Their gaps: `gaps.contrasts`."""
    title = f"{translate('Ablation')}: {group.dataset}"
    frozen = [(arm, settings) for arm in group.arms if (settings := settings_of(arm.config))["freeze"]]
    if len({is_orthonormal(settings["init"]) for _, settings in frozen}) < 2:
        return ReportTable(title)
    rows = []
    for arm, settings in frozen:
        start = f"{settings['init']}, {'pretrained rows' if settings['qk_from'] == 'pretrained' else 'random draw'}"
        rows.append((arm.id, start, shown("qk_norm", settings["qk_norm"]), headline(arm, group)))
    headings = ("Arm", "Q/K start", "Row norm", group.metric)
    return ReportTable(title, tuple(map(translate, headings)), "llrr", tuple(rows))


def tuned(group: Group, translate: Translations) -> ReportTable:
    """What each arm chose, and from how many draws; empty unless an arm was tuned."""
    title = f"{translate('Chosen settings')}: {group.dataset}"
    if not any(arm.tuning for arm in group.arms):
        return ReportTable(title)

    def of_tuning(show: Callable[[ArmTuning], str]) -> Callable[[Arm], str]:
        return lambda arm: cell(arm.tuning, show)

    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Draws", "r", lambda arm: str(arm.tuning.draws if arm.tuning else 0)),
        ("Setting", "l", of_tuning(lambda one: " ".join(one.settings))),
        ("Point", "r", of_tuning(lambda one: cell(one.chosen, str))),
        ("Failed", "r", of_tuning(lambda one: str(one.failed) if one.failed else DASH)),
        ("Pruned", "r", of_tuning(lambda one: str(one.pruned) if one.pruned else DASH)),
    ]
    return make_table(title, translate, group.arms, columns, keep=2)


def best_after_draws(group: Group, translate: Translations) -> ReportTable:
    """The expected best validation after m draws; past the first dozen at powers of two, and the last."""
    found = [(arm.id, arm.tuning.expected_best) for arm in group.arms if arm.tuning]
    most = max((len(values) for _, values in found), default=0)
    counts = [m for m in range(1, most + 1) if m <= MOST_STEPS or m & (m - 1) == 0 or m == most]
    show = show_metric(group.metric)

    def after(values: tuple[float, ...]) -> Callable[[int], str]:
        return lambda m: show(values[m - 1]) if m <= len(values) else DASH

    title = f"{translate('Expected best after m draws')}: {group.dataset}, {translate(group.metric)}"
    columns: list[Column[int]] = [("m", "r", str), *((name, "r", after(values)) for name, values in found)]
    return make_table(title, translate, counts, columns)


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
    return make_table(title, translate, findings, columns, keep=4)


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
    return make_table(group_title(group), translate, names, columns, keep=len(columns))
