"""The comparison in lines: arms side by side, their gaps and verdicts, the fairness audit, the settings that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oelm_core import formatting
from oelm_core.changes import as_text, flattened
from oelm_core.formatting import metric_value, p_number, p_value, relative, size, step_time
from oelm_core.registry import method_name
from oelm_core.report.answer import answers
from oelm_core.report.cells import BORROWED, VERDICTS
from oelm_core.report.notes import (
    contrast_lines,
    decide_line,
    is_borrowed,
    pair_lines,
    result_notes,
    standing_verdict,
    step_time_gap,
)
from oelm_core.report.translations import Translations
from oelm_tui import glyphs
from oelm_tui.text import Line, Span, fit, heading, wrapped

if TYPE_CHECKING:
    from oelm_core.compare import Arm, Group, Measure, Pair
    from oelm_core.compare.comparison import Verdict

NAME = 16
GRADES = {"breaks": "bad", "confounds": "wait", "note": "faint"}
VERDICT_ROLES = {"met": "ok", "missed": "bad", "undecided": "wait"}
Cells = list[list[Span]]


def shown_arms(group: Group, offset: int, most: int) -> list[Arm]:
    """The baseline and as many of the others as fit, from `offset` on."""
    others = [arm for arm in group.arms if arm.id != group.baseline]
    baseline = [arm for arm in group.arms if arm.id == group.baseline]
    room = max(1, most - len(baseline))
    if len(others) > room:
        start = offset % len(others)
        others = (others + others)[start : start + room]
    return baseline + others


def result_lines(group: Group, arms: Sequence[Arm], width: int) -> list[Line]:
    """One column an arm; figures first, words below."""
    column = max(14, (width - NAME - 1) // max(1, len(arms)) - 1)
    pairs = [group.pair(arm.id) for arm in arms]
    better = glyphs.signs.down if group.direction == "lower" else glyphs.signs.up
    rows: list[tuple[str, Cells]] = [
        ("", [_title(arm, number) for number, arm in enumerate(arms)]),
        ("", [[(method_name(arm.method), "faint")] for arm in arms]),
        (f"{group.metric} {better}", [_metric(group, arm) for arm in arms]),
        ("  gap", [_gap(group, pair) for pair in pairs]),
        ("  95 % interval", [_interval(pair) for pair in pairs]),
        ("  p", [_p(group, pair) for pair in pairs]),
        ("  target", [_verdict(group, pair) for pair in pairs]),
        ("  published", [_published(group, arm) for arm in arms]),
    ]
    for one in _MEASURED:
        rows.append(_measured(one, arms, pairs))
        if one.key == "step_time":  # of neighbouring runs, not of the means above it
            rows.append(
                ("  gap", [[((pair and step_time_gap(group, pair, Translations())) or "", "")] for pair in pairs])
            )
    lines: list[Line] = []
    for name, cells in rows:
        if not any(text.strip() for cell in cells for text, _ in cell):
            continue
        line: Line = [(name.ljust(NAME)[:NAME] + " ", "faint")]
        for cell in cells:
            line += [*fit(tuple(cell) or "", column), (" ", "")]
        lines.append(line)
    return lines


def answer_lines(group: Group, arms: Sequence[Arm], width: int) -> list[Line]:
    """The answer comes first: each arm's in a line, coloured by its verdict, and what would decide the open ones."""
    lines: list[Line] = []
    shown = {arm.id for arm in arms}
    for line in answers(group, Translations()):
        if line.name in shown:
            role = VERDICT_ROLES[line.verdict] if line.verdict else "label"
            words = f"{_sign(line.verdict)}{line.name}: {line.text}".replace(BORROWED, glyphs.signs.borrowed)
            lines += wrapped(words, width, f"{role}|bold", indent="")
    decide = decide_line(group, Translations())
    if decide:
        lines += wrapped(decide, width, "label", indent="")
    return [*lines, []] if lines else []


def word_lines(group: Group, arms: Sequence[Arm], width: int) -> list[Line]:
    """What the statistics say in words, what the numbers rest on, and what is missing."""
    lines: list[Line] = []
    about = {line.name: line.text for line in pair_lines(group, Translations())}
    for arm in arms:
        if about.get(arm.id):
            lines += wrapped(f"{arm.id}: {about[arm.id]}", width, "")
        for missing in arm.missing[:3]:
            lines += wrapped(f"{arm.id}: {missing}", width, "faint")
    for line in contrast_lines(group):
        lines += wrapped(f"{line.name}: {line.text}", width, "")
    decide = decide_line(group, Translations())  # stands above
    for note in result_notes(group, Translations()):
        text = note.replace(BORROWED, glyphs.signs.borrowed)
        lines += wrapped(text, width, "faint") if note != decide else []
    return lines


def fairness_lines(group: Group, width: int) -> list[Line]:
    signs = {"breaks": glyphs.signs.bad, "confounds": glyphs.signs.warn, "note": glyphs.signs.note}
    lines: list[Line] = []
    for finding in group.audit:
        role = GRADES[finding.grade]
        settle = f" Settle it with {finding.settle_with}." if finding.settle_with else ""
        lines.append([(f"{signs[finding.grade]} {finding.grade}", role), (f"  {finding.what}", "label")])
        lines += wrapped(_sentence(finding.why) + settle, width)
    if not group.audit and group.pairs:
        lines.append([(f"{glyphs.signs.good} nothing differs besides the thing under test", "ok")])
    if group.same:
        lines += wrapped(f"{glyphs.signs.good} same in all arms: {', '.join(group.same)}", width, "ok", indent="")
    if not group.pairs:
        lines.append([("no baseline among these runs: nothing to audit", "faint")])
    return lines


