"""`oelm data prepare`: finds or fetches text, tokenises it once, and keeps it where runs find it."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

from oelm_core.config import Data, Experiment
from oelm_core.data import files, hub, sets, synthetic
from oelm_core.data.files import Source
from oelm_core.data.token_files import HeldOut, Progress, write_tokens
from oelm_core.data.tokenizers import load_named, load_tokenizer
from oelm_core.errors import BadData, Refused, refusing
from oelm_core.runs.folder import read_record, write_record

READABLE = (*files.TEXTS, *files.TABLES)
"""Endings of files that text for a language model is read from."""


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
    data = experiment.data if experiment else Data(name=name, validation=named.held_out if named else "split")
    if experiment is None and named and not path:
        data.max_tokens = named.max_tokens
    sources = text_sources(name, path, data.text, partly=data.max_tokens is not None)
    held_out = HeldOut.of(data)
    scored = _scored_sources(name, path, data.text, own_validation=held_out is not None)
    try:
        write_tokens(folder, name, sources, loaded, held_out, progress, data.max_tokens)
        for split, source in scored.items():  # each in a folder of its own: what was prepared before stays as it is
            write_tokens(folder / split, name, {split: source}, loaded, progress=progress)
        return folder
    except OSError as error:
        raise Refused(
            f"cannot write {folder}: {error.strerror or error}; what is there is kept, run the same command again."
        ) from None


def keep_tables(named: sets.NamedSet, folder: Path, progress: Progress | None = None) -> Path:
    """Writes each split of a classification set as JSON lines, text columns and label number, and a manifest."""
    if read_record(folder / "manifest.json", dict, follow=True) is not None:
        return folder
    splits = {}
    done = 0
    with refusing(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        places = {**named.splits, "test": named.test} if named.test else named.splits
        for split, place in places.items():
            table = hub.load_split(named.name, place)
            file = folder / f"{split}.jsonl"  # half of one does no harm: no reader looks before the manifest is there
            with open(file, "w", encoding="utf-8") as out:
                for row in table:
                    columns = {column: row[column] for column in (*named.text, "label")}
                    out.write(json.dumps(columns, ensure_ascii=False) + "\n")
            done += len(table)
            splits[split] = {"file": file.name, "examples": len(table), "fingerprint": files.fingerprint_files([file])}
            if progress:
                progress(done, 0, len(splits) / len(places))
        manifest = {"schema": 1, "kind": "table", "name": named.name, "splits": splits, "created": time.time()}
        write_record(folder / "manifest.json", manifest)
    return folder


def text_sources(
    name: str, path: str | None, columns: list[str] | None = None, partly: bool = False
) -> dict[str, Source[str]]:
    """Split -> documents, from files or, for a named set, through the `datasets` library.

    `partly`: only the beginning will be read, so the whole need not be fetched.
    """
    folder = sets.local_files(name, path)
    if folder is None:
        return {split: _hub_source(name, place, partly) for split, place in sets.known_set(name).splits.items()}
    splits = files.find_splits(folder, READABLE)
    if "train" not in splits:
        raise BadData(f"{name}: there is no training text (train.txt) beside {splits['validation'][0]}.")
    column = (columns or ["text"])[0]
    return {split: documents_of(splits[split], column) for split in ("train", "validation") if split in splits}


def documents_of(texts: list[Path], column: str) -> Source[str]:
    """The documents of files, of tables in this column."""
    return files.source_of(texts, partial(files.read_documents, column=column))


def split_source(name: str, split: str) -> Source[str]:
    """A split of a named set through the `datasets` library; of a test split only the set's own, where it has one."""
    named = sets.known_set(name)
    place = named.test if split == "test" else named.splits.get(split)
    if place is None:
        raise BadData(f"{named.title} has no {split} split; name a file of text.")
    return _hub_source(name, place, partly=False)


def _scored_sources(
    name: str, path: str | None, columns: list[str] | None, own_validation: bool
) -> dict[str, Source[str]]:
    """What `data.test` may name: the test split, and a set's own validation split where the recipe makes another."""
    wanted = ("test", "validation") if own_validation else ("test",)
    folder = sets.local_files(name, path)
    if folder is None:
        named = sets.known_set(name)
        there = {**named.splits, "test": named.test}
        return {split: split_source(name, split) for split in wanted if there.get(split)}
    splits = {} if folder.is_file() else files.find_splits(folder, READABLE)
    return {split: documents_of(splits[split], (columns or ["text"])[0]) for split in wanted if split in splits}


def _hub_source(name: str, place: sets.Split, partly: bool) -> Source[str]:
    table = hub.load_split(name, place, streaming=partly)
    return Source(
        where=f"{place.repo} ({place.name})",
        identity=f"{place.repo} {place.config} {place.name}" if partly else str(table._fingerprint),
        read=lambda: (row["text"] for row in table),
        count=None if partly else len(table),
    )
