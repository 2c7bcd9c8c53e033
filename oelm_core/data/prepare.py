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
    try:
        return write_tokens(folder, name, sources, loaded, HeldOut.of(data), progress, data.max_tokens)
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
    with refusing(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for split, place in named.splits.items():
            table = hub.load_split(named.name, place)
            file = folder / f"{split}.jsonl"  # half of one does no harm: no reader looks before the manifest is there
            with open(file, "w", encoding="utf-8") as out:
                for row in table:
                    columns = {column: row[column] for column in (*named.text, "label")}
                    out.write(json.dumps(columns, ensure_ascii=False) + "\n")
            done += len(table)
            splits[split] = {"file": file.name, "examples": len(table), "fingerprint": files.fingerprint_files([file])}
            if progress:
                progress(done, 0, len(splits) / len(named.splits))
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
    splits = files.find_splits(folder, (*files.TEXTS, *files.TABLES))
    read = partial(files.read_documents, column=(columns or ["text"])[0])
    return {split: files.source_of(splits[split], read) for split in ("train", "validation") if split in splits}


def _hub_source(name: str, place: sets.Split, partly: bool) -> Source[str]:
    table = hub.load_split(name, place, streaming=partly)
    return Source(
        where=f"{place.repo} ({place.name})",
        identity=f"{place.repo} {place.config} {place.name}" if partly else str(table._fingerprint),
        read=lambda: (row["text"] for row in table),
        count=None if partly else len(table),
    )
