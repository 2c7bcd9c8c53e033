"""Text tokenised once into flat token files with a manifest; an interrupted preparation continues where it stopped."""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct, structs

from oelm_core.data.files import Source, exclusive, sha256
from oelm_core.data.tokenizers import tokenizer_hash
from oelm_core.errors import BadData
from oelm_core.runs.folder import read_record, write_record

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Data

SHARD = 4_000  # documents between two entries in the journal

Progress = Callable[[int, int, "float | None"], None]
"""Called with (documents done, tokens written, fraction of the source or None)."""


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
    return read_record(folder / "manifest.json", Manifest, follow=True)


def write_tokens(
    folder: Path,
    name: str,
    sources: dict[str, Source[str]],
    tokenizer: PreTrainedTokenizerFast,
    held_out: HeldOut | None = None,
    progress: Progress | None = None,
    max_tokens: int | None = None,
) -> Path:
    """Tokenises sources into `folder`: a file for each split, manifest.json. Continues where it was interrupted.

    With max_tokens, reading the training text stops soon after that many.
    """
    plan = _plan(name, sources, tokenizer, held_out, max_tokens)
    done = read_manifest(folder)
    if done is not None:
        _same_or_refuse(folder, done, plan)
        for about in done.splits.values():
            file = folder / about.file
            if not file.is_file() or sha256(file) != about.sha256:
                raise BadData(f"{file}: does not match its manifest; delete {folder} and prepare it again.")
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    # Two preparations into one folder would append to the same files.
    with exclusive(folder / ".lock", f"{folder}: another process is preparing it; wait for that one to end."):
        journal = _journal(folder, plan)
        _Writer(folder, journal, tokenizer, progress).run(sources)
        splits = {}
        for split, count in journal.counts.items():
            part = folder / f"{split}.bin.part"
            splits[split] = SplitFile(count.tokens, count.documents, file=f"{split}.bin", sha256=sha256(part))
            os.replace(part, folder / f"{split}.bin")
        manifest = Manifest(**structs.asdict(plan), splits=splits, created=time.time())
        write_record(folder / "manifest.json", manifest)
        (folder / "journal.json").unlink(missing_ok=True)
    return folder


def _journal(folder: Path, plan: TokenPlan) -> Journal:
    """How far an interrupted preparation came. A changed tokenizer or source, or files cut short, start over."""
    journal = read_record(folder / "journal.json", Journal, follow=True)
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
        self, folder: Path, journal: Journal, tokenizer: PreTrainedTokenizerFast, progress: Progress | None
    ) -> None:
        self.folder, self.journal, self.progress = folder, journal, progress
        self.held_out = journal.plan.held_out
        self.inner = tokenizer.backend_tokenizer
        self.inner.no_truncation()
        self.inner.no_padding()
        self.dtype = np.dtype(journal.plan.dtype)
        self.characters = 0

    def run(self, sources: dict[str, Source[str]]) -> None:
        journal = self.journal
        # Where the recipe holds out training text, a validation text of its own is left aside.
        order = [split for split in sources if split == "train" or not self.held_out]
        finished = order.index(journal.split) if journal.split in order else 0
        for split in order[finished:]:
            self._split(split, sources[split], skip=journal.documents if split == journal.split else 0)
        for split, count in journal.counts.items():
            if count.tokens == 0:
                raise BadData(
                    f"{next(iter(sources.values())).where}: no text for the {split} split; is the file empty,"
                    " or data.validation_fraction too small for so few documents?"
                )

    def _split(self, split: str, source: Source[str], skip: int) -> None:
        self.journal.split, self.journal.documents = split, skip
        for target in [split, "validation"] if split == "train" and self.held_out else [split]:
            count = self.journal.counts.setdefault(target, SplitCount())
            part = self.folder / f"{target}.bin.part"
            part.touch()
            os.truncate(part, count.tokens * self.dtype.itemsize)  # what was written after the last journal entry
        most = self.journal.plan.max_tokens if split == "train" else None
        shard: list[str] = []
        number = self.characters = 0
        for number, document in enumerate(source.read(), 1):
            self.characters += len(document)
            if number > skip:
                shard.append(document)
                if len(shard) == SHARD:
                    self._write(split, shard, number, source)
                    shard = []
            if most is not None and not shard and self.journal.counts[split].tokens >= most:
                break
        if shard:
            self._write(split, shard, number, source)

    def _write(self, split: str, shard: list[str], upto: int, source: Source[str]) -> None:
        pieces: dict[str, list[np.ndarray]] = defaultdict(list)
        for number, encoded in enumerate(self.inner.encode_batch(shard, add_special_tokens=False), upto - len(shard)):
            out = self.held_out is not None and split == "train" and self.held_out.chosen(number)
            tokens = np.asarray([*encoded.ids, self.journal.plan.end_token], self.dtype)
            pieces["validation" if out else split].append(tokens)
        for target, documents in pieces.items():
            with open(self.folder / f"{target}.bin.part", "ab") as part:
                np.concatenate(documents).tofile(part)
                part.flush()
                os.fsync(part.fileno())
            count = self.journal.counts[target]
            count.tokens += sum(map(len, documents))
            count.documents += len(documents)
        self.journal.documents = upto
        write_record(self.folder / "journal.json", self.journal)
        if self.progress:
            tokens_written = sum(count.tokens for count in self.journal.counts.values())
            done, whole = (upto, source.count) if source.count else (self.characters, source.characters)
            most = self.journal.plan.max_tokens if split == "train" else None
            done, whole = (tokens_written, most) if most else (done, whole)
            self.progress(upto, tokens_written, min(1.0, done / whole) if whole else None)


def _plan(
    name: str,
    sources: dict[str, Source[str]],
    tokenizer: PreTrainedTokenizerFast,
    held_out: HeldOut | None,
    max_tokens: int | None,
) -> TokenPlan:
    return TokenPlan(
        name=name,
        tokenizer=TokenizerMark(tokenizer_hash(tokenizer), len(tokenizer)),
        dtype="uint16" if len(tokenizer) <= 1 << 16 else "uint32",
        end_token=end_token(tokenizer),
        source={split: source.identity for split, source in sources.items()},
        held_out=held_out,
        max_tokens=max_tokens,
    )


def end_token(tokenizer: PreTrainedTokenizerFast) -> int:
    """What stands between documents."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    if end is None:
        raise BadData(f"the tokenizer {tokenizer.name_or_path} has no end-of-text token to put between documents.")
    return int(end)


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
