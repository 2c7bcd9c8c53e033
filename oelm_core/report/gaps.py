"""Tables of gaps: arms against their baseline, against one another, over data sets; and the tests of trained models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter

from oelm_core.compare.comparison import Arm, Comparison, Group, MeanGap, Pair, SignificanceTest
from oelm_core.formatting import gap, interval, p_number, whole
from oelm_core.report.cells import (
    ARROWS,
    BORROWED,
    DASH,
    GRADE_MARKS,
    MARKS,
    VERDICTS,
    Column,
    References,
    ReportTable,
    against_baseline,
    arm_id,
    cell,
    group_title,
    headline,
    make_table,
    published_figure,
    share,
    show_metric,
)
from oelm_core.report.notes import contrast_lines, is_borrowed, pair_lines, result_notes, standing_verdict
from oelm_core.report.translations import Translations

NARROW = ("Method", "Published", "Kept", "p", "Adjusted p", "Seeds", "95 % interval", "Target", "Gap")


def results(
    group: Group, translate: Translations, references: References | None = None, planned: Sequence[int] = ()
) -> ReportTable:
    """The experiment matrix: one row an arm, the baseline first. `planned`: the seeds of its study."""
    metric, against = group.metric, partial(against_baseline, group)
    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Method", "l", lambda arm: arm.method),
        (f"{translate(metric)} {ARROWS[group.direction]}", "r", lambda arm: headline(arm, group)),
        ("Gap", "r", against(lambda pair: _gap(group, pair, references))),
        ("95 % interval", "r", against(lambda pair: _interval(pair, translate))),
        ("p", "r", against(lambda pair: cell(pair.p, p_number))),
        ("Adjusted p", "r", against(lambda pair: cell(pair.p_adjusted, p_number) if group.family_size > 1 else DASH)),
        ("Kept", "r", against(lambda pair: cell(pair.retention, share))),
        ("Target", "l", against(lambda pair: _verdict(group, pair, translate))),
        ("Seeds", "r", lambda arm: seeds_of(arm, planned, translate)),
        ("Published", "r", lambda arm: published_figure(arm, metric, show_metric(metric), references, cite=True)),
    ]
    strong = tuple(place for place, arm in enumerate(group.arms) if arm.id == group.baseline)
    table = make_table(group_title(group), translate, group.arms, columns, keep=3, strong=strong, narrow=NARROW)
    if not table.rows:
        return table
    return dataclasses.replace(table, pairs=pair_lines(group, translate), notes=result_notes(group, translate))


def seeds_of(arm: Arm, planned: Sequence[int], translate: Translations) -> str:
    """How many seeds have a score, how many were lost, and how many were planned where that is more."""
    there, lost = set(arm.seeds), arm.diverged + arm.failed
    text = str(len(arm.seeds))
    if len(set(planned) - there) > lost:
        met = len(there & set(planned))
        text = f"{text} {translate('of')} " if met == len(there) else f"{text}, {met} {translate('of')} "
        text += f"{len(planned)} {translate('planned')}"
    parts = [(arm.diverged, "diverged"), (arm.failed, "failed")]
    return " + ".join([text, *(f"{count} {translate(what)}" for count, what in parts if count)])


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


def _interval(pair: Pair, translate: Translations) -> str:
    """Of the method; unknown with one seed, or marked where the spread of seeds was seen elsewhere."""
    if pair.interval is None:
        return DASH if pair.delta is None else translate("unknown")
    text = interval(pair.metric, pair.interval)
    return f"{text} {BORROWED}" if is_borrowed(pair) else text


def _verdict(group: Group, pair: Pair, translate: Translations) -> str:
    if pair.verdict is None:
        return DASH
    text = translate(VERDICTS[pair.verdict])
    stands = standing_verdict(group, pair) is not None
    return f"{MARKS[pair.verdict]} {text}" if stands else f"{text}, {translate('does not stand')}"


def contrasts(group: Group, translate: Translations) -> ReportTable:
    """Arms against one another: orthogonal against random."""
    title = f"{translate('Arm against arm')}: {group.dataset}"
    table = make_table(title, translate, group.contrasts, _pair_columns(group, translate), keep=4, narrow=NARROW)
    return dataclasses.replace(table, pairs=contrast_lines(group)) if table.rows else table


def _pair_columns(group: Group, translate: Translations) -> list[Column[Pair]]:
    return [
        ("Arm", "l", lambda pair: pair.arm),
        ("Against", "l", lambda pair: pair.baseline),
        ("Gap", "r", lambda pair: cell(pair.delta, partial(gap, pair.metric))),
        ("95 % interval", "r", lambda pair: _interval(pair, translate)),
        ("p", "r", lambda pair: cell(pair.p, p_number)),
        ("Adjusted p", "r", lambda pair: cell(pair.p_adjusted, p_number) if group.family_size > 1 else DASH),
        ("Seeds", "r", lambda pair: f"{pair.seeds.arm} / {pair.seeds.baseline}"),
    ]


def across(comparison: Comparison, translate: Translations) -> ReportTable:
    """One line per data set and arm, then the mean per method where it is over several data sets of one metric."""
    title = translate("Across data sets")
    pairs = [(group, pair) for group in comparison.groups for pair in group.pairs if pair.delta is not None]
    if len({group.dataset for group, _ in pairs}) < 2:
        return ReportTable(title)
    headings = ("Data set", "Method", "Baseline", "Arm", "Gap", "95 % interval", "p", "Kept")
    rows = [_of_data_set(group, pair, translate) for group, pair in pairs]
    rows += [_of_mean(mean, translate) for mean in comparison.means]
    notes = (translate("A mean is over these data sets and no others."),) if comparison.means else ()
    columns: list[Column[tuple[str, ...]]] = [
        (heading, align, itemgetter(place))
        for place, (heading, align) in enumerate(zip(headings, "llrrrrrr", strict=True))
    ]
    narrow = ("p", "Kept", "95 % interval", "Baseline")
    return dataclasses.replace(make_table(title, translate, rows, columns, keep=5, narrow=narrow), notes=notes)


def _of_data_set(group: Group, pair: Pair, translate: Translations) -> tuple[str, ...]:
    arm, base = group.arm(pair.arm), group.arm(pair.baseline)
    tested = (_gap(group, pair), _interval(pair, translate), cell(pair.p, p_number))
    kept = cell(pair.retention, share)
    return (group.dataset, arm.method, headline(base, group), headline(arm, group), *tested, kept)


def _of_mean(mean: MeanGap, translate: Translations) -> tuple[str, ...]:
    bounds = interval(mean.metric, mean.interval) if mean.interval else translate("unknown")
    tested = (gap(mean.metric, mean.delta), bounds, cell(mean.p, p_number))
    return (translate("Mean"), mean.method, DASH, DASH, *tested, cell(mean.retention, share))


# -- the tests ---------------------------------------------------------------------------------------------------------


def method_tests(group: Group, translate: Translations) -> ReportTable:
    """What may be said of the method: every gap over seeds, and where their spread was seen."""
    columns: list[Column[Pair]] = [
        *_pair_columns(group, translate),
        ("Test", "l", lambda pair: next((test.name for test in pair.tests if test.over == "seeds"), DASH)),
        ("Spread of seeds also from", "l", lambda pair: ", ".join(pair.spread_from) or DASH),
    ]
    return make_table(group_title(group), translate, (*group.pairs, *group.contrasts), columns, keep=4)


def model_tests(group: Group, translate: Translations) -> ReportTable:
    """Whether two trained models differ, seed by seed."""
    columns: list[Column[tuple[Pair, SignificanceTest]]] = [
        ("Arm", "l", lambda one: one[0].arm),
        ("Against", "l", lambda one: one[0].baseline),
        ("Seed", "r", lambda one: cell(one[1].seed, str)),
        ("Test", "l", lambda one: one[1].name),
        ("n", "r", lambda one: whole(one[1].n)),
        ("Gap", "r", lambda one: cell(one[1].estimate, partial(gap, group.metric))),
        ("95 % interval", "r", lambda one: cell(one[1].interval, partial(interval, group.metric))),
        ("p", "r", lambda one: cell(one[1].p, p_number)),
        ("In words", "l", lambda one: one[1].words),
    ]
    return make_table(group_title(group), translate, list(_of_models(group)), columns)


def _of_models(group: Group) -> Iterator[tuple[Pair, SignificanceTest]]:
    for pair in (*group.pairs, *group.contrasts):
        yield from ((pair, test) for test in pair.tests if test.over == "examples")
