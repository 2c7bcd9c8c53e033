"""Where the lab keeps things. Apart from the run folders' own module, so that presets are read without the schema."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from oelm_core.errors import BadInput, Refused


def home() -> Path:
    """`$OELM_HOME`, else `./.oelm` if it exists, else `~/.oelm`. It need not be there yet, but it can be.

    BadInput for a name that no folder can have, Refused for one that the machine keeps us out of.
    """
    named = os.environ.get("OELM_HOME")
    if named:
        return _possible(_checked(_expanded(named)))
    here = Path.cwd() / ".oelm"
    return _checked(here if here.is_dir() else _expanded("~/.oelm"))


def _expanded(named: str) -> Path:
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError:  # pathlib: no such user
        user = Path(named).parts[0]
        raise BadInput(f"OELM_HOME: the home of {_short(user)} is not known; write the whole path.") from None


_NAMES = {errno.ENAMETOOLONG: "the name is too long", errno.ENOTDIR: "a part of it is a file, not a folder"}


def _checked(path: Path) -> Path:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return path
    except OSError as error:
        if error.errno in _NAMES:
            raise BadInput(f"OELM_HOME {_short(str(path))}: {_NAMES[error.errno]}.") from None
        raise Refused(f"OELM_HOME {_short(str(path))} cannot be used: {error.strerror}.") from None
    if not stat.S_ISDIR(mode):
        raise BadInput(f"OELM_HOME {_short(str(path))} is not a folder.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise Refused(f"OELM_HOME {_short(str(path))} cannot be used: you may not read it.")
    return path


def _possible(path: Path) -> Path:
    """Refused for a folder that is not there and cannot be made."""
    there = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    is_open = os.access(there, os.W_OK | os.X_OK) and os.stat(there).st_mode & 0o222  # root may write in /proc, in vain
    if there != path and not is_open:
        raise Refused(f"OELM_HOME {_short(str(path))} cannot be made: you may not write in {_short(str(there))}.")
    return path


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:60]}...{text[-40:]}"


def runs_dir() -> Path:
    return home() / "runs"
