"""Demo data that needs no download: generated reviews and stories, the same bytes for a seed on every machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from oelm_core.data.synthetic import sentiment, stories
from oelm_core.data.synthetic.dice import Dice
from oelm_core.errors import NotFound, Refused, did_you_mean

VERSION = 2
"""Part of the cache folder's name; raise it whenever a change to the grammars changes the text."""

END_OF_TEXT = "<|endoftext|>"

T = TypeVar("T")


def write_sentiment(folder: Path, seed: int = 0, train: int = 16000, valid: int = 1000) -> None:
    """Writes train.tsv and valid.tsv (`sentence<TAB>label`) into a folder; no sentence is in both."""
    reviews = _different(sentiment.review, seed, train + valid)
    lines = [f"{sentence}\t{label}" for sentence, label in reviews]
    _write(folder / "train.tsv", ["sentence\tlabel", *lines[:train]])
    _write(folder / "valid.tsv", ["sentence\tlabel", *lines[train:]])


def write_stories(folder: Path, seed: int = 0, train: int = 8000, valid: int = 400) -> None:
    """Writes train.txt and valid.txt, a story a line with `<|endoftext|>` between; no story is in both."""
    told = _different(stories.story, seed, train + valid)
    _write(folder / "train.txt", _separated(told[:train]))
    _write(folder / "valid.txt", _separated(told[train:]))


def vocabulary(name: str | None = None) -> list[str]:
    """Every word of demo-sentiment, demo-stories, or (unsaid) both, sorted, without special tokens.

    Words and signs are separated by single spaces in the text, so splitting at spaces is the whole tokenizer.
    """
    sources = {"demo-sentiment": sentiment.words, "demo-stories": stories.words}
    chosen = sources.values() if name is None else [_named(name, sources)]
    return sorted(set().union(*(words() for words in chosen)))


def ensure(name: str, cache: Path) -> Path:
    """The folder of a demo set inside `cache`, generated if it is not there yet.

    It is written beside and renamed, so several processes may ask at once and none reads half a file.
    """
    writer = _named(name, {"demo-sentiment": write_sentiment, "demo-stories": write_stories})
    folder = cache / f"{name}-v{VERSION}"
    if folder.is_dir():
        return folder
    try:
        _generate(folder, writer)
    except OSError as error:
        raise Refused(f"cannot write {name} to {cache}: {error.strerror or error}.") from None
    return folder


def _generate(folder: Path, writer: Callable[[Path], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        writer(draft)
        draft.chmod(0o755)
        os.rename(draft, folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, with the same bytes
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _named(name: str, known: dict[str, T]) -> T:
    if name not in known:
        raise NotFound(
            f"no demo data named '{name}'.{did_you_mean(name, known) or ' Known: ' + ', '.join(known) + '.'}"
        )
    return known[name]


def _different(draw: Callable[[Dice], T], seed: int, count: int) -> list[T]:
    """`count` different draws in the order they came."""
    dice = Dice(seed)
    found: dict[T, None] = {}
    while len(found) < count:
        found[draw(dice)] = None
    return list(found)


def _separated(told: list[str]) -> list[str]:
    return [line for text in told for line in (text, END_OF_TEXT)]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
