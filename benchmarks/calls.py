"""A variant that is only a function to be called."""

from __future__ import annotations

from collections.abc import Callable


class Calls:
    """Makes `steps` calls of a function; `keep` lives as long as it does."""

    def __init__(self, call: Callable[[], object], steps: int = 1, keep: object = None) -> None:
        self.call, self.steps, self.keep = call, steps, keep
        self.about: dict[str, float] = {}

    def __call__(self) -> None:
        for _ in range(self.steps):
            self.call()
