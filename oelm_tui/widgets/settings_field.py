"""The field for settings: knows the word under its cursor, what it may become, and completes it with tab."""

from __future__ import annotations

from oelm_tui.actions import bindings
from oelm_tui.widgets.field import Field


class SettingsField(Field):
    BINDINGS = bindings("settings")

    @property
    def word(self) -> str:
        """What stands between the last space and the cursor."""
        return self.value[: self.cursor_position].rpartition(" ")[2]

    def completed(self) -> str:
        """The word as tab would leave it: as far as all that it may become agree, else the first of them."""
        from oelm_core.config.setting_keys import completions

        found = [one.word for one in completions(self.word)] if self.word else []
        if not found:
            return self.word
        common = _common_start(found)
        return common if len(common) > len(self.word) and common.startswith(self.word) else found[0]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tab goes on to the next field where there is nothing to complete."""
        return action != "complete" or self.completed() != self.word

    def action_complete(self) -> None:
        before, word = self.value[: self.cursor_position], self.word
        start = before[: len(before) - len(word)] + self.completed()
        self.value = start + self.value[self.cursor_position :]
        self.cursor_position = len(start)


def _common_start(words: list[str]) -> str:
    """
    >>> _common_start(["train.lr=", "train.log_every="]), _common_start(["a"]), _common_start(["a", "b"])
    ('train.l', 'a', '')
    """
    least, most = min(words), max(words)
    same = next(
        (place for place, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least)
    )
    return least[:same]
