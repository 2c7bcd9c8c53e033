"""The user's own files: which file is which split, and reading rows or documents out of them."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm_core.errors import BadData

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
        if path.suffix.lower() not in extensions:
            raise BadData(f"data.path {path}: cannot read {path.suffix or 'this kind'}; use {', '.join(extensions)}.")
        return {"train": [path]}
    if not path.is_dir():
        raise BadData(f"data.path {path}: no such file or folder.")
    splits: dict[str, list[Path]] = {}
    seen = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in extensions)
    for file in seen:
        split = split_of(file.relative_to(path))
        if split is None and len(file.relative_to(path).parts) > 1:
            split = split_of(Path(file.relative_to(path).parts[0]))
        if split is not None:
            splits.setdefault(split, []).append(file)
    if "train" not in splits and "validation" not in splits:
        found = ", ".join(file.name for file in seen[:5]) or f"no {', '.join(extensions)} file at all"
        raise BadData(f"data.path {path}: no file is named after a split (train, validation); found {found}.")
    return splits


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Rows of a table as column -> value. Tab-separated files carry no quoting, as GLUE writes them."""
    kind = file.suffix.lower()
    try:
        if kind in (".csv", ".tsv"):
            with open(file, encoding="utf-8-sig", newline="") as lines:
                reader = (
                    csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
                    if kind == ".tsv"
                    else csv.DictReader(lines)
                )
                yield from reader
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
    """Names the content of files: changes when any byte changes."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode())
        with open(file, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]
