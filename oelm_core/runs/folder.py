"""One run is one folder: where its files are, and how they are written so that no reader sees half of one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm_core.errors import Refused

RUN_ID = re.compile(r"^(?P<preset>.+)-s(?P<seed>-?\d+)-(?P<stamp>\d{8}-\d{6})-[0-9a-f]{4}$")


def home() -> Path:
    """`$OELM_HOME`, else `./.oelm` if it exists, else `~/.oelm`."""
    named = os.environ.get("OELM_HOME")
    if named:
        return Path(named).expanduser().absolute()
    here = Path.cwd() / ".oelm"
    return here if here.is_dir() else Path.home() / ".oelm"


def runs_dir() -> Path:
    return home() / "runs"


class RunFolder:
    """Paths of one run's files, and safe reading and writing of them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "training.log"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    @property
    def losses(self) -> Path:
        return self.path / "losses"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the run, or None when it is missing or unreadable."""
        return read_json(self.path / f"{name}.json")

    def write(self, name: str, content: Any, *, durable: bool = True) -> None:
        write_json(self.path / f"{name}.json", content, durable=durable)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: Any, *, durable: bool = True, indent: int | None = 1) -> None:
    """Replaces the file in one step: written beside, flushed to disk, renamed.

    A heartbeat is not worth waiting for the disk (`durable=False`); readers still never see half of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_random_hex(4)}")
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _random_hex(size: int) -> str:
    return os.urandom(size).hex()  # not secrets or tempfile: they cost every waiting runner megabytes


def new_run_id(preset: str, seed: int, now: float | None = None) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{preset}-s{seed}-{stamp}-{_random_hex(2)}"


def create(root: Path, preset: str, seed: int, files: dict[str, Any]) -> RunFolder:
    """A new run folder holding `files` (name -> JSON content, without .json), complete from its first moment.

    It is filled beside and renamed into place, so a full disk leaves nothing behind and two runs never share one.
    """
    with _as_refusal(f"cannot create a run in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        draft = root / f".new-{_random_hex(6)}"
        draft.mkdir()
        try:
            for name in ("attempts", "checkpoints"):
                (draft / name).mkdir()
            run_id = _name_not_taken(root, preset, seed)
            for name, content in files.items():
                write_json(draft / f"{name}.json", {**content, "id": run_id} if name == "run" else content)
            os.rename(draft, root / run_id)  # fails rather than merge: a run folder is never empty
            return RunFolder(root / run_id)
        except BaseException:
            remove_tree(draft)
            raise


def remove_tree(path: Path) -> None:
    """Removes a folder and all in it, as far as it can."""
    import shutil  # heavy, and the runner never needs it

    shutil.rmtree(path, ignore_errors=True)


def _name_not_taken(root: Path, preset: str, seed: int) -> str:
    while True:
        run_id = new_run_id(preset, seed)
        if not (root / run_id).exists():
            return run_id


@contextlib.contextmanager
def _as_refusal(what: str) -> Iterator[None]:
    """Disk and permission errors become one sentence and exit code 4."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{what}: {error.strerror or error}.") from None
