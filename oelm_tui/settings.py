"""What the person at this screen prefers, kept in tui.json beside the runs."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from oelm_core.runs.folder import read_record, write_record


class Settings(Struct, frozen=True):
    theme: str = ""
    bell: bool = True
    """Ring when a run needs a look."""
    toasts: bool = True
    """Say so in a corner of the screen, too."""
    log_colours: bool = True
    """Show the colours that a log brings along."""
    columns: list[str] | None = None
    """Of the runs table, besides those always there; all that find room unless chosen."""

    @classmethod
    def read(cls, home: Path) -> Settings:
        """Missing, broken or foreign files give the defaults."""
        return read_record(home / "tui.json", cls, follow=True) or cls()

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        write_record(home / "tui.json", self)
