"""What several cards bring, said on stderr before runs on them start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oelm_tui.console import note

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.launch.request import LaunchRequest


def say_what_cards_bring(request: LaunchRequest, arms: Iterable[Experiment]) -> None:
    """One line an arm; nothing where each run takes one card."""
    if request.launcher == "local" and request.per_run < 2:
        return
    from oelm_core import scaling
    from oelm_core.launch.device_request import probe
    from oelm_core.runs.store import list_runs

    cards = probe() or [] if request.launcher == "local" else []
    places = [(arm, scaling.place_of(request, cards, arm.slurm)) for arm in arms]
    runs = list_runs() if any(place for _, place in places) else []
    for arm, place in places:
        if place is not None:
            note(f"{arm.id} on {scaling.outlook(arm, runs, place)}")
