"""What is read and closed: all keys, one help topic, or one setting and what the presets set it to."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.screen import ModalScreen

from oelm_core.changes import as_text, flattened
from oelm_tui.actions import ACTIONS, bindings, shown_key
from oelm_tui.help_topics import TOPICS
from oelm_tui.screens.dialogs import Dialog
from oelm_tui.text import Line, heading, named_lines, wrapped
from oelm_tui.widgets.lines import ScrollLines

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


class Explained(ModalScreen[None]):
    """A box of text; `lines` is asked for the width at hand."""

    BINDINGS = bindings("help")
    BOX, TEXT = "explained", "explanation"

    def __init__(self, title: str, lines: Callable[[int], list[Line]]) -> None:
        super().__init__()
        self._title, self._text = title, lines

    def compose(self) -> ComposeResult:
        with Dialog(f"{self._title} (esc closes)", id=self.BOX):
            yield ScrollLines(id=self.TEXT)

    def on_mount(self) -> None:
        self.query_one(ScrollLines).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        text = self.query_one(ScrollLines)
        text.show(self._text(text.size.width))


class Help(Explained):
    """All keys, made from the registry of actions; those of the screen one comes from first."""

    BOX, TEXT = "help", "keys"

    def __init__(self, groups: Sequence[str] = ()) -> None:
        super().__init__("Keys", lambda width: help_lines(width, groups))


def help_lines(width: int = 80, order: Sequence[str] = ()) -> list[Line]:
    """Every action by group, in this order of groups as far as it goes."""
    groups: dict[str, list[Line]] = {title: [] for title in order}
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


def topic_lines(title: str, width: int) -> list[Line]:
    text = next((one.text for one in TOPICS if one.title == title), "")
    lines: list[Line] = []
    for paragraph in text.splitlines():
        example = paragraph.startswith("  ")
        lines += [[(f"  {paragraph}", "key")]] if example else wrapped(paragraph, width, indent=" ")
    return lines


def setting_lines(key: str, catalogue: Catalogue, width: int) -> list[Line]:
    """What a setting means, what it takes, and what the presets set it to, the most frequent value first."""
    from oelm_core.config import as_dict
    from oelm_core.config.setting_keys import setting_keys

    known = setting_keys()[key]
    lines = wrapped(known.meaning or "No more is said of it than its name.", width, indent=" ")
    if known.values:
        lines += [[], *named_lines("takes", ", ".join(known.values), width, 10)]
    lines += [[], *named_lines("try it", f"oelm run PRESET --set {key}=...", width, 10, "key"), []]
    by_value: dict[str, list[str]] = {}
    for arm in catalogue.experiments.values():
        by_value.setdefault(as_text(flattened(as_dict(arm)).get(key)), []).append(arm.id)
    lines.append(heading("What the presets set it to"))
    for value, arms in sorted(by_value.items(), key=lambda item: -len(item[1])):
        named = ", ".join(arms[:4]) + (f" and {len(arms) - 4} more" if len(arms) > 4 else "")
        lines += named_lines(value, f"{len(arms)}: {named}", width, max(12, min(30, len(value) + 4)))
    return lines
