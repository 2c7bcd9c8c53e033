"""Keeps a classification set as plain files, so that it can be copied to a machine without a network."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.data.files import fingerprint_files
from oelm_core.data.sets import NamedSet
from oelm_core.errors import Refused
from oelm_core.runs.folder import read_json, write_json

if TYPE_CHECKING:
    from oelm_core.data.prepare import Progress


def keep(named: NamedSet, folder: Path, progress: Progress | None = None) -> Path:
    """Writes each split of a named set as JSON lines with its text columns and label number, and a manifest."""
    from oelm_core.data.classification import load_from_hub

    if read_json(folder / "manifest.json") is not None:
        return folder
    splits = {}
    done = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, place in named.splits.items():
            table = load_from_hub(named.name, place)
            file = folder / f"{split}.jsonl"
            draft = folder / f".{split}.jsonl.part"
            with open(draft, "w", encoding="utf-8") as out:
                for row in table:
                    columns = {column: row[column] for column in (*named.text, "label")}
                    out.write(json.dumps(columns, ensure_ascii=False) + "\n")
            os.replace(draft, file)
            done += len(table)
            splits[split] = {"file": file.name, "examples": len(table), "fingerprint": fingerprint_files([file])}
            if progress:
                progress(done, 0, len(splits) / len(named.splits))
        manifest = {"schema": 1, "kind": "table", "name": named.name, "splits": splits, "created": time.time()}
        write_json(folder / "manifest.json", manifest)
    except OSError as error:
        raise Refused(f"cannot write {folder}: {error.strerror or error}.") from None
    return folder
