"""`oelm data prepare`: finds or fetches text, tokenises it once, and keeps it where runs find it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.data import files, hub, sets
from oelm_core.data.token_files import HeldOut, Progress, TextSource, write_tokens
from oelm_core.data.tokenizers import load_named, load_tokenizer
from oelm_core.errors import BadData, Refused
from oelm_core.runs.folder import read_record, write_record

if TYPE_CHECKING:
    from oelm_core.config import Experiment

CONTENT_HASH_LIMIT = 256 << 20  # larger sources are named by size and time instead of content


def prepare(
    what: Experiment | str,
    out: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    tokenizer: str | None = None,
    path: str | None = None,
) -> Path:
    """Fetches a named set, or an experiment's data, and keeps it where runs find it. Returns its folder."""
    hub.stay_offline_if_unreachable()
    experiment = None if isinstance(what, str) else what
    name = what if isinstance(what, str) else what.data.name
    path = path or (experiment.data.path if experiment else None)
    named = sets.find_set(name) if path else sets.known_set(name)
    folder = out or sets.kept_folder(name)
    if named and named.kind == "demo":
        from oelm_core.data import synthetic

        return synthetic.ensure(named.name, sets.cache_dir())
    if (experiment and experiment.data.classes) or (named and named.kind == "classification"):
        if path or named is None:
            raise BadData(
                f"{name}: files of a classification set are read as they are; give them as data.path to a run."
            )
        return keep_tables(named, folder, progress)
    if workers:  # read once, by the tokenizer's thread pool, when it first starts
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))
    if experiment and not tokenizer:
        loaded = load_tokenizer(experiment)
    else:
        loaded = load_named(tokenizer or "gpt2", "--tokenizer")
    spec = experiment.data if experiment else None
    how = named.held_out if named else "split"
    held_out = HeldOut.of(spec) if spec else (HeldOut(0.01, 42) if how == "random" else None)
    column = (spec.text or ["text"])[0] if spec else "text"
    most = spec.max_tokens if spec else (named.max_tokens if named and not path else None)
    sources = text_sources(name, path, column, partly=most is not None)
    try:
        return write_tokens(folder, name, sources, loaded, held_out, progress, most)
    except OSError as error:
        raise Refused(
            f"cannot write {folder}: {error.strerror or error}; what is there is kept, run the same command again."
        ) from None


def keep_tables(named: sets.NamedSet, folder: Path, progress: Progress | None = None) -> Path:
    """Writes each split of a classification set as JSON lines, text columns and label number, and a manifest."""
    if read_record(folder / "manifest.json", dict) is not None:
        return folder
    splits = {}
    done = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, place in named.splits.items():
            table = hub.load_split(named.name, place)
            file = folder / f"{split}.jsonl"
            draft = folder / f".{split}.jsonl.part"
            with open(draft, "w", encoding="utf-8") as out:
                for row in table:
                    columns = {column: row[column] for column in (*named.text, "label")}
                    out.write(json.dumps(columns, ensure_ascii=False) + "\n")
            os.replace(draft, file)
            done += len(table)
            splits[split] = {"file": file.name, "examples": len(table), "fingerprint": files.fingerprint_files([file])}
            if progress:
                progress(done, 0, len(splits) / len(named.splits))
        manifest = {"schema": 1, "kind": "table", "name": named.name, "splits": splits, "created": time.time()}
        write_record(folder / "manifest.json", manifest)
    except OSError as error:
        raise Refused(f"cannot write {folder}: {error.strerror or error}.") from None
    return folder


def text_sources(name: str, path: str | None, column: str = "text", partly: bool = False) -> dict[str, TextSource]:
    """Split -> documents, from files or, for a named set, through the `datasets` library.

    `partly`: only the beginning will be read, so the whole need not be fetched.
    """
    if path:
        splits = files.find_splits(Path(path), (*files.TEXTS, *files.TABLES))
        return {split: _file_source(splits[split], column) for split in ("train", "validation") if split in splits}
    named = sets.known_set(name)
    if named.kind == "demo":
        from oelm_core.data import synthetic

        return text_sources(name, str(synthetic.ensure(named.name, sets.cache_dir())))
    if named.kind != "language":
        raise BadData(f"data.name {name}: this is a classification set, not text for a language model.")
    return {split: _hub_source(named.name, place, partly) for split, place in named.splits.items()}


def _file_source(texts: list[Path], column: str) -> TextSource:
    size = sum(text.stat().st_size for text in texts)
    if size <= CONTENT_HASH_LIMIT:
        identity = files.fingerprint_files(texts)
    else:
        stamps = [(text.name, text.stat().st_size, text.stat().st_mtime_ns) for text in texts]
        identity = hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]

    def documents() -> Iterator[str]:
        for text in texts:
            yield from files.read_documents(text, column)

    return TextSource(", ".join(map(str, texts)), identity, None, size, documents)


def _hub_source(name: str, place: sets.Split, partly: bool) -> TextSource:
    table = hub.load_split(name, place, streaming=partly)
    return TextSource(
        f"{place.repo} ({place.name})",
        f"{place.repo} {place.config} {place.name}" if partly else str(table._fingerprint),
        None if partly else len(table),
        None,
        lambda: (row["text"] for row in table),
    )
