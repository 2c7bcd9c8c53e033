"""Keys one at a time: the next is looked at when all that the one before set off has been done.

Textual hands a key to whoever has the focus when it arrives, but moves the focus only later. When a slow link delivers
`/family:gpt` in one piece, `f` would still go to the table, and so would the `y` after it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event

LOST_AFTER = 1.0
"""Seconds after which somebody looks whether a key's end went missing with a widget that was taken away."""


class KeyQueue:
    """`deliver` gives a key to the app as Textual would. Everything here runs in the app's own task."""

    def __init__(self, app: App[None], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self._app, self._deliver = app, deliver
        self._waiting: deque[Event] = deque()
        self._number = 0
        self._since = 0.0
        self.idle = True

    async def arrive(self, event: Event) -> None:
        self._waiting.append(event)
        if self.idle:
            await self._next(self._number)

    def look_after(self) -> None:
        """Called now and then: keys must not wait for ever."""
        if not self.idle and time.monotonic() - self._since > LOST_AFTER:
            self._since = time.monotonic()
            self._follow(self._place(), self._number, again=True)

    async def _next(self, number: int) -> None:
        if number != self._number:  # this key's end was seen before
            return
        self._number += 1
        self.idle = not self._waiting
        if self._waiting:
            self._since = time.monotonic()
            place = self._place()
            await self._deliver(self._waiting.popleft())
            self._follow(place, self._number, again=True)

    def _place(self) -> DOMNode:
        return self._app.focused or self._app.screen

    def _follow(self, place: DOMNode | None, number: int, again: bool) -> None:
        """Goes the key's way, one call behind it: through the queue of the focus and of all that stands around it.

        Then once more from where the focus is by now, which is behind the making of a screen that the key opened; a
        focus that was asked for on that way is set before the last call.
        """
        if place is not None and place is not self._app:
            if place.call_later(self._follow, place.parent, number, again):
                return
        elif again and self._app.call_later(lambda: self._follow(self._place(), number, again=False)):
            return
        self._app.call_later(self._next, number)
