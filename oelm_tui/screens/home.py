"""The home screen: what its keys do, each in a few lines that ask the app, a widget or a dialog."""

from __future__ import annotations

from textual.widgets import Input

from oelm_tui.actions import bindings
from oelm_tui.screens.dialogs import Confirm, Form
from oelm_tui.screens.home_panes import HomePanes
from oelm_tui.screens.run_commands import allowed, describe, perform
from oelm_tui.snapshots.sampler import write_notes
from oelm_tui.widgets.field import Field


class Home(HomePanes):
    BINDINGS = bindings("home")

    # Moving

    def action_step_pane(self, by: int) -> None:
        order = ["presets", "runs", "run", "devices"] if self.one_pane else ["presets", "runs", "run"]
        place = order.index(self.pane) if self.pane in order else 0
        self.go_to(order[(place + by) % len(order)])

    def action_pane(self, name: str) -> None:
        self.go_to(name)

    def action_zoom_pane(self) -> None:
        self._zoomed = not self._zoomed
        self._lay_out()

    def action_step_tab(self, by: int) -> None:
        if self.one_pane and self.pane != "run":
            self.go_to("run")
        else:
            self.panel.step_tab(by)
            self.look_closer()

    def action_chart(self, what: str) -> None:
        if self.one_pane and self.pane != "run":
            self.go_to("run")
        self.panel.change_chart(what)

    # Choosing

    def action_filter(self) -> None:
        if self.pane != "runs":
            self.go_to("runs")
        field = self.query_one("#filter", Field)
        field.add_class("-shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.runs_table.query_text = event.value
            self._show_count()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            event.input.remove_class("-shown")
            self.runs_table.focus()

    def action_unmark(self) -> None:
        field = self.query_one("#filter", Field)
        field.value = ""
        field.remove_class("-shown")
        self.runs_table.clear_marks()
        self.tree_of_presets.clear_marks()
        if self.focused is field or self.focused is None:
            self.runs_table.focus()
        self._show_count()

    def action_sort(self) -> None:
        self.app.say(f"sorted by {self.runs_table.next_sort()}")

    def action_mark(self) -> None:
        if self.pane == "presets":
            self.tree_of_presets.toggle_mark()
        else:
            self.runs_table.toggle_mark()
        self._show_count()

    # Doing

    def action_launch(self) -> None:
        tree = self.tree_of_presets
        study = tree.study if self.pane == "presets" else None
        arms = tree.arms if self.pane == "presets" or tree.marked else []
        if not arms and study is None and self.pane != "presets":
            arms = list(dict.fromkeys(view.run.preset for view in self.chosen_runs))
        self.app.open_launch(arms, study)

    def on_preset_tree_launch_asked(self) -> None:
        self.action_launch()

    def action_compare(self, export: bool = False) -> None:
        tree = self.tree_of_presets
        if self.pane == "presets" and tree.study is not None:
            self.app.open_compare(study=tree.study, export=export)
        elif self.pane == "presets" and tree.arms:
            self.app.open_compare(presets=tree.arms, export=export)
        elif self.runs_table.marked:
            self.app.open_compare(runs=[view.id for view in self.chosen_runs], export=export)
        else:
            view = self.selected
            self.app.open_compare(focus=view.id if view else None, export=export)

    def action_do(self, what: str) -> None:
        """Says what will happen to which runs, asks, then does it in a thread."""
        if self.app.refuse_writing():
            return
        views = self.chosen_runs
        fit = [view for view in views if allowed(what, view)]
        if not fit:
            self.app.say(describe(what, views) if views else "no run is selected", bad=True)
            return

        def go(yes: bool | None) -> None:
            if yes:
                self.app.in_thread(lambda: perform(what, fit, self.app.say_from_thread))
                self.runs_table.clear_marks()

        title = f"{what.capitalize()} {fit[0].id if len(fit) == 1 else f'{len(fit)} runs'}?"
        lines = describe(what, fit).splitlines()
        if len(fit) < len(views):
            lines.append(f"{len(views) - len(fit)} of the marked runs are left alone: {what} does not apply to them.")
        self.app.push_screen(Confirm(title, lines, what.capitalize(), danger=what in ("kill", "delete")), go)

    def action_note(self) -> None:
        view = self.selected
        if view is None or self.app.refuse_writing():
            return

        def save(answer: dict[str, str] | None) -> None:
            if answer is not None:
                tags = answer["tags"].replace(",", " ").replace("#", " ").split()
                self.app.in_thread(lambda: write_notes(view.run, tags=tags, note=answer["note"]))

        fields = [("tags", "Tags, separated by spaces", " ".join(view.notes.tags)), ("note", "Note", view.notes.note)]
        self.app.push_screen(Form(f"Tags and note: {view.id}", fields), save)

    def action_seen(self) -> None:
        self.app.mark_seen(self.chosen_runs)

    def action_copy_id(self) -> None:
        if self.selected:
            self.app.copy(self.selected.id, "id")

    def action_copy_path(self) -> None:
        if self.selected:
            self.app.copy(str(self.selected.run.folder.path), "path")

    def action_full_log(self) -> None:
        if self.selected:
            self.app.open_log(self.selected)
