"""Text tokenised once into flat token files with a manifest; an interrupted preparation continues where it stopped."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct, structs

from oelm_core.data.tokenizers import tokenizer_hash
from oelm_core.errors import BadData, Refused
from oelm_core.runs.folder import read_record, write_record

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Data

SHARD = 4_000  # documents between two entries in the journal

Progress = Callable[[int, int, "float | None"], None]
"""Called with (documents done, tokens written, fraction of the source or None)."""


@dataclass(frozen=True)
class TextSource:
    """Documents of one split, and what identifies them."""

    where: str
    identity: str
    count: int | None
    """Documents, where that is known before reading."""
    characters: int | None
    """About how much text, where the number of documents is not known."""
    documents: Callable[[], Iterable[str]]


class HeldOut(Struct, frozen=True):
    """Documents of the training text set aside at random."""

    fraction: float
    seed: int

    @classmethod
    def of(cls, data: Data) -> HeldOut | None:
        return cls(data.validation_fraction, data.validation_seed) if data.validation == "random" else None

    def __str__(self) -> str:
        return f"a random {self.fraction:g} (seed {self.seed})"

    def chosen(self, document: int) -> bool:
        """A pure function of (seed, number), so an interrupted preparation continues with the same choice."""
        digest = hashlib.blake2b(f"{self.seed}:{document}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.fraction * 2**64


class TokenizerMark(Struct, frozen=True):
    """Which tokenizer made the tokens."""

    hash: str
    size: int

    def __str__(self) -> str:
        return f"{self.size} tokens, {self.hash}"


class SplitCount(Struct):
    tokens: int = 0
    documents: int = 0


class SplitFile(SplitCount, kw_only=True):
    file: str
    sha256: str


class TokenPlan(Struct, kw_only=True):
    """What decides the token files; two equal plans give equal files."""

    name: str
    tokenizer: TokenizerMark
    dtype: Literal["uint16", "uint32"]
    end_token: int
    source: dict[str, str]
    """Split -> identity of its text."""
    held_out: HeldOut | None = None
    max_tokens: int | None = None
    schema: int = 1
    kind: Literal["tokens"] = "tokens"


class Manifest(TokenPlan, kw_only=True):
    """manifest.json of a prepared folder."""

    splits: dict[str, SplitFile]
    created: float


class Journal(Struct):
    """journal.json: how far a preparation came."""

    plan: TokenPlan
    split: str | None = None
    documents: int = 0
    counts: dict[str, SplitCount] = {}


def read_manifest(folder: Path) -> Manifest | None:
    """None for a folder that holds no prepared tokens."""
    return read_record(folder / "manifest.json", Manifest)


def write_tokens(
    folder: Path,
    name: str,
    sources: dict[str, TextSource],
    tokenizer: PreTrainedTokenizerFast,
    held_out: HeldOut | None = None,
    progress: Progress | None = None,
    max_tokens: int | None = None,
) -> Path:
    """Tokenises sources into `folder`: train.bin, validation.bin, manifest.json. Continues where it was interrupted.

    With max_tokens, reading the training text stops soon after that many.
    """
    if "train" not in sources:
        raise BadData(f"{name}: there is no training text (train.txt) beside {next(iter(sources.values())).where}.")
    plan = _plan(name, sources, tokenizer, held_out, max_tokens)
    done = read_manifest(folder)
    if done is not None:
        _same_or_refuse(folder, done, plan)
        verify(folder, done)
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        journal = _journal(folder, plan)
        _Writer(folder, journal, tokenizer, held_out, progress).run(sources)
        splits = {}
        for split, count in journal.counts.items():
            part = folder / f"{split}.bin.part"
            splits[split] = SplitFile(count.tokens, count.documents, file=f"{split}.bin", sha256=_sha256(part))
            os.replace(part, folder / f"{split}.bin")
        manifest = Manifest(**structs.asdict(plan), splits=splits, created=time.time())
        write_record(folder / "manifest.json", manifest)
        (folder / "journal.json").unlink(missing_ok=True)
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two preparations into one folder would append to the same files: the second is refused."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{folder}: another process is preparing it; wait for that one to end.") from None
        yield
    finally:
        os.close(handle)


def _journal(folder: Path, plan: TokenPlan) -> Journal:
    """How far an interrupted preparation came. A changed tokenizer or source, or files cut short, start over."""
    journal = read_record(folder / "journal.json", Journal)
    if journal is not None and journal.plan == plan:
        width = np.dtype(plan.dtype).itemsize
        for split in journal.counts:
            if (whole := folder / f"{split}.bin").exists():  # renamed already, but not yet in a manifest
                os.replace(whole, folder / f"{split}.bin.part")
        parts = {folder / f"{split}.bin.part": count.tokens * width for split, count in journal.counts.items()}
        if all(part.is_file() and part.stat().st_size >= size for part, size in parts.items()):
            return journal
    for part in folder.glob("*.bin.part"):
        part.unlink()
    return Journal(plan)


class _Writer:
    """Appends tokens to part files and notes in a journal how far it came, every SHARD documents."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        tokenizer: PreTrainedTokenizerFast,
        held_out: HeldOut | None,
        progress: Progress | None,
    ) -> None:
        self.folder, self.journal, self.held_out, self.progress = folder, journal, held_out, progress
        self.inner = tokenizer.backend_tokenizer
        self.inner.no_truncation()
        self.inner.no_padding()
        self.dtype = np.dtype(journal.plan.dtype)
        self.nothing = np.empty(0, self.dtype)
        self.end = journal.plan.end_token
        self.characters = 0

    def run(self, sources: dict[str, TextSource]) -> None:
        order = list(sources)
        finished = order.index(self.journal.split) if self.journal.split in order else 0
        for split in order[finished:]:
            if split == "validation" and self.held_out:
                continue  # the recipe holds out training text instead
            skip = self.journal.documents if split == self.journal.split else 0
            self._split(split, sources[split], skip)
        counts = self.journal.counts
        for split in ("train", "validation"):
            if split in counts and counts[split].tokens == 0:
                raise BadData(
                    f"{sources['train'].where}: no text for the {split} split; is the file empty,"
                    " or data.validation_fraction too small for so few documents?"
                )

    def _split(self, split: str, source: TextSource, skip: int) -> None:
        self.journal.split, self.journal.documents = split, skip
        targets = [split, "validation"] if split == "train" and self.held_out else [split]
        for target in targets:
            self.journal.counts.setdefault(target, SplitCount())
            self._open_at_journal(target)
        shard: list[str] = []
        number = self.characters = 0
        for number, document in enumerate(source.documents(), 1):
            self.characters += len(document)
            if number > skip:
                shard.append(document)
                if len(shard) == SHARD:
                    self._write(split, shard, number, source)
                    shard = []
            if split == "train" and not shard and self._enough():
                break
        if shard:
            self._write(split, shard, number, source)

    def _enough(self) -> bool:
        most = self.journal.plan.max_tokens
        return most is not None and self.journal.counts["train"].tokens >= most

    def _open_at_journal(self, split: str) -> None:
        """Cuts away what was written after the last journal entry."""
        part = self.folder / f"{split}.bin.part"
        part.touch()
        os.truncate(part, self.journal.counts[split].tokens * self.dtype.itemsize)

    def _write(self, split: str, shard: list[str], upto: int, source: TextSource) -> None:
        pieces: dict[str, list[Any]] = {split: []}
        first = upto - len(shard)
        for offset, encoded in enumerate(self.inner.encode_batch(shard, add_special_tokens=False)):
            out = self.held_out is not None and split == "train" and self.held_out.chosen(first + offset)
            pieces.setdefault("validation" if out else split, []).append(encoded.ids)
        for target, rows in pieces.items():
            flat = np.concatenate([np.asarray([*ids, self.end], self.dtype) for ids in rows] or [self.nothing])
            with open(self.folder / f"{target}.bin.part", "ab") as part:
                flat.tofile(part)
                part.flush()
                os.fsync(part.fileno())
            count = self.journal.counts[target]
            count.tokens += len(flat)
            count.documents += len(rows)
        self.journal.documents = upto
        write_record(self.folder / "journal.json", self.journal)
        if self.progress:
            tokens = sum(count.tokens for count in self.journal.counts.values())
            done, whole = (upto, source.count) if source.count else (self.characters, source.characters)
            most = self.journal.plan.max_tokens if split == "train" else None
            done, whole = (tokens, most) if most else (done, whole)
            self.progress(upto, tokens, min(1.0, done / whole) if whole else None)


