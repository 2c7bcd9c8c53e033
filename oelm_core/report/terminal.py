"""The comparison in the terminal: rich tables, the verdicts, and the audit under them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as RichGroup
from rich.table import Table as RichTable
from rich.text import Text

from oelm_core.compare.comparison import Comparison, Finding, Group
from oelm_core.plain_text import visible
from oelm_core.report import gaps, tables
from oelm_core.report.answer import answers
from oelm_core.report.cells import GRADE_MARKS, PairLine, References, ReportTable
from oelm_core.report.translations import Translations

_STYLES = {"breaks": "bold red", "confounds": "yellow", "note": "dim"}
_VERDICT_STYLES = {"met": "bold green", "missed": "bold red", "undecided": "bold yellow", None: "bold"}


def terminal_report(comparison: Comparison, lang: str = "en") -> RichGroup:
    """A rich renderable; print it on any Console."""
    translate, references = Translations(lang), References()
    parts: list[RenderableType] = []
    if comparison.study:
        parts.append(Text(visible(f"{comparison.study.title}: {comparison.study.question}"), style="bold"))
    verdicts = [_pair(line) for group in comparison.groups for line in answers(group, translate)]
    parts += [Text(), *verdicts] if comparison.study and verdicts else verdicts
    for group in comparison.groups:
        parts += [Text(), *_group(group, comparison, translate, references)]
    across = gaps.across(comparison, translate)
    if across.rows:
        parts += [Text(), FittingTable(across)]
    if comparison.published:
        parts += [Text(), Text(translate("Published figures"), style="bold"), findings_table(comparison.published)]
    notes = [*comparison.footnotes, *references.lines()]
    if notes:
        parts += [Text(), *(Text(visible(note), style="dim") for note in notes)]
    return RichGroup(*parts)


def _group(
    group: Group, comparison: Comparison, translate: Translations, references: References
) -> list[RenderableType]:
    planned = comparison.study.seeds if comparison.study else ()
    parts: list[RenderableType] = [FittingTable(gaps.results(group, translate, references, planned))]
    against = gaps.contrasts(group, translate)
    if against.rows:
        parts += [Text(), FittingTable(against)]
    timing = tables.timing(group, translate, references)
    for title, table in (("Parameters", tables.parameters(group, translate)), ("Timing", timing)):
        if table.rows:
            parts += [Text(), FittingTable(table, translate(title))]
    for table in (tables.tuned(group, translate), tables.best_after_draws(group, translate)):
        if table.rows:
            parts += [Text(), FittingTable(table)]
    if group.audit or group.pairs:
        parts += [Text(), Text(translate("Fairness"), style="bold")]
    if group.audit:
        parts.append(findings_table(group.audit))
    elif group.pairs:
        parts.append(Text(translate("No differences found.")))
    if group.same:
        parts.append(
            Text(f"✔ {translate('Same in all arms')}: {', '.join(map(translate, group.same))}.", style="green")
        )
    return parts


class FittingTable:
    """Leaves out columns, in the order that the table says, until it fits; then its pairs and what stands under it."""

    def __init__(self, table: ReportTable, title: str | None = None) -> None:
        self.table, self.title = table, title or table.title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        columns, *rows = [[visible(cell) for cell in row] for row in (table.columns, *table.rows)]
        widths = [max(cell_len(row[column]) for row in (columns, *rows)) + 3 for column in range(len(table.columns))]
        kept = list(range(len(widths)))
        named = [table.columns.index(name) for name in table.narrow if name in table.columns]
        droppable = [*named, *(column for column in reversed(kept[1:]) if column not in named)]
        while sum(widths[column] for column in kept) > options.max_width and droppable:
            kept.remove(droppable.pop(0))
        shown = RichTable(title=Text(visible(self.title)), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in kept:
            right = table.align[column] == "r"
            shown.add_column(Text(columns[column]), justify="right" if right else "left", no_wrap=True)
        for place, row in enumerate(rows):
            shown.add_row(*(Text(row[column]) for column in kept), style="bold" if place in table.strong else None)
        yield shown
        yield from (_pair(pair) for pair in table.pairs)
        yield from (Text(visible(note), style="dim") for note in table.notes)


def _pair(pair: PairLine) -> Text:
    name = visible(f"{pair.mark}{pair.name}:")
    return Text.assemble((name, _VERDICT_STYLES[pair.verdict]), visible(f" {pair.text}"))


def findings_table(findings: Sequence[Finding]) -> RichTable:
    """One finding a row: its grade with a mark and a colour, then the sentence and what settles it."""
    shown = RichTable.grid(padding=(0, 1))
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for finding in findings:
        style = _STYLES[finding.grade]
        settle = f" Settle it with: {finding.settle_with}." if finding.settle_with else ""
        source = f" [{finding.source}]" if finding.source else ""
        why = Text(visible(finding.sentence + settle + source))
        shown.add_row(Text(f"{GRADE_MARKS[finding.grade]} {finding.grade}", style=style), why)
    return shown
