"""What the person at this screen prefers, kept in tui.json beside the runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import read_json, write_json


@dataclass(frozen=True)
class Settings:
    theme: str = ""
    bell: bool = True
    """Ring when a run needs a look."""
    toasts: bool = True
    """Say so in a corner of the screen, too."""
    log_colours: bool = True
    """Show the colours that a log brings along."""

    @classmethod
    def read(cls, home: Path) -> Settings:
        """Missing, broken or foreign files give the defaults."""
        content = read_json(home / "tui.json") or {}
        usual = asdict(cls())
        return cls(**{key: content[key] for key in usual if type(content.get(key)) is type(usual[key])})

    def changed(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        write_json(home / "tui.json", asdict(self))
