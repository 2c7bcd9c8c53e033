"""A bridge as a process of its own: `python -m oelm_core.mirror --of=RUN-FOLDER --to=TARGET`, started by the runner."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from oelm_core.errors import LabError
from oelm_core.runs.folder import RunFolder


def main() -> int:
    arguments = dict(part.partition("=")[::2] for part in sys.argv[1:])
    folder, target = RunFolder(Path(arguments["--of"])), arguments["--to"]
    with contextlib.suppress(OSError):  # as its runner: what it writes is for whom the folder is for
        os.umask(~os.stat(folder.path).st_mode & 0o777)
    _own_words(folder, target)
    from oelm_core.mirror.bridge import follow

    try:
        problem = follow(folder, target)
    except LabError as error:
        problem = str(error)
    if problem is None:
        return 0
    with contextlib.suppress(OSError), open(folder.log, "a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} report_to {target}: {problem}\n")
    return 1


def _own_words(folder: RunFolder, target: str) -> None:
    """What the libraries print goes into mirror/TARGET.log; the run's own log stays its own."""
    with contextlib.suppress(OSError):
        inside = folder.path / "mirror"
        inside.mkdir(exist_ok=True)
        log = os.open(inside / f"{target}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)


if __name__ == "__main__":
    sys.exit(main())
