"""One search for everything: presets, studies, runs, settings and help by any word, beside the actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from textual.command import Hit, Hits, Provider
from textual.content import Content

from oelm_tui.help_topics import TOPICS
from oelm_tui.render.preset_rows import words_of

if TYPE_CHECKING:
    from oelm_tui.app import OelmApp
    from oelm_tui.snapshots.run_view import RunView
    from oelm_tui.snapshots.sampler import LabSnapshot

MOST = 12
"""Of each kind; further words narrow it down."""
BEFORE_ACTIONS = 1000.0
"""Textual's score of an action is a few times the letters typed; what is called by the words comes before it."""


class Thing(NamedTuple):
    kind: str
    name: str
    about: str
    words: str
    """Everything it can be found by, lower-case."""
    key: str
    """For who opens it."""


def things(snapshot: LabSnapshot | None) -> Iterator[Iterator[Thing]]:
    """Everything that can be found, kind by kind."""
    catalogue = snapshot.catalogue if snapshot is not None else None
    if catalogue is not None:
        yield (
            Thing("preset", one.id, one.title, words_of(one), f"arm/{one.id}") for one in catalogue.experiments.values()
        )
        yield (
            Thing("study", one.id, one.title, words_of(one), f"study/{one.id}") for one in catalogue.studies.values()
        )
    if snapshot is not None:
        yield (Thing("run", view.id, _of_run(view), f"{view.text} {view.run.state}", view.id) for view in snapshot.runs)
    yield _settings() if catalogue is not None else iter(())
    yield (Thing("help", one.title, one.text.partition(".")[0], one.words, one.title) for one in TOPICS)


def _of_run(view: RunView) -> str:
    return ", ".join(part for part in (view.notes.name, view.run.state, *view.changed, *view.notes.tags) if part)


def _settings() -> Iterator[Thing]:
    from oelm_core.config.setting_keys import setting_keys  # late: pydantic, once the presets are there

    for one in setting_keys().values():
        yield Thing("setting", one.key, one.meaning, f"{one.key} {one.meaning} {' '.join(one.values)}".lower(), one.key)


def find(query: str, snapshot: LabSnapshot | None) -> list[tuple[float, Thing]]:
    """What has every word of the query, best first: called so, begins so, has it in its name, has it somewhere."""
    words = query.lower().split()
    found: list[tuple[float, Thing]] = []
    if not words:
        return found
    whole = " ".join(words)
    for kind in things(snapshot):
        hits = []
        for thing in kind:
            if not all(word in thing.words for word in words):
                continue
            name = thing.name.lower()
            place = 4 if name == whole else 3 if name.startswith(whole) else 2 if whole in name else 1
            hits.append((float(place), thing))
        hits.sort(key=lambda hit: -hit[0])
        found += hits[:MOST]
    return sorted(found, key=lambda hit: -hit[0])


class LabSearch(Provider):
    """Presets, studies, runs, settings and help topics in the command palette."""

    async def search(self, query: str) -> Hits:
        app: OelmApp = self.app  # type: ignore[assignment]
        for number, (place, thing) in enumerate(find(query, app.snapshot)):
            score = (BEFORE_ACTIONS if place > 1 else 0.5) + place - number / 1000
            label = f"{thing.kind}: {thing.name}"
            yield Hit(score, Content(label), self._open(app, thing), text=label, help=thing.about)

    @staticmethod
    def _open(app: OelmApp, thing: Thing) -> Callable[[], object]:
        return lambda: app.open_found(thing.kind, thing.key)
