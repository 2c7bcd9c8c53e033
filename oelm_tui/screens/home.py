"""The home screen: what its keys do, each in a few lines that ask the app, a widget or a dialog."""

from __future__ import annotations

from textual.widgets import Input

from oelm_tui.actions import bindings
from oelm_tui.screens import process_commands
from oelm_tui.screens.dialogs import Confirm, Form
from oelm_tui.screens.home_panes import HomePanes
from oelm_tui.screens.run_commands import LETTERS, allowed, describe, perform
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import write_notes
from oelm_tui.widgets.devices import DevicesPane
from oelm_tui.widgets.field import Field


class Home(HomePanes):
    BINDINGS = bindings("home")

    def __init__(self) -> None:
        super().__init__()
        self._asked_to_end: set[tuple[int, float | None]] = set()

    # Moving

    def action_step_pane(self, by: int) -> None:
        order = ["presets", "runs", "run", "devices"] if self.one_pane else ["presets", "runs", "run"]
        place = order.index(self.pane) if self.pane in order else 0
        self.go_to(order[(place + by) % len(order)])

    def action_pane(self, name: str) -> None:
        if name == "run":
            self.show_card(None)
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
        """Of the pane that has the focus: presets, runs, or a text; from devices and charts, of the runs."""
        name = self.filter_of_pane
        if name == "filter" and self.pane != "runs":
            self.go_to("runs")
        field = self.query_one(f"#{name}", Field)
        field.add_class("-shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.runs_table.query_text = event.value
            self._show_count()
        elif event.input.id == "preset-filter":
            self.tree_of_presets.filter(event.value)
            self.show_presets_title()
        elif event.input.id == "text-filter":
            self.narrow_text(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id in ("filter", "preset-filter", "text-filter"):
            event.input.remove_class("-shown")
            self.go_to({"filter": "runs", "preset-filter": "presets"}.get(event.input.id, "run"))

    def action_unmark(self) -> None:
        """Clears the filter of the pane; with none there, all filters and marks."""
        own = self.query_one(f"#{self.filter_of_pane}", Field)
        typing = self.focused is own
        if own.value or typing:
            self._clear(own)
            if typing:
                self.go_to(self.pane)
            if own.id != "filter":
                return
        if self.pane == "run" and self.card_key is not None:
            self.go_to("presets")
            return
        for field in self.query(Field).results(Field):
            if field.id in ("filter", "preset-filter", "text-filter"):
                self._clear(field)
        self.runs_table.clear_marks()
        self.tree_of_presets.clear_marks()
        self._show_selected()
        if self.focused is None:
            self.runs_table.focus()
        self._show_count()

    @staticmethod
    def _clear(field: Field) -> None:
        field.value = ""
        field.remove_class("-shown")

    def action_sort(self) -> None:
        self.app.say(f"sorted by {self.runs_table.next_sort()}")

    def action_mark(self) -> None:
        if self.pane == "presets":
            self.tree_of_presets.toggle_mark()
        else:
            self.runs_table.toggle_mark()
            self._show_selected()
        self._show_count()

    # Doing

    def action_launch(self) -> None:
        tree = self.tree_of_presets
        study = tree.study if self.on_presets else None
        arms = tree.arms if self.on_presets or tree.marked else []
        if not arms and study is None and not self.on_presets:
            arms = list(dict.fromkeys(view.run.preset for view in self.chosen_runs))
        self.app.open_launch(arms, study)

    def on_preset_tree_card_asked(self) -> None:
        self.go_to("run")

    def action_demo(self) -> None:
        self.app.start_demo()

    def action_compare(self, export: bool = False) -> None:
        tree = self.tree_of_presets
        if self.on_presets and tree.study is not None:
            self.app.open_compare(study=tree.study, export=export)
        elif self.on_presets and tree.arms:
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
        self._ask(what, self.chosen_runs)

    def _ask(self, what: str, views: list[RunView]) -> None:
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
        self.app.push_screen(Confirm(title, lines, what.capitalize(), LETTERS.get(what, "y")), go)

    def on_devices_pane_end_asked(self, event: DevicesPane.EndAsked) -> None:
        """A run is stopped as a run, with its checkpoint; another process of one's own is asked to end."""
        held, snapshot = event.held, self.app.snapshot
        if self.app.refuse_writing() or snapshot is None:
            return
        view = snapshot.by_id.get(held.process.run or "") if held else None
        if view is not None:
            self._ask("stop", [view])
            return
        if held is None or process_commands.why_not(held):
            self.app.say(process_commands.why_not(held), bad=True)
            return
        one = held.process
        name = (one.pid, one.started)
        again = name in self._asked_to_end

        def go(yes: bool | None) -> None:
            if yes:
                self._asked_to_end.add(name)
                self.app.in_thread(lambda: process_commands.perform(one, again, self.app.say_from_thread))

        words = process_commands.describe(held, snapshot.now, again)
        letter = process_commands.LETTER
        self.app.push_screen(Confirm(f"End your process {one.pid}?", words, "End it", letter), go)

    def action_note(self) -> None:
        """Name, tags and note of a run; of several marked ones the tags alone, each keeping its others."""
        views = self.chosen_runs
        if not views or self.app.refuse_writing():
            return
        if len(views) > 1:
            self._tag_several(views)
            return
        view = views[0]

        def save(answer: dict[str, str] | None) -> None:
            if answer is not None:
                tags = tags_in(answer["tags"])
                name, note = answer["name"], answer["note"]
                self.app.in_thread(lambda: write_notes(view.run, name=name, tags=tags, note=note))

        notes = view.notes
        fields = [
            ("tags", "Tags, separated by spaces", " ".join(notes.tags)),
            ("note", "Note", notes.note),
            ("name", "Name shown instead of its preset's", notes.name),
        ]
        self.app.push_screen(Form(f"Tags and note: {view.id}", fields), save)

    def _tag_several(self, views: list[RunView]) -> None:
        def save(answer: dict[str, str] | None) -> None:
            if answer is None:
                return
            add = [tag for tag in tags_in(answer["tags"]) if not tag.startswith("-")]
            drop = {tag.removeprefix("-") for tag in tags_in(answer["tags"]) if tag.startswith("-")}

            def write() -> None:
                for view in views:
                    kept = [tag for tag in dict.fromkeys([*view.notes.tags, *add]) if tag not in drop]
                    write_notes(view.run, tags=kept)

            self.app.in_thread(write)

        field = ("tags", "Tags to add; -tag takes one away", "")
        self.app.push_screen(Form(f"Tags of {len(views)} runs", [field]), save)

    def action_rename(self) -> None:
        view = self.selected
        if view is None or self.app.refuse_writing():
            return

        def save(answer: dict[str, str] | None) -> None:
            if answer is not None:
                self.app.in_thread(lambda: write_notes(view.run, name=answer["name"]))

        field = ("name", "Name shown instead of its preset's; nothing takes it away", view.notes.name)
        self.app.push_screen(Form(f"Rename {view.id}", [field]), save)

    def action_columns(self) -> None:
        from oelm_tui.screens.columns import Columns

        def apply(names: list[str] | None) -> None:
            self.app.keep(columns=names)
            self.runs_table.choose_columns(names)
            self.want_losses()

        self.app.push_screen(Columns(self.app.settings.columns, apply))

    def action_seen(self) -> None:
        self.app.mark_seen(self.chosen_runs)

    def action_copy_id(self) -> None:
        if self.selected:
            self.app.copy(self.selected.id, "id")

    def action_copy_path(self) -> None:
        if self.selected:
            self.app.copy(str(self.selected.run.folder.path), "path")

    def action_full_log(self) -> None:
        if self.chosen_runs:
            self.app.open_log(self.chosen_runs)


def tags_in(text: str) -> list[str]:
    return text.replace(",", " ").replace("#", " ").split()
