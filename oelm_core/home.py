"""Where the lab keeps things. Apart from the run folders' own module, so that presets are read without the schema."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$OELM_HOME`, else `./.oelm` if it exists, else `~/.oelm`."""
    named = os.environ.get("OELM_HOME")
    if named:
        return Path(named).expanduser().absolute()
    here = Path.cwd() / ".oelm"
    return here if here.is_dir() else Path.home() / ".oelm"


def runs_dir() -> Path:
    return home() / "runs"
