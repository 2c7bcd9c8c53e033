"""What the person at this screen prefers, kept in tui.json beside the runs: theme and bell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import read_json, write_json


@dataclass(frozen=True)
class Settings:
    theme: str = ""
    bell: bool = True

    @classmethod
    def read(cls, home: Path) -> Settings:
        """Missing, broken or foreign files give the defaults."""
        content = read_json(home / "tui.json") or {}
        theme, bell = content.get("theme"), content.get("bell")
        return cls(theme if isinstance(theme, str) else "", bell if isinstance(bell, bool) else True)

    def changed(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        write_json(home / "tui.json", asdict(self))
