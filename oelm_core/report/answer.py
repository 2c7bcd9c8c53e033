"""The answer in one line for each arm: its gap and interval, the target, what it saves, what puts it in doubt."""

from __future__ import annotations

from collections.abc import Iterator

from oelm_core.compare.comparison import Group, Pair
from oelm_core.formatting import gap, interval, luck, p_value, percent
from oelm_core.report.cells import BORROWED, VERDICTS, PairLine
from oelm_core.report.notes import is_borrowed, standing_verdict
from oelm_core.report.translations import Translations

NO_FEWER = 0.0005
"""A smaller share of parameters is not shown as saved."""


def answers(group: Group, translate: Translations) -> tuple[PairLine, ...]:
    """What every layout shows first; the table below it has the reasons."""
    return tuple(
        PairLine(pair.arm, standing_verdict(group, pair), "; ".join(_parts(group, pair, translate)))
        for pair in group.pairs
    )


def _parts(group: Group, pair: Pair, translate: Translations) -> Iterator[str]:
    arm = group.arm(pair.arm)
    broken = group.broken(pair.arm)
    yield f"{translate(group.metric)} {_gap(pair, translate)}"
    if arm.diverged:
        yield translate("{} of {} runs diverged").format(arm.diverged, len(arm.runs))
    if broken:
        yield f"{translate('does not stand')}: {translate(broken.what)}"
    elif pair.verdict is not None:
        yield f"{translate('target')} {translate(VERDICTS[pair.verdict])}"
    elif pair.p_adjusted is not None:  # without a target, what may be said of chance
        yield f"{translate(luck(pair.p_adjusted))} ({p_value(pair.p_adjusted)})"
    saving = pair.parameter_saving
    if saving is not None and abs(saving) >= NO_FEWER:
        fewer = "{} fewer trainable until released" if arm.settings.get("unfreeze") else "{} fewer trainable"
        yield translate(fewer if saving > 0 else "{} more trainable").format(percent(abs(saving), 1))
    about = group.findings_about(pair.arm)  # those between two arms are no matter of the baseline
    confounds = sum(one.grade == "confounds" and (len(one.arms) == 1 or pair.baseline in one.arms) for one in about)
    if confounds:
        yield translate("1 confound" if confounds == 1 else "{} confounds").format(confounds)


def _gap(pair: Pair, translate: Translations) -> str:
    """-6.74 pp [-9.24, -4.24] over 12 seeds."""
    if pair.delta is None:
        return translate("unknown")
    shown = gap(pair.metric, pair.delta)
    arm, baseline = pair.seeds.arm, pair.seeds.baseline
    words = "over {} seeds" if arm == baseline else "over {} seeds, baseline {}"
    seeds = translate("with one seed") if arm == baseline == 1 else translate(words).format(arm, baseline)
    if pair.interval is None:
        return f"{shown} {seeds}, {translate('interval unknown')}"
    ends = interval(pair.metric, pair.interval).rpartition(" ")[0]  # the gap has the unit
    return f"{shown} {ends}{BORROWED if is_borrowed(pair) else ''} {seeds}"