def _sentence(words: str) -> str:
    """With a capital letter, except where it begins with the name of a run or an arm."""
    name = words.partition(" ")[0]
    return words if "-" in name else words[:1].upper() + words[1:]


def difference_lines(arms: Sequence[Arm], width: int) -> list[Line]:
    """Only the settings in which the shown arms differ."""
    tables = [
        {k: v for k, v in flattened(arm.config).items() if k.partition(".")[0] in ("model", "data", "method", "train")}
        for arm in arms
    ]
    keys = [key for key in sorted({k for t in tables for k in t}) if len({as_text(t.get(key)) for t in tables}) > 1]
    if not keys:
        return []
    name = max(len(key) for key in keys) + 2
    column = max(8, (width - name) // max(1, len(arms)) - 1)
    lines: list[Line] = [heading("Settings that differ")]
    for key in keys:
        line: Line = [(f"{key:<{name}}", "faint")]
        for number, table in enumerate(tables):
            line += [*fit((as_text(table.get(key)), f"arm{number % 4}"), column), (" ", "")]
        lines.append(line)
    return lines


def _title(arm: Arm, number: int) -> list[Span]:
    lost = [f"{count} {what}" for count, what in ((arm.diverged, "diverged"), (arm.failed, "failed")) if count]
    seeds = f" ({' + '.join([f'{len(arm.seeds)} seed' + 's' * (len(arm.seeds) != 1), *lost])})"
    sign = glyphs.signs.arms[number % 4]
    return [(f"{sign} {arm.id}", f"arm{number % 4}|bold"), (seeds, "faint")]


def _metric(group: Group, arm: Arm) -> list[Span]:
    if arm.metric is None:
        return [("", "")]
    text = formatting.with_spread(
        arm.metric.mean, arm.metric.std, lambda value: metric_value(group.metric, value, unit=True)
    )
    return [(text.replace("±", glyphs.signs.spread), "label")]


def _gap(group: Group, pair: Pair | None) -> list[Span]:
    """Coloured only where seeds say that it is unlikely to be chance."""
    if pair is None or pair.delta is None:
        return [("", "")]
    worse = (pair.delta > 0) == (group.direction == "lower") and pair.delta != 0
    clear = pair.p_adjusted is not None and pair.p_adjusted < 0.05 and not group.broken(pair.arm)
    role = "" if not clear else "bad" if worse else "ok"
    side = " worse" if worse else " better" if pair.delta else " equal"
    return [(formatting.gap(group.metric, pair.delta), role), (side, "faint")]


def _interval(pair: Pair | None) -> list[Span]:
    if pair is None or pair.delta is None:
        return [("", "")]
    if pair.interval is None:
        return [("unknown", ""), (" (one seed)", "faint")]
    borrowed = [(f" {glyphs.signs.borrowed}", "faint")] if is_borrowed(pair) else []
    return [(formatting.interval(pair.metric, pair.interval), ""), *borrowed]


def _p(group: Group, pair: Pair | None) -> list[Span]:
    if pair is None or pair.p is None:
        return [("", "")]
    adjusted = (
        f"  adjusted {p_number(pair.p_adjusted)}" if pair.p_adjusted is not None and group.family_size > 1 else ""
    )
    return [(p_value(pair.p), ""), (adjusted, "")]


def _sign(verdict: Verdict | None) -> str:
    return {"met": f"{glyphs.signs.good} ", "missed": f"{glyphs.signs.bad} ", None: ""}.get(verdict, "? ")


def _verdict(group: Group, pair: Pair | None) -> list[Span]:
    if pair is None or pair.verdict is None:
        return [("", "")]
    if standing_verdict(group, pair) is None:
        return [(f"{VERDICTS[pair.verdict]}, does not stand", "faint")]
    return [(f"{_sign(pair.verdict)}{VERDICTS[pair.verdict]}", VERDICT_ROLES[pair.verdict])]


def _published(group: Group, arm: Arm) -> list[Span]:
    value = (arm.published or {}).get(group.metric)
    if not isinstance(value, (int, float)):
        return [("", "")]
    source = str((arm.published or {}).get("source", ""))
    short = f"source {source[:3]}" if source[:3].isdigit() else source
    return [(metric_value(group.metric, value, unit=True), ""), (f"  {short}", "faint")]


class _Measured(NamedTuple):
    name: str
    key: str
    show: Callable[[float], str]
    change: str = ""
    """The pair's change in it."""


_MEASURED = (
    _Measured("trainable", "trainable", formatting.whole, "parameter_saving"),
    _Measured("per step", "step_time", step_time),
    _Measured("whole run", "seconds", formatting.duration, "seconds_delta"),
    _Measured("peak memory", "memory", size, "memory_delta"),
    _Measured("checkpoint", "checkpoint_bytes", size),
)


def _measured(one: _Measured, arms: Sequence[Arm], pairs: Sequence[Pair | None]) -> tuple[str, Cells]:
    cells: Cells = []
    for arm, pair in zip(arms, pairs, strict=True):
        found = arm.measures.get(one.key)
        cell = [(_spread(found, one.show), "")]
        if found is not None and arm.metric is not None and found.n < arm.metric.n:  # not all of the column's runs
            cell.append((f" ({found.n} of {arm.metric.n} runs)", "faint"))
        value = getattr(pair, one.change, None) if pair is not None and one.change else None
        if pair is not None and value is not None:
            value = -value if one.change == "parameter_saving" else value
            cell.append((f"  {relative(value)}", "faint"))
        cells.append(cell)
    return one.name, cells


def _spread(measure: Measure | None, show: Callable[[float], str]) -> str:
    if measure is None:
        return ""
    return formatting.measured(measure.mean, measure.std, show).replace("±", glyphs.signs.spread)
