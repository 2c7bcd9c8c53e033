"""Launch: one or several presets or a study; devices, seeds and settings on the left, what will happen on the right."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Button, Checkbox, Label

from oelm_core.devices.card import Card
from oelm_core.errors import LabError
from oelm_tui import glyphs
from oelm_tui.actions import bindings
from oelm_tui.launch_form import LaunchForm, would_wait
from oelm_tui.render.launch import (
    DEVICE_COLUMNS,
    changed_lines,
    command_lines,
    completion_lines,
    device_rows,
    recipe_lines,
    run_lines,
)
from oelm_tui.screens.considered import Considered
from oelm_tui.screens.dialogs import Confirm
from oelm_tui.snapshots.background import BackgroundThread
from oelm_tui.snapshots.cards import owner_of
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot
from oelm_tui.text import Line, wrapped
from oelm_tui.widgets.bars import ActionTabs
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import ScrollLines
from oelm_tui.widgets.row_table import RowTable
from oelm_tui.widgets.settings_field import SettingsField

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.estimate import Cost
    from oelm_core.scaling import CardPlace


class Tick(Checkbox):
    """A check box whose mark is there or not, whatever the colours."""

    def render(self) -> Content:
        label = self.label.pad(1, 1).stylize_before(self.get_visual_style("toggle--label"))
        return Content.assemble(("[", "dim"), ("x" if self.value else " ", "bold"), ("]", "dim"), label)


@dataclass(frozen=True)
class CostRequest:
    """What would these cost on this kind of device, judged by these runs?"""

    experiments: tuple[Experiment, ...]
    on: str
    views: tuple[RunView, ...] = field(default=(), compare=False)
    place: CardPlace | None = None
    """Of runs that take several cards."""
    card: str = ""
    """`cpu`, or the name of the first card that it may take; "" where that is not known."""


@dataclass(frozen=True)
class CostAnswer:
    """By id of the experiment: its cost, what is at its data.path, and why that would not do."""

    request: CostRequest
    costs: dict[str, Cost] = field(default_factory=dict)
    looked: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def cost_of(request: CostRequest) -> CostAnswer:
    """Reads earlier runs and looks for the data, so it is done in a thread."""
    from oelm_core.data.look import words_on
    from oelm_core.estimate import estimate
    from oelm_core.forecast import with_time
    from oelm_core.published.parameters import known_count

    runs = [view.run for view in request.views]
    paces = {view.id: view.pace for view in request.views if view.pace}
    costs = {one.id: estimate(one, runs, request.on, paces) for one in request.experiments}
    for one in request.experiments:
        if costs[one.id].parameters is None and (count := known_count(one)):  # a decoder: presets' cards count it
            costs[one.id] = replace(costs[one.id], parameters=count.total, frozen=count.frozen)
    if request.card:
        costs = {one.id: with_time(costs[one.id], one, request.card) for one in request.experiments}
    answer = CostAnswer(request, costs)
    if request.place is not None:
        from oelm_core.scaling import outlook

        for one in request.experiments:
            answer.costs[one.id] = replace(answer.costs[one.id], together=outlook(one, runs, request.place))
    for one in request.experiments:
        try:
            answer.looked[one.id] = words_on(one.data)
        except LabError as error:
            answer.problems[one.id] = str(error)
        except OSError as error:
            answer.problems[one.id] = f"data.path {one.data.path}: {error.strerror or error}."
    return answer


class Launch(Considered, Screen[bool | None]):
    """Closes with True when something was launched."""

    BINDINGS = bindings("launch")
    AUTO_FOCUS = ""

    @dataclass
    class Costed(Message):
        answer: CostAnswer

    def __init__(self, arms: Sequence[str], study: str | None) -> None:
        super().__init__()
        self._arms, self._study = tuple(arms), study
        self._chosen: list[str] = ["auto"]
        self._problem = ""
        self._known: CostAnswer | None = None
        self.thread: BackgroundThread[CostRequest, CostAnswer] = BackgroundThread(
            "cost", cost_of, lambda a: self.post_message(self.Costed(a)), on_error=lambda e: self.app.report_error(e)
        )

    def compose(self) -> ComposeResult:
        bar = ActionTabs("launch", "go", "copy", "dismiss", id="launch-title")
        bar.set_lead([(f" Launch {self._study or ', '.join(self._arms)} ", "title")])
        yield bar
        with Horizontal(id="launch"):
            with VerticalScroll(id="form", can_focus=False):
                yield Label("Device (space chooses; cards add up)")
                yield RowTable(DEVICE_COLUMNS, id="devices-choice")
                with Horizontal(classes="row"):
                    with Vertical():
                        yield Label("Seeds")
                        yield Field(placeholder="3, 42-44 or 42,77", id="seeds", compact=True)
                    with Vertical():
                        yield Label("Cards per run")
                        yield Field("1", id="per-run", compact=True)
                yield Label("Settings (lr=1e-4 epochs=1; tab completes)")
                yield SettingsField(id="settings", compact=True)
                yield Label("After run (optional)")
                yield Field(placeholder="a run id or @last", id="after", compact=True)
                yield Tick("Wait when the card is busy", True, id="wait", compact=True)
                absent = shutil.which("sbatch") is None
                words = "Hand it to Slurm" + " (no sbatch here)" * absent
                yield Tick(words, False, id="slurm", compact=True, disabled=absent)
                with Horizontal(classes="buttons"):
                    yield Button("Launch", id="go", variant="primary", compact=True)
            yield ScrollLines(id="recipe")

    def on_mount(self) -> None:
        self.query_one("#form").border_title = "How"
        self.query_one("#recipe").border_title = "What"
        self.query_one("#devices-choice", RowTable).focus(scroll_visible=False)
        self.watch(self.app, "snapshot", self.show_snapshot)
        self._show_choice()

    def on_resize(self) -> None:
        self.set_class(self.size.width < 100, "-narrow")
        self.call_after_refresh(self._fill)

    # What is chosen

    def form(self) -> LaunchForm:
        return LaunchForm(
            self._arms,
            self._study,
            ",".join(self._chosen),
            self._value("per-run"),
            self._value("seeds"),
            self._value("settings"),
            self._value("after").strip(),
            "slurm" if self._to_slurm else "local",
            self.app.presets_folder,
        )

    @property
    def _to_slurm(self) -> bool:
        return self.query_one("#slurm", Checkbox).value

    def _value(self, name: str) -> str:
        return self.query_one(f"#{name}", Field).value

    def show_snapshot(self, snapshot: LabSnapshot | None) -> None:
        if snapshot is not None:
            names = {view.id: view.run.preset for view in snapshot.runs if view.is_live}
            self.query_one("#devices-choice", RowTable).set_rows(device_rows(snapshot.machine, names))
            if not self.query_one("#recipe", ScrollLines).shown:
                self._fill()

    def on_row_table_chosen(self) -> None:
        self.action_choose_device()

    def action_choose_device(self) -> None:
        """auto and cpu stand alone; cards add up."""
        key = self.query_one("#devices-choice", RowTable).key
        if key is None:
            return
        if key in ("auto", "cpu"):
            self._chosen = [key]
        else:
            cards = [card for card in self._chosen if card not in ("auto", "cpu")]
            self._chosen = [card for card in cards if card != key] if key in cards else sorted([*cards, key])
            self._chosen = self._chosen or ["auto"]
        self._show_choice()

    def _show_choice(self) -> None:
        table = self.query_one("#devices-choice", RowTable)
        table.marked = set(self._chosen)
        table.refresh()
        self._fill()

    def on_input_changed(self) -> None:
        self._fill()

    def on_checkbox_changed(self) -> None:
        self._fill()

    def on_descendant_focus(self) -> None:
        self._fill()  # what the settings may be is shown while they are typed

    # What it means

    def _checked(self) -> list[Experiment]:
        """The experiments, or none with the problem said."""
        snapshot = self.app.snapshot
        if snapshot is None or snapshot.catalogue is None:
            return []
        try:
            found = self.form().request().experiments(snapshot.catalogue)
            self._problem = ""
        except LabError as error:
            self._problem = str(error)
            return []
        return found

    def _fill(self) -> None:
        snapshot = self.app.snapshot
        text = self.query_one("#recipe", ScrollLines)
        width = max(30, text.size.width)
        found = self._checked()
        lines: list[Line] = []
        field = self.query_one(SettingsField)
        if field.has_focus:
            lines += completion_lines(field.word, found or self._unchanged(), width)
        if self._problem:
            lines += [[(f"{glyphs.signs.bad} cannot be launched", "bad")], *wrapped(self._problem, width, "bad"), []]
        elif snapshot is not None and snapshot.catalogue is not None:
            request = self.form().request()
            runs = request.run_count(snapshot.catalogue)
            no_card = snapshot.machine is not None and not snapshot.machine.cards
            auto = "Slurm's choice" if self._to_slurm else "the processor" if no_card else "the first free card"
            where = {"auto": auto, "cpu": "the processor"}.get(request.device, f"GPU {request.device}")
            own = snapshot.catalogue.study(request.study).seeds if request.study else ()
            lines += [[(f"{runs} run{'s' * (runs != 1)} on {where}", "label")]]
            lines += [*run_lines(request, found, own, width), []]
            lines += changed_lines(request.settings, found)
            lines += [*command_lines(request, width), []]
            known = self._known_of(found, snapshot)
            for one in found:
                name = one.id
                looked, problem = known.looked.get(name, ""), known.problems.get(name, "")
                lines += recipe_lines(one, known.costs.get(name), width, looked, problem)
        text.show(lines)
        self.query_one("#go", Button).disabled = bool(self._problem)

    def _card_name(self, snapshot: LabSnapshot) -> str:
        """Of the first card that a run may take; of another machine's it is not known."""
        cards = snapshot.machine.cards if snapshot.machine and not self._to_slurm else ()
        names = self.form().device.split(",")
        return next((card.name for card in cards if card.name and (names == ["auto"] or card.label in names)), "")

    def _known_of(self, found: list[Experiment], snapshot: LabSnapshot) -> CostAnswer:
        """What is known of costs and data; asks for it when something was changed."""
        cards = bool(snapshot.machine and snapshot.machine.cards)
        device = self.form().device
        on = "cpu" if device == "cpu" or (device == "auto" and not cards and not self._to_slurm) else "gpu"
        place = self._place() if on == "gpu" else None
        request = CostRequest(tuple(found), on, snapshot.runs, place, self._card_name(snapshot) if on == "gpu" else on)
        if self._known is None or request != self._known.request:
            self._known = CostAnswer(request)
            self.thread.ask(request)
        return self._known

    def _place(self) -> CardPlace | None:
        """Where runs that take several cards would be."""
        if self.form().cards_per_run() == 1:
            return None
        from oelm_core.scaling import place_of

        return place_of(self.form().request(), self._cards())

    def on_launch_costed(self, event: Costed) -> None:
        if self._known is not None and event.answer.request == self._known.request:
            self._known = event.answer
            self._fill()

    def _unchanged(self) -> list[Experiment]:
        """The arms as their presets have them, while what is being typed cannot be read yet."""
        catalogue = self.app.snapshot.catalogue if self.app.snapshot else None
        try:
            return replace(self.form(), settings="").request().experiments(catalogue) if catalogue else []
        except LabError:
            return []

    def on_unmount(self) -> None:
        self.thread.close()

    # Going

    def action_go(self) -> None:
        if not self.is_considered:
            self.app.say("nothing was started: that key came before the form was on the screen")
            return
        if self._problem or not self._checked():
            self.app.say(self._problem or "the presets are still being read", bad=True)
            return
        if not self._to_slurm and self._known is not None and self._known.problems:
            self.app.say(next(iter(self._known.problems.values())), bad=True)
            return
        others = self._others_cards()
        may_wait = self.query_one("#wait", Checkbox).value or self._to_slurm
        busy = "" if may_wait else would_wait(self.form(), self._cards())
        if busy:
            self.app.say(busy, bad=True)
        elif others:
            self.app.push_screen(
                Confirm(
                    "Someone else is on this card",
                    [*others, "", "The run will wait in line until the card is free. Queue it anyway?"],
                    "Queue",
                ),
                lambda yes: self._start() if yes else None,
            )
        else:
            self._start()

    def _cards(self) -> tuple[Card, ...]:
        machine = self.app.snapshot.machine if self.app.snapshot else None
        return machine.cards if machine else ()

    def _others_cards(self) -> list[str]:
        if self._to_slurm:
            return []
        return [
            f"GPU {card.label}: {owner_of(card).name}"
            for card in self._cards()
            if card.label in self._chosen and owner_of(card).kind in ("other", "lost")
        ]

    def _start(self) -> None:
        request = self.form().request()
        catalogue = self.app.snapshot.catalogue if self.app.snapshot else None
        if catalogue is None:
            return
        app = self.app  # the form is gone before the thread is done, and then knows its app no more

        def work() -> None:
            folders = request.start(catalogue, request.command(), lambda _: None)
            words = folders[0].id if len(folders) == 1 else f"{len(folders)} runs"
            app.say_from_thread(f"started {words}")
            app.call_from_thread(app.show_run, folders[0].id)

        app.in_thread(work)
        self.dismiss(True)

    def action_copy(self) -> None:
        try:
            self.app.copy(shlex.join(self.form().request().command()), "command")
        except LabError as error:
            self.app.say(str(error), bad=True)

    def on_button_pressed(self) -> None:
        self.action_go()

    def on_input_submitted(self) -> None:
        self.focus_next()
