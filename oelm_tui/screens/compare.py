"""Compare: the baseline and up to three arms side by side, overlaid curves, the fairness audit; exported or copied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen

from oelm_core.report import FORMATS, format_of_file, render
from oelm_tui.actions import bindings, hints
from oelm_tui.render.comparison import (
    answer_lines,
    difference_lines,
    fairness_lines,
    result_lines,
    shown_arms,
    word_lines,
)
from oelm_tui.render.seed_curves import arm_curves, curve_caption, curve_names
from oelm_tui.screens.dialogs import Form
from oelm_tui.snapshots.background import BackgroundThread
from oelm_tui.snapshots.comparing import Compared, CompareRequest, Page, compare, pages, title_of
from oelm_tui.text import wrapped
from oelm_tui.widgets.bars import ActionTabs, Hints, TabBar
from oelm_tui.widgets.curve_chart import CurveChart
from oelm_tui.widgets.lines import ScrollLines

if TYPE_CHECKING:
    from oelm_core.compare import Arm, Comparison, Group
    from oelm_tui.app import OelmApp

PARTS = (("results", "Result"), ("curves", "Curves"), ("fairness", "Fairness"))


class Compare(Screen[None]):
    BINDINGS = bindings("compare")
    app: OelmApp

    @dataclass
    class Done(Message):
        compared: Compared

    def __init__(
        self,
        study: str | None,
        presets: tuple[str, ...],
        runs: tuple[str, ...],
        focus: str | None,
        export: bool = False,
    ) -> None:
        super().__init__()
        self._study, self._presets, self._runs, self._focus = study, presets, runs, focus
        self._export_at_once = export
        self._pages: list[Page] = []
        self._place = 0
        self._baseline: str | None = None
        self._offset = 0
        self._quantity = 0
        self._part = "results"
        self.compared: Compared | None = None
        self.thread: BackgroundThread[CompareRequest, Compared] = BackgroundThread(
            "compare", compare, lambda c: self.post_message(self.Done(c)), on_error=self._failed
        )

    def compose(self) -> ComposeResult:
        yield ActionTabs("compare", "dismiss", id="compare-title")
        yield TabBar(PARTS, id="compare-parts")
        yield ScrollLines(id="results")
        with Horizontal(id="below"):
            yield CurveChart(id="curves")
            with Vertical(id="fairness-box"):
                yield ScrollLines(id="fairness")
        yield Hints([])

    def on_mount(self) -> None:
        for name, title in PARTS:
            self.query_one(f"#{name}").border_title = title
        self.query_one("#fairness-box").border_title = "Fairness, and what differs"
        snapshot = self.app.snapshot
        if snapshot is None:
            return
        if self._study is not None:
            self._pages = [Page(self._study, self._study, ())]
        else:
            self._pages = pages(snapshot, self._presets, self._runs)
        focus = [i for i, page in enumerate(self._pages) if self._focus in page.runs]
        self._place = focus[0] if focus else 0
        self.query_one("#results").focus()
        self._ask()

    def on_unmount(self) -> None:
        self.thread.close()

    def on_resize(self) -> None:
        narrow = self.size.width < 100 or self.size.height < 26
        self.set_class(narrow, "-narrow")
        self._show_part()
        self.call_after_refresh(self._fill)

    # What is compared

    def _ask(self) -> None:
        snapshot = self.app.snapshot
        if snapshot is None or not self._pages:
            words = "there are no runs with a result yet; launch a pair first"
            self.query_one("#results", ScrollLines).show([[(words, "faint")]])
            return
        self.compared = None
        self._title()
        self.query_one("#results", ScrollLines).show([[("computing", "faint")]])
        self.query_one(CurveChart).show(below="computing")
        self.thread.ask(CompareRequest(self._pages[self._place], self._baseline, snapshot))

    def _failed(self, error: Exception) -> None:
        """In the thread: an error of ours is said, never an endless `computing`."""
        words = f"this could not be computed: {type(error).__name__}: {error}"
        self.post_message(self.Done(Compared(self._pages[self._place], self._baseline, None, words)))

    def on_compare_done(self, event: Done) -> None:
        compared = event.compared
        current = self._pages[self._place]
        if (compared.page.study, compared.page.runs) != (current.study, current.runs):
            return
        self.compared = compared
        comparison = compared.comparison
        if comparison is not None and len(comparison.groups) > 1 and current.group == 0:
            self._split(comparison)
        self._fill()
        if self._export_at_once and comparison is not None:
            self._export_at_once = False
            self.action_export()

    def _split(self, comparison: Comparison) -> None:
        """A study over several data sets has one page for each."""
        page = self._pages[self._place]
        if any(other.group for other in self._pages if other.study == page.study and other.runs == page.runs):
            return
        parts = [Page(page.title, page.study, page.runs, number) for number in range(len(comparison.groups))]
        self._pages[self._place : self._place + 1] = parts

    @property
    def group(self) -> Group | None:
        comparison = self.compared.comparison if self.compared else None
        if comparison is None or not comparison.groups:
            return None
        return comparison.groups[min(self._pages[self._place].group, len(comparison.groups) - 1)]

    @property
    def arms(self) -> list[Arm]:
        return shown_arms(self.group, self._offset, 4 if self.size.width >= 100 else 2) if self.group else []

    # What is shown

    def _title(self) -> None:
        group = self.group
        place = f"{self._place + 1}/{len(self._pages)}" if len(self._pages) > 1 else ""
        name = title_of(group.dataset, group.model) if group else self._pages[self._place].title
        base = f"   baseline {group.baseline}" if group and group.baseline else ""
        bar = self.query_one(ActionTabs)
        turns = ("turn(-1)", "turn(1)") if place and self.size.width >= 80 else ()  # narrow: the footer says how
        bar.set_names(*turns, "dismiss")
        self._show_hints()
        bar.set_lead([(" Compare ", "title"), (f"{name} ", "label"), (f"{place}", "accent"), (f"{base}  ", "faint")])

    def _show_hints(self) -> None:
        """Only of keys that do something here: turning where there are several tables, parts where they are tabs."""
        idle = set() if len(self._pages) > 1 else {"turn(-1)", "turn(1)"}
        idle |= set() if self.has_class("-narrow") else {"part(1)"}
        bar = self.query_one(Hints)
        shown = [action for action in hints("compare", "app") if action.name not in idle]
        if shown != bar.actions:
            bar.actions = shown
            bar.refresh()

    def _fill(self) -> None:
        if not self._pages:
            return
        self._title()
        results, fairness = self.query_one("#results", ScrollLines), self.query_one("#fairness", ScrollLines)
        compared, group = self.compared, self.group
        if compared is None:
            return
        if group is None:
            words = compared.problem or "nothing to compare"
            results.show(wrapped(words, max(40, results.size.width), "bad", indent=""))
            fairness.show([])
            self.query_one(CurveChart).show()
            return
        width, arms = max(40, results.size.width), self.arms
        lines = [*answer_lines(group, arms, width), *result_lines(group, arms, width)]
        hidden = len(group.arms) - len(arms)
        if hidden > 0:
            words = "1 more arm: o brings it in" if hidden == 1 else f"{hidden} more arms: o brings them in"
            lines.append([(words, "faint")])
        lines += [[], *word_lines(group, arms, width)]
        notes = compared.comparison.footnotes if compared.comparison else ()
        lines += [line for note in notes for line in wrapped(note, width, "faint", indent="")]
        results.show(lines)
        narrow = max(30, fairness.size.width)
        fairness.show([*fairness_lines(group, narrow), [], *difference_lines(arms, narrow)])
        self._draw(group, arms)

    def _draw(self, group: Group, arms: list[Arm]) -> None:
        chart = self.query_one(CurveChart)
        names = curve_names(group, arms)
        if not names:
            chart.show(below="no evaluations recorded")
            return
        name = names[self._quantity % len(names)]
        chart.show(arm_curves(arms, name), below=curve_caption(arms, name, names, chart.view.log_y))

    def _show_part(self) -> None:
        for name, _ in PARTS:
            self.set_class(name == self._part, f"-part-{name}")
        self.query_one("#compare-parts", TabBar).current = self._part
        if self.has_class("-narrow"):  # keys go to what is seen
            self.query_one(f"#{self._part}").focus()

    def on_tab_bar_pressed(self, event: TabBar.Pressed) -> None:
        self._part = event.name
        self._show_part()
        self.call_after_refresh(self._fill)

    # Actions

    def action_turn(self, by: int) -> None:
        if self.has_class("-narrow") and len(self._pages) <= 1:
            self.action_part(by)
        elif self._pages:
            before = self._pages[self._place]
            self._place = (self._place + by) % len(self._pages)
            self._baseline, self._offset = None, 0
            page = self._pages[self._place]
            if (page.study, page.runs) == (before.study, before.runs) and self.compared is not None:
                self._fill()
            else:
                self._ask()

    def action_part(self, by: int) -> None:
        names = [name for name, _ in PARTS]
        self._part = names[(names.index(self._part) + by) % len(names)]
        self._show_part()
        self.query_one(f"#{self._part}").focus()
        self.call_after_refresh(self._fill)

    def action_other_pair(self) -> None:
        self._offset += 1
        self._fill()

    def action_baseline(self) -> None:
        """The next arm takes the baseline's place."""
        group = self.group
        if group is None or len(group.arms) < 2:
            return
        names = [arm.id for arm in group.arms]
        place = names.index(group.baseline) if group.baseline in names else -1
        following = group.arms[(place + 1) % len(names)]
        self._baseline = following.runs[0] if following.runs else following.preset
        self._ask()

    def action_chart(self, what: str) -> None:
        self.query_one(CurveChart).action_chart(what)

    def on_curve_chart_changed(self, event: CurveChart.Changed) -> None:
        if event.what == "quantity":
            self._quantity += 1
        self._fill()

    def action_samples(self) -> None:
        arms, snapshot = self.arms, self.app.snapshot
        if len(arms) < 2 or snapshot is None:
            self.app.say("two arms are needed to show samples side by side", bad=True)
            return
        from oelm_tui.screens.side_by_side import SideBySide

        known = [arm for arm in arms[:2] if arm.runs and arm.runs[-1] in snapshot.by_id]
        folders = [(arm.id, snapshot.by_id[arm.runs[-1]].run.folder) for arm in known]
        self.app.push_screen(SideBySide(folders))

    def action_export(self) -> None:
        comparison = self.compared.comparison if self.compared else None
        if comparison is None:
            self.app.say("there is nothing to export yet", bad=True)
            return
        page = self._pages[self._place]
        name = re.sub(r"[^\w.]+", "-", page.study or page.title)[:50]

        def save(answer: dict[str, str] | None) -> None:
            if answer is not None:
                self.app.in_thread(lambda: self._write(comparison, answer["file"]))

        fields = [("file", "File; its ending decides the format", f"compare-{name}.md")]
        endings = [(one.ending, one.title) for one in FORMATS.values()]
        form = Form("Export this comparison", fields, endings, check=lambda answer: format_of_file(answer["file"]))
        self.app.push_screen(form, save)

    def _write(self, comparison: Comparison, file_name: str) -> None:
        path = Path(file_name).expanduser()
        written = render(comparison, format_of_file(file_name).name)
        done = "replaced" if path.exists() else "wrote"
        try:
            path.write_bytes(written.encode() if isinstance(written, str) else written)
        except OSError as error:
            self.app.say_from_thread(f"cannot write {path}: {error.strerror}", True)
            return
        self.app.say_from_thread(f"{done} {path.absolute()}", False)

    def action_copy(self) -> None:
        comparison = self.compared.comparison if self.compared else None
        if comparison is None:
            return

        def work() -> None:
            text = str(render(comparison, "markdown"))
            self.app.call_from_thread(self.app.copy_to_clipboard, text)
            self.app.say_from_thread(f"Markdown copied, {len(text.splitlines())} lines", False)

        self.app.in_thread(work)
