"""Small dialogs: a confirmation that says what will happen, a form of one or two fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Static

from oelm_core.errors import LabError
from oelm_core.plain_text import visible
from oelm_tui.actions import bindings
from oelm_tui.screens.considered import Considered
from oelm_tui.widgets.field import Field

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp


class Dialog(Vertical):
    """The box of a dialog."""

    def __init__(self, title: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes="dialog")
        self.border_title = Content(visible(title))


class Confirm(Considered, ModalScreen[bool]):
    """Says what will happen and asks. `letter` or the button does it; anything else leaves things as they are.

    What cannot be undone has a letter of its own, so that no habit answers it.
    """

    BINDINGS = bindings("question")

    def __init__(self, title: str, what: Sequence[str], button: str, letter: str = "y") -> None:
        super().__init__()
        self._title, self._what, self._button, self._letter = title, what, button, letter
        self._danger = letter != "y"

    def compose(self) -> ComposeResult:
        with Dialog(self._title):
            for words in self._what:
                yield Static("\n".join(map(visible, words.split("\n"))), markup=False)
            with Horizontal(classes="buttons"):
                look: Literal["error", "primary"] = "error" if self._danger else "primary"
                yield Button(f"{self._button} ({self._letter})", id="yes", variant=look, compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no" if self._danger else "#yes", Button).focus()

    def action_answer(self, letter: str) -> None:
        if letter == "n" or letter == self._letter:
            self._answer(letter != "n")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self._answer(event.button.id == "yes")

    def _answer(self, yes: bool) -> None:
        if self.is_considered and self.is_current:
            self.dismiss(yes)


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
                yield Label(visible(label), markup=False)
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