def _plan(
    name: str,
    sources: dict[str, TextSource],
    tokenizer: PreTrainedTokenizerFast,
    held_out: HeldOut | None,
    max_tokens: int | None,
) -> TokenPlan:
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    if end is None:
        raise BadData(f"the tokenizer {tokenizer.name_or_path} has no end-of-text token to put between documents.")
    return TokenPlan(
        name=name,
        tokenizer=TokenizerMark(tokenizer_hash(tokenizer), len(tokenizer)),
        dtype="uint16" if len(tokenizer) <= 1 << 16 else "uint32",
        end_token=int(end),
        source={split: source.identity for split, source in sources.items()},
        held_out=held_out,
        max_tokens=max_tokens,
    )


def _same_or_refuse(folder: Path, made: Manifest, plan: TokenPlan) -> None:
    for what, before, now in (
        ("another tokenizer", made.tokenizer, plan.tokenizer),
        ("another source", made.source, plan.source),
        ("another split", made.held_out, plan.held_out),
        ("another amount of text", made.max_tokens, plan.max_tokens),
    ):
        if before != now:
            raise BadData(
                f"{folder}: already prepared from {what} ({before}, now {now});"
                " delete that folder or prepare into another one."
            )


def verify(folder: Path, manifest: Manifest) -> None:
    """Compares every token file with its checksum."""
    for split in manifest.splits.values():
        file = folder / split.file
        if not file.is_file() or _sha256(file) != split.sha256:
            raise BadData(f"{file}: does not match its manifest; delete {folder} and prepare it again.")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
