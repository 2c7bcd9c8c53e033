"""The user's own files: which file is which split, and reading rows or documents out of them."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from oelm_core.errors import BadData, Refused, refusing
from oelm_core.shared_files import open_shared_alike

Item = TypeVar("Item")

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
TEXTS = (".txt",)
_SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
SEPARATOR = "<|endoftext|>"
CONTENT_HASH_LIMIT = 256 << 20  # larger sources are named by size and time instead of content


@dataclass(frozen=True)
class Source(Generic[Item]):
    """Rows or documents of one split before tokenisation, and what identifies them."""

    where: str
    identity: str
    read: Callable[[], Iterable[Item]]
    count: int | None = None
    """How many, where that is known before reading."""
    characters: int | None = None
    """About how much text, where their number is not known."""


def source_of(files: list[Path], read: Callable[[Path], Iterable[Item]]) -> Source[Item]:
    """What is read from files, one after the other."""
    return Source(
        where=", ".join(map(str, files)),
        identity=fingerprint_files(files),
        read=lambda: chain.from_iterable(map(read, files)),
        characters=sum(file.stat().st_size for file in files),
    )


def split_of(file: Path) -> str | None:
    """The split a file's name stands for: train, validation, mismatched or test; None when it says none.

    >>> split_of(Path("en.dev.tsv")), split_of(Path("dev_mismatched.tsv")), split_of(Path("notes.txt"))
    ('validation', 'mismatched', None)
    """
    words = re.split(r"[._\- ]+", file.name.lower())
    if "mismatched" in words:
        return "test" if "test" in words else "mismatched"
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), None)


def find_splits(path: Path, extensions: tuple[str, ...]) -> dict[str, list[Path]]:
    """Split -> files. One file is all training text; in a folder the splits are found by file name."""
    path = path.expanduser()
    if path.is_file():
        return {"train": [_readable(path, extensions, "data.path")]}
    splits, seen = _named_files(path, extensions, "data.path")
    if "train" not in splits and "validation" not in splits:
        raise BadData(f"data.path {path}: no file is named after a split (train, validation); found {seen}.")
    return splits


def find_split(
    path: Path, extensions: tuple[str, ...], split: str | None, key: str = "data.test"
) -> tuple[str | None, list[Path]]:
    """(split, its files) of a text that is only scored: a file, or in a folder the files of a split.

    Without a split: test, else validation. `key` is the setting or option that named the path, for errors.
    """
    path = path.expanduser()
    if path.is_file():
        return split, [_readable(path, extensions, key)]
    splits, seen = _named_files(path, extensions, key)
    chosen = split or next((name for name in ("test", "validation") if name in splits), "test")
    if chosen not in splits:
        raise BadData(f"{key} {path}: no file is named after the {chosen} split; found {', '.join(splits) or seen}.")
    return chosen, splits[chosen]


def _readable(file: Path, extensions: tuple[str, ...], key: str) -> Path:
    if file.suffix.lower() not in extensions:
        raise BadData(f"{key} {file}: cannot read {file.suffix or 'this kind'}; use {', '.join(extensions)}.")
    return file


def _named_files(path: Path, extensions: tuple[str, ...], key: str) -> tuple[dict[str, list[Path]], str]:
    """(split -> files, what there is in words) of a folder."""
    if not path.is_dir():
        raise BadData(f"{key} {path}: no such file or folder.")
    splits: dict[str, list[Path]] = {}
    seen = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in extensions)
    for file in seen:
        split = split_of(file) or split_of(path / file.relative_to(path).parts[0])
        if split is not None:
            splits.setdefault(split, []).append(file)
    return splits, ", ".join(file.name for file in seen[:5]) or f"no {', '.join(extensions)} file at all"


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Rows of a table as column -> value. Tab-separated files carry no quoting, as GLUE writes them."""
    kind = file.suffix.lower()
    try:
        if kind in (".csv", ".tsv"):
            with open(file, encoding="utf-8-sig", newline="") as lines:
                plain: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind == ".tsv" else {}
                yield from csv.DictReader(lines, **plain)
        elif kind == ".parquet":
            import pyarrow.parquet as parquet

            for part in parquet.ParquetFile(file).iter_batches():
                yield from part.to_pylist()
        else:
            for number, row in enumerate(_read_json(file), 1):
                if not isinstance(row, dict):
                    raise BadData(f"{file}: row {number} is {str(row)[:40]!r}, not an object with named columns.")
                yield row
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise BadData(f"{file}: cannot be read as {kind[1:]}: {error}.") from None


def _read_json(file: Path) -> Iterator[Any]:
    """A list of objects, {"data": [...]}, or one object per line."""
    with open(file, encoding="utf-8-sig") as lines:
        first = lines.read(1)
        lines.seek(0)
        if first == "[":
            yield from json.load(lines)
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                row = json.loads(line)
                if number == 1 and isinstance(row, dict) and isinstance(row.get("data"), list):
                    yield from row["data"]
                else:
                    yield row


def read_documents(file: Path, column: str = "text") -> Iterator[str]:
    """Documents of a language set: a table's text column, or a text file cut at <|endoftext|> marks."""
    if file.suffix.lower() in TABLES:
        for row in read_rows(file):
            if column not in row:
                raise BadData(f"{file}: no column '{column}'; its columns are {', '.join(map(str, row))}.")
            yield str(row[column])
        return
    pending = ""
    with open(file, encoding="utf-8", errors="strict") as lines:
        try:
            while chunk := lines.read(1 << 20):
                *whole, pending = (pending + chunk).split(SEPARATOR)
                yield from (text for document in whole if (text := document.strip()))
        except UnicodeDecodeError as error:
            raise BadData(f"{file}: not UTF-8 text: {error}.") from None
    if pending.strip():
        yield pending.strip()


def fingerprint_files(files: list[Path]) -> str:
    """Names the content of files: changes when any byte changes, or of large files the size or the time."""
    digest = hashlib.sha256()
    if sum(file.stat().st_size for file in files) > CONTENT_HASH_LIMIT:
        stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        digest.update(repr(stamps).encode())
    else:
        for file in files:
            digest.update(file.name.encode())
            feed(digest, file)
    return digest.hexdigest()[:16]


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    feed(digest, file)
    return digest.hexdigest()


def feed(digest: hashlib._Hash, file: Path) -> None:
    with open(file, "rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)


@contextlib.contextmanager
def exclusive(lock: Path, refusal: str | None = None) -> Iterator[None]:
    """One process at a time. Another one waits, or is refused with this sentence."""
    with refusing(f"cannot open {lock}"):
        handle = open_shared_alike(lock, os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            raise Refused(str(refusal)) from None
        except OSError as error:
            raise Refused(f"cannot lock {lock}: {error.strerror}; move it to a disk with locks.") from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A draft to fill, renamed when it is full: several processes may make it at once and none reads half a file."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.parent / f".{folder.name}-{os.urandom(4).hex()}"
    draft.mkdir()  # not mkdtemp: that is for ourselves alone
    try:
        yield draft
        os.rename(draft, folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, with the same content
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
