"""One run is one folder: where its files are, and how they are written so that no reader sees half of one."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oelm_core.errors import refusing
from oelm_core.runs import schema
from oelm_core.runs.schema import Record, RunRecord, RunState
from oelm_core.shared_files import share_alike
from oelm_core.small_files import FileKind, read_small_file

R = TypeVar("R", bound=Record)
S = TypeVar("S")

RUN_ID = re.compile(r"^(?P<preset>.+)-s(?P<seed>-?\d+)-(?P<stamp>\d{8}-\d{6})-[0-9a-f]{4}$")


class _Inside:
    """A file or folder of a run, by its name there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: RunFolder, kind: type[RunFolder]) -> Path:
        return folder.path / self.name


class RunFolder:
    """Paths of one run's files, and safe reading and writing of them."""

    metrics = _Inside("metrics.jsonl")
    samples = _Inside("samples.jsonl")
    log = _Inside("training.log")
    checkpoints = _Inside("checkpoints")
    predictions = _Inside("predictions")
    losses = _Inside("losses")
    attention = _Inside("attention")
    test = _Inside("test")
    later_scores = _Inside("evaluations")
    attempts = _Inside("attempts")

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def id(self) -> str:
        return self.path.name

    def read(self, kind: type[R]) -> R | None:
        """The run's record of this kind, or None when it is missing or does not fit; `problem` then says why."""
        return read_record(self.path / kind.FILE, kind)

    def write(self, record: Record, *, durable: bool = True) -> None:
        write_record(self.path / record.FILE, record, durable=durable)

    def problem(self, kind: type[Record]) -> str | None:
        """Why a record cannot be read, in a sentence that names the file and the key; None when it can."""
        return problem_of(self.path / kind.FILE, kind)

    def unreadable(self, kind: type[Record]) -> str | None:
        """As `problem`, but None for a record that is not there: a run need not have all of them."""
        return self.problem(kind) if os.path.lexists(self.path / kind.FILE) else None


def read_record(path: Path, kind: type[S], *, size: FileKind = "record", follow: bool = False) -> S | None:
    """The record in a file, or None when it is missing, torn, of another shape, or no file to read (small_files.py)."""
    try:
        return schema.decode(read_small_file(path, size, follow=follow), kind)
    except (OSError, schema.Misfit):
        return None


def problem_of(path: Path, kind: type[object], *, size: FileKind = "record", follow: bool = False) -> str | None:
    """`unreadable: <file>, <key>: <why>.`, or None for a record that can be read."""
    try:
        schema.decode(read_small_file(path, size, follow=follow), kind)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        return f"unreadable: {path.name}, {reason[:1].lower()}{reason[1:]}."
    except schema.Misfit as misfit:
        return f"unreadable: {path.name}, {misfit}."
    return None


def write_record(path: Path, record: Any, *, durable: bool = True) -> None:
    """Replaces the file in one step: written beside, flushed to disk, renamed.

    A heartbeat is not worth waiting for the disk (`durable=False`); readers still never see half of it.
    """
    replace_file(path, schema.encode_file(record), durable=durable)


def create_record(path: Path, record: Any) -> None:
    """Makes the file, complete from its first moment; FileExistsError when somebody else was quicker."""
    with _written_beside(path, schema.encode_file(record), durable=True) as temporary:
        os.link(temporary, path)


def replace_file(path: Path, content: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """`mode`: who may read it, where that is not for the umask to say."""
    with _written_beside(path, content, durable, mode) as temporary:
        os.replace(temporary, path)


@contextlib.contextmanager
def _written_beside(path: Path, content: bytes, durable: bool, mode: int | None = None) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_random_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            share_alike(file.fileno(), path, mode)
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # renamed, as a rule
            os.unlink(temporary)


def numbered(folder: Path, prefix: str, suffix: str = "") -> list[int]:
    """The numbers of a folder's files called so, in order: `numbered(folder, "step-", ".json")`."""
    try:
        names = [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
    there = (name for name in names if name.startswith(prefix) and name.endswith(suffix))
    numbers = (name[len(prefix) : len(name) - len(suffix)] for name in there)
    return sorted(int(number) for number in numbers if number.isdecimal() and len(number) < 19)


def _random_hex(size: int) -> str:
    return os.urandom(size).hex()  # not secrets or tempfile: they cost every waiting runner megabytes


def new_run_id(preset: str, seed: int, now: float | None = None) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{preset}-s{seed}-{stamp}-{_random_hex(2)}"


def create(
    root: Path, run: RunRecord, state: RunState | None, fill: Callable[[RunFolder], None] | None = None
) -> RunFolder:
    """A new run folder, complete from its first moment; its id goes into `run`, unless it brings one.

    It is filled beside (`fill` adds what else belongs there) and renamed into place, so a full disk leaves nothing
    behind and two runs never share one.
    """
    with refusing(f"cannot create a run in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        draft = RunFolder(root / f".new-{_random_hex(6)}")
        draft.path.mkdir()
        try:
            for name in ("attempts", "checkpoints"):
                (draft.path / name).mkdir()
            run.id = run.id or _name_not_taken(root, run.preset, run.seed or 0)
            draft.write(run)
            if state is not None:
                draft.write(state)
            if fill is not None:
                fill(draft)
            os.rename(draft.path, root / run.id)  # fails rather than merge: a run folder is never empty
            return RunFolder(root / run.id)
        except BaseException:
            remove_tree(draft.path)
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
