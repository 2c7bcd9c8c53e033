"""What the person at this screen prefers, kept in tui.json beside the runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import read_record, write_record


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
        content = read_record(home / "tui.json", dict) or {}
        usual = asdict(cls())
        return cls(**{key: content[key] for key in usual if type(content.get(key)) is type(usual[key])})

    def changed(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        write_record(home / "tui.json", asdict(self))
