"""The command palette, filled from the registry of actions."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from oelm_tui.actions import ACTIONS, Action

_INSIDE = {"home": ("curves", "log"), "fulllog": ("log",)}
"""What a screen holds that has actions of its own."""


class LabCommands(Provider):
    """Every action of the screen in front and of the app."""

    def _actions(self) -> list[Action]:
        place = type(self.screen).__name__.lower()
        places = {"app", place, *_INSIDE.get(place, ())}
        return [action for action in ACTIONS if action.palette and action.where in places]

    async def _run(self, action: Action) -> None:
        if action.where == "app":
            await self.app.run_action(f"app.{action.name}")
        elif action.where in ("curves", "log"):
            target = self.screen.query("Chart" if action.where == "curves" else "LogView").first()
            await self.app.run_action(action.name, target)
        else:
            await self.app.run_action(action.name, self.screen)

    async def discover(self) -> Hits:
        for action in self._actions():
            yield DiscoveryHit(self._title(action), partial(self._run, action), help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            title = self._title(action)
            score = max(matcher.match(title), matcher.match(action.help) * 0.8)
            if score > 0:
                yield Hit(score, matcher.highlight(title), partial(self._run, action), help=action.help)

    @staticmethod
    def _title(action: Action) -> str:
        return f"{action.group}: {action.title} ({action.first_key})".replace("[", "\\[")
