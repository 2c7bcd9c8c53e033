"""The frozen picture of the lab that travels from the sampling thread to the screen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oelm_tui.snapshots.cards import Machine
from oelm_tui.snapshots.run_view import RunView

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


@dataclass(frozen=True)
class Snapshot:
    """Everything the home screen shows besides the selected run's own files."""

    now: float
    runs: tuple[RunView, ...] = ()
    """Newest first."""
    machine: Machine | None = None
    """None before the first look at the devices."""
    catalogue: Catalogue | None = None
    problem: str = ""
    """Why the runs could not be listed, "" when they could."""
    partial: bool = False
    """Only the newest of many runs; the rest follows at once."""
    by_id: dict[str, RunView] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.by_id.update((view.id, view) for view in self.runs)

    def counts(self) -> Counter[str]:
        counted = Counter(view.run.state for view in self.runs)
        counted["look"] = sum(view.needs_a_look for view in self.runs)
        return counted

    def baseline_of(self, view: RunView) -> RunView | None:
        """The run to hold this one against: newest of its baseline preset, the same seed if there is one."""
        wanted = str(view.run.config.get("baseline") or "").lower()
        found = [other for other in self.runs if wanted and other.run.preset.lower() == wanted and other.run.config]
        same_seed = [other for other in found if other.run.seed == view.run.seed]
        return next(iter(same_seed or found), None)
