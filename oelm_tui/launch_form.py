"""The launch form's texts as a launch request, and whether it could start at once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.errors import BadInput
from oelm_tui.snapshots.cards import owner_of

if TYPE_CHECKING:
    from oelm_core.devices.card import Card
    from oelm_core.launch.request import LaunchRequest


@dataclass(frozen=True)
class LaunchForm:
    """What the form says, as it was typed."""

    arms: tuple[str, ...]
    study: str | None = None
    device: str = "auto"
    per_run: str = "1"
    seeds: str = ""
    settings: str = ""
    after: str = ""
    launcher: str = "local"
    presets: str = ""
    """The folder of the user's own presets, when the screen was opened with one."""

    def request(self) -> LaunchRequest:
        """BadInput names the field that cannot be read."""
        from oelm_core.launch.request import LaunchRequest

        return LaunchRequest(
            presets=() if self.study else self.arms,
            study=self.study,
            seeds=self._seeds(),
            settings=self.setting_texts(),
            device=self.device,
            per_run=self.cards_per_run(),
            after=self.after or None,
            launcher=self.launcher,
            catalogue=self.presets or None,
        )

    def _seeds(self) -> tuple[int, ...]:
        """As `--seeds` takes them; none means the preset's own (or the study's list)."""
        from oelm_core.config.seeds import parse_seeds

        return parse_seeds(self.seeds.strip(), "seeds") if self.seeds.strip() else ()

    def cards_per_run(self) -> int:
        if not self.per_run.strip().isdigit() or int(self.per_run) < 1:
            raise BadInput(f"cards per run '{self.per_run}': write a whole number, at least 1.")
        return int(self.per_run)

    def setting_texts(self) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(self.settings))
        except ValueError:
            raise BadInput("settings: a quote is not closed.") from None


def would_wait(form: LaunchForm, cards: Sequence[Card]) -> str:
    """Why the first run could not start at once, in a sentence; nothing when it can."""
    if form.device == "cpu" or not cards:
        return ""
    named = form.device.split(",")
    wanted = [card for card in cards if form.device == "auto" or card.label in named]
    free, needed = [card for card in wanted if owner_of(card).kind == "free"], form.cards_per_run()
    if len(free) >= needed:
        return ""
    if needed > 1:
        return f"{needed} free cards are needed and {len(free)} found; choose others, or let it wait"
    which = "every card" if form.device == "auto" else "GPU " + " and ".join(card.label for card in wanted)
    return f"{which} is busy; choose another card, or let it wait"
