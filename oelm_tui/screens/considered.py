"""A screen on which something is started, stopped or deleted: only by a key that was pressed in sight of it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from textual.screen import Screen

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp

GRACE = 0.3
"""Seconds after it was drawn: nobody reads faster, but the rest of what was being typed comes that late."""


class Considered(Screen):  # type: ignore[type-arg]
    app: OelmApp
    _drawn = math.inf

    def on_screen_resume(self) -> None:
        if self._drawn == math.inf:
            self.call_after_refresh(self._note_time)

    def _note_time(self) -> None:
        self._drawn = time.monotonic()

    @property
    def is_drawn(self) -> bool:
        return self._drawn < math.inf

    @property
    def is_considered(self) -> bool:
        """Whether the key or click being answered was made when the screen could have been read."""
        return self.app.input_time >= self._drawn + GRACE
