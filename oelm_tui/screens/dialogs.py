"""Small dialogs: a confirmation that says what will happen, a form of one or two fields, the help."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Static

from oelm_core.errors import LabError
from oelm_tui.actions import ACTIONS, bindings, shown_key
from oelm_tui.text import Line, heading
from oelm_tui.widgets.field import Field
from oelm_tui.widgets.lines import ScrollLines

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp


class Dialog(Vertical):
    """The box of a dialog."""

    def __init__(self, title: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes="dialog")
        self.border_title = Content(title)


class Confirm(ModalScreen[bool]):
    """Says what will happen and asks. `y` or the button does it; anything else leaves things as they are."""

    BINDINGS = bindings("question")

    def __init__(self, title: str, what: Sequence[str], button: str, danger: bool = False) -> None:
        super().__init__()
        self._title, self._what, self._button, self._danger = title, what, button, danger

    def compose(self) -> ComposeResult:
        with Dialog(self._title):
            for words in self._what:
                yield Static(words, markup=False)
            with Horizontal(classes="buttons"):
                look: Literal["error", "primary"] = "error" if self._danger else "primary"
                yield Button(f"{self._button} (y)", id="yes", variant=look, compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no" if self._danger else "#yes", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class Form(ModalScreen[dict[str, str] | None]):
    """Named fields with their present values; enter saves, escape cancels. What is refused stays to be corrected."""

    BINDINGS = bindings("form")
    app: OelmApp

    def __init__(
        self,
        title: str,
        fields: Sequence[tuple[str, str, str]],
        endings: Sequence[tuple[str, str]] = (),
        check: Callable[[dict[str, str]], object] = lambda _: None,
    ) -> None:
        """`fields`: (name, label, value). `endings`: (ending, format) to choose from for a file in the first field.

        `check` raises a LabError for what cannot be saved.
        """
        super().__init__()
        self._title, self._fields, self._endings, self._check = title, fields, endings, check

    def compose(self) -> ComposeResult:
        with Dialog(self._title):
            for name, label, value in self._fields:
                yield Label(label, markup=False)
                yield Field(value, id=name, compact=True, select_on_focus=False)
            if self._endings:
                with Horizontal(classes="endings"):
                    for ending, words in self._endings:
                        yield Button(words, id=f"as-{ending}", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Save", id="yes", variant="primary", compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)

    def on_input_submitted(self) -> None:
        self._save()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        name = event.button.id or ""
        if name.startswith("as-"):
            field = self.query(Field).first()
            file = Path(field.value)
            file = file if file.name else file / "compare"
            field.value = str(file.with_suffix(f".{name.removeprefix('as-')}"))
            field.focus()
        elif name == "yes":
            self._save()
        else:
            self.dismiss(None)

    def _save(self) -> None:
        if not self.is_current:  # the second enter of two that came together
            return
        answer = {field.id or "": field.value.strip() for field in self.query(Field)}
        try:
            self._check(answer)
        except LabError as error:
            self.app.say(str(error), bad=True)
            return
        self.dismiss(answer)


class Help(ModalScreen[None]):
    """All keys, made from the registry of actions."""

    BINDINGS = bindings("help")

    def compose(self) -> ComposeResult:
        with Dialog("Keys (esc closes)", id="help"):
            yield ScrollLines(id="keys")

    def on_mount(self) -> None:
        self.query_one(ScrollLines).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        text = self.query_one(ScrollLines)
        text.show(help_lines(text.size.width))


def help_lines(width: int = 80) -> list[Line]:
    """Every action by group."""
    groups: dict[str, list[Line]] = {}
    for action in ACTIONS:
        keys = " ".join(shown_key(key) for key in action.keys.split(","))
        first, *more = textwrap.wrap(action.help, max(20, width - 28))
        line: Line = [(f"  {keys:<11}", "key"), (f"{action.title:<14}", ""), (first, "faint")]
        groups.setdefault(action.group, []).extend([line, *([(" " * 27 + rest, "faint")] for rest in more)])
    lines: list[Line] = []
    for title, group in groups.items():
        lines += [heading(title), *group, []]
    lines += [heading("The filter"), *_FILTER_HELP]
    return lines


_FILTER_HELP: list[Line] = [
    [("  state:running,waiting    ", "key"), ("one of several states", "faint")],
    [("  family:gpt method:oelm   ", "key"), ("all must hold; text by what it contains", "faint")],
    [("  lr>=1e-3 step>10k seed:42", "key"), ("numbers, of any setting (train.lr or lr)", "faint")],
    [("  -tag:old reason!=oom     ", "key"), ("not", "faint")],
    [('  "tiny stories"           ', "key"), ("in id, title, method, data, tags and note", "faint")],
]
