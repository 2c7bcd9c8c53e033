"""Reads preset files: which documents they hold, and what is wrong with one that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oelm_core.config.plain_yaml import read_yaml_documents
from oelm_core.errors import BadInput, LabError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it becomes part of a run folder's name
WRITTEN_ID = re.compile(r"^[\s{-]*id:\s*[\"']?([\w.-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """One preset as written: a runnable experiment or study, or a part that others extend."""

    file: Path
    kind: str
    """experiment, study or part."""
    name: str
    content: dict[str, Any]

    @property
    def where(self) -> str:
        return f"{self.file}: {self.name}"


def documents_in(folder: Path, warnings: list[str], broken: dict[str, LabError]) -> Iterator[Document]:
    """The documents that can be read. A file that cannot is one warning, and breaks the ids written in it."""
    for kind in ("experiment", "study"):
        sub = folder / ("experiments" if kind == "experiment" else "studies")
        for file in sorted([*sub.glob("*.yaml"), *sub.glob("*.yml")]):
            try:
                yield from _documents_of(file, kind)
            except LabError as error:
                warnings.append(str(error))
                broken.update(dict.fromkeys(_ids_written_in(file), error))


def _ids_written_in(file: Path) -> list[str]:
    try:
        return WRITTEN_ID.findall(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _documents_of(file: Path, kind: str) -> Iterator[Document]:
    try:
        contents = list(read_yaml_documents(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: is not UTF-8 text.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise BadInput(f"{file}:{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from None
    for content in contents:
        if content is None:
            continue
        if not isinstance(content, dict):
            raise BadInput(f"{file}: expected keys such as id and title, found {type(content).__name__}.")
        own_kind = "part" if "part" in content else kind
        name = content.get("part" if own_kind == "part" else "id")
        if not isinstance(name, str):
            raise BadInput(f"{file}: key 'id' is missing or not text; every preset needs one.")
        if not NAME.fullmatch(name):
            raise BadInput(f"{file}: id '{name}' should be letters, digits, '-', '_' and '.', a letter or digit first.")
        yield Document(file, own_kind, name, content)
