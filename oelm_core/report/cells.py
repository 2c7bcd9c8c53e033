"""What a table of a report is made of: headings and cells as text, the lines around them, and the marks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from oelm_core.compare.comparison import Arm, Group, Pair, Verdict
from oelm_core.formatting import measured, metric_value, percent, with_spread
from oelm_core.report.translations import Translations

DASH = "-"
ARROWS = {"higher": "↑", "lower": "↓"}
MARKS: dict[Verdict, str] = {"met": "✔", "missed": "✗", "undecided": "?"}
VERDICTS: dict[Verdict, str] = {"met": "met", "missed": "missed", "undecided": "not decided"}
"""A verdict in words."""
BORROWED = "†"
"""Marks an interval of one seed, whose spread of seeds was seen elsewhere."""
GRADE_MARKS = {"breaks": "✗", "confounds": "⚠", "note": "·"}
REFUTED, OTHER = "⚠", "≠"
"""Marks of a published figure: contradicted by what else was published; of another network or recipe than was run."""

Value = TypeVar("Value")
Item = TypeVar("Item")
"""What a row is about: an arm, a finding, a step, ..."""
Column = tuple[str, str, Callable[[Item], str]]
"""Heading, l or r, what it says of an item."""


@dataclass(frozen=True)
class PairLine:
    """What a table shows of one pair, in a sentence or two, and the verdict that colours it."""

    name: str
    verdict: Verdict | None
    text: str

    @property
    def mark(self) -> str:
        return f"{MARKS[self.verdict]} " if self.verdict else ""


@dataclass(frozen=True)
class ReportTable:
    """Cells as text. `align` has l or r for each column; `strong` numbers the rows to stress."""

    title: str
    columns: tuple[str, ...] = ()
    align: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    strong: tuple[int, ...] = ()
    narrow: tuple[str, ...] = ()
    """Headings of the columns that a narrow terminal leaves out, the first ones first."""
    pairs: tuple[PairLine, ...] = ()
    notes: tuple[str, ...] = ()
    """Lines under the table."""


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


def make_table(
    title: str,
    translate: Translations,
    items: Sequence[Item],
    columns: Sequence[Column[Item]],
    *,
    keep: int = 1,
    strong: tuple[int, ...] = (),
    narrow: Sequence[str] = (),
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
    rows = tuple(zip(*cells, strict=True))
    return ReportTable(title, headings, "".join(aligns), rows, strong, tuple(map(translate, narrow)))


def cell(value: Value | None, show: Callable[[Value], str]) -> str:
    return DASH if value is None else show(value)


# -- cells about an arm ------------------------------------------------------------------------------------------------


def group_title(group: Group) -> str:
    return f"{group.dataset}, {group.model}"


def arm_id(arm: Arm) -> str:
    return arm.id


def mean(measure: str, show: Callable[[float], str]) -> Callable[[Arm], str]:
    return lambda arm: cell(arm.mean(measure), show)


def spread(measure: str, show: Callable[[float], str]) -> Callable[[Arm], str]:
    return lambda arm: cell(arm.measures.get(measure), lambda found: measured(found.mean, found.std, show))


def against_baseline(group: Group, show: Callable[[Pair], str]) -> Callable[[Arm], str]:
    return lambda arm: cell(group.pair(arm.id), show)


def show_metric(name: str) -> Callable[[float], str]:
    return partial(metric_value, name, unit=True)


def share(value: float) -> str:
    return percent(value, 1)


def headline(arm: Arm, group: Group) -> str:
    found = arm.metric
    return with_spread(found.mean, found.std, show_metric(group.metric)) if found else "no result"


def published_figure(
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
