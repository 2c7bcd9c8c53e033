"""What we use of Textual's private API, here and nowhere else.

Tried with Textual 8.2.5, 8.2.6 and 8.2.8; before 8.2.5 there are no themes for 16 colours. With another version than
FIRST .. BELOW none of it is touched: a crash then prints Textual's own traceback, and GNU screen copies nothing.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from textual.app import App
from textual.screen import Screen

FIRST, BELOW = (8, 2, 5), (9, 0, 0)
"""The versions of pyproject.toml."""


def is_known(version: str = "") -> bool:
    """Whether this Textual (the installed one) is of the versions tried. Asked late: reading a version takes 10 ms."""
    if not version:
        from textual import __version__ as version
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)  # of 8.3.0rc1 too: this is asked while the app crashes
    return numbers is not None and FIRST <= tuple(map(int, numbers.groups())) < BELOW


def command_palette(placeholder: str) -> Screen[Any]:
    """Textual's palette, which a page key pressed before its list is laid out does not end (a KeyError in 8.2)."""
    from textual.command import CommandPalette

    class Palette(CommandPalette):
        def _action_command_list(self, action: str) -> None:
            with contextlib.suppress(KeyError):
                super()._action_command_list(action)

    return Palette(placeholder=placeholder, id="--command-palette")


class HookedApp(App[None]):
    """An app that hears of its own crash, leaves the terminal clean after it, and can write to the terminal."""

    def crashed(self, error: Exception) -> None:
        """Something that nobody caught; the app ends."""
        raise NotImplementedError

    def write_to_terminal(self, codes: str) -> None:
        """Control codes as they are, past the screen's drawing."""
        if is_known() and self._driver is not None:
            self._driver.write(codes)

    def _handle_exception(self, error: Exception) -> None:
        self.crashed(error)
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Nothing is printed: the traceback is in a file."""
        if is_known():
            self._exit_renderables.clear()
        else:
            super()._print_error_renderables()
