"""A field to type in that does what was typed in the order it was typed."""

from __future__ import annotations

from textual.events import Key
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input


class Field(Input):
    """Textual puts a letter straight into an Input, but an editing key only after it has travelled up to the app: when
    ssh delivers several keys at once, `ctrl+u` deletes what was typed after it. Here both are done on arrival.
    """

    virtual_size: Reactive[Size] = Reactive(Size(0, 0))
    """How long its text is. Its place is fixed, so a letter lays out nothing anew, as it would the whole screen."""

    async def on_key(self, event: Key) -> None:
        bound = self.screen.active_bindings.get(event.key)
        if bound is None or bound.node is not self or event.is_printable:
            return
        if await self.app.run_action(bound.binding.action, self):  # else it is for who stands around the field
            event.stop()
