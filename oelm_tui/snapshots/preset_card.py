"""The card of the preset under the cursor: made in a thread, with facts that another process finds out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from oelm_tui.snapshots.run_view import RunView

if TYPE_CHECKING:
    from subprocess import Popen

    from oelm_core.config.catalogue import Catalogue
    from oelm_core.preset_card import PresetCard
    from oelm_core.published.facts import CatalogueFacts

FindFacts = Callable[["Catalogue", str, "str | None", "list[Popen[bytes]]"], Iterator["CatalogueFacts"]]
"""More and more facts about presets and their folder, one of them wanted; processes it begins go into the list."""


@dataclass(frozen=True)
class CardRequest:
    key: str
    """`arm/GPT-02` or `study/demo`."""
    catalogue: Catalogue = field(compare=False, repr=False)
    views: tuple[RunView, ...] = field(default=(), compare=False, repr=False)
    on: str = "cpu"
    """The kind of device that the cost is for."""
    presets: str = ""
    """The folder of the user's own presets, for the command."""


@dataclass(frozen=True)
class ShownCard:
    key: str
    card: PresetCard


def mark_of(key: str, catalogue: Catalogue | None, views: tuple[RunView, ...]) -> tuple[object, ...]:
    """Changes when the card would: another preset, other presets, another run of it or another state of one."""
    kind, _, name = key.partition("/")
    arms = {name.lower()}
    if kind == "study" and catalogue is not None and name in catalogue.studies:
        arms = {arm.lower() for arm in catalogue.studies[name].arms}
    of_it = tuple((view.id, view.run.state) for view in views if view.run.preset.lower() in arms)
    return key, id(catalogue), of_it


class CardReader:
    """`read` is for the card thread, `find_out` for the one that waits for the process; both only add to the facts."""

    def __init__(self, find: FindFacts | None = None, keep: bool = True) -> None:
        """`keep`: whether counts may be written into the home."""
        self._find = find
        self._keep = keep
        self._facts: CatalogueFacts | None = None
        self._asked_for: int | None = None
        self.processes: list[Popen[bytes]] = []

    def read(self, request: CardRequest) -> ShownCard | None:
        from oelm_core.estimate import estimate
        from oelm_core.preset_card import PresetFacts, experiment_card, study_card

        kind, _, name = request.key.partition("/")
        catalogue, runs = request.catalogue, [view.run for view in request.views]
        more = ("--presets", request.presets) if request.presets else ()
        if kind == "study" and name in catalogue.studies:
            card = study_card(catalogue.studies[name], catalogue, runs, ("oelm", "study", name, *more))
        elif kind == "arm" and name in catalogue.experiments:
            experiment = catalogue.experiments[name]
            known = self._facts
            facts = PresetFacts(known.counts.get(name), known.about(name)) if known is not None else PresetFacts()
            paces = {view.id: view.pace for view in request.views if view.pace}
            cost = estimate(experiment, runs, request.on, paces)
            card = experiment_card(experiment, catalogue, runs, cost, facts, ("oelm", "run", name, *more))
        else:
            return None
        return ShownCard(request.key, card)

    def find_out(self, request: CardRequest, more: Callable[[], object]) -> None:
        """Once for each reading of the presets, and for a preset not counted by then; `more` is called whenever
        something is new."""
        wanted = request.key.removeprefix("arm/") if request.key.startswith("arm/") else None
        if self._asked_for != id(request.catalogue):
            self._asked_for, self._facts = id(request.catalogue), None
        elif self._facts is None or wanted is None or wanted in self._facts.counts:
            return
        from oelm_core.published.facts import gather

        find = self._find or partial(gather, keep=self._keep)
        for found in find(request.catalogue, request.presets, wanted, self.processes):
            self._facts = found if self._facts is None else self._facts.joined(found)
            more()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
