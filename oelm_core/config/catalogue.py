"""The catalogue: finds preset files, joins what they extend, and validates them one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from oelm_core.config import Experiment, Study, build_experiment, build_study, merge
from oelm_core.config.plain_yaml import read_yaml_documents, read_yaml_file
from oelm_core.errors import BadInput, LabError, NotFound, did_you_mean
from oelm_core.home import home

Kind = TypeVar("Kind")
SHIPPED = (Path(__file__).parents[1] / "presets").resolve()
"""Files of the package; in a checkout a link to the folder /presets."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it becomes part of a run folder's name
WRITTEN_ID = re.compile(r"^[\s{-]*id:\s*[\"']?([\w.-]+)", re.MULTILINE)


@dataclass
class Catalogue:
    """All presets that could be read. Broken ones are in `broken`, with the sentence that says why."""

    experiments: dict[str, Experiment] = field(default_factory=dict)
    studies: dict[str, Study] = field(default_factory=dict)
    broken: dict[str, LabError] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def experiment(self, name: str) -> Experiment:
        return self._find(name, self.experiments) or self._explain(name, "preset", self.experiments)

    def named(self, name: str) -> Experiment:
        """The experiment a command names. An id that two files claim is refused, for it is not clear which is meant."""
        clash = self._find(name, self.broken)
        if clash is not None:
            raise BadInput(str(clash))
        return self.experiment(name)

    def study(self, name: str) -> Study:
        return self._find(name, self.studies) or self._explain(name, "study", self.studies)

    def reject(self, error: LabError, *names: str) -> None:
        """Warns of what cannot be used, and remembers why under these names."""
        self.warnings.append(str(error))
        self.broken.update(dict.fromkeys(names, error))

    @staticmethod
    def _find(name: str, table: Mapping[str, Kind]) -> Kind | None:
        return next((value for known, value in table.items() if known.lower() == name.lower()), None)

    def _explain(self, name: str, what: str, table: Mapping[str, object]) -> NoReturn:
        """Why a name was not found: broken, of the other kind, or unknown (then the nearest names)."""
        broken = self._find(name, self.broken)
        if broken is not None:
            raise BadInput(str(broken))
        if what == "preset" and self._find(name, self.studies) is not None:
            raise NotFound(f"'{name}' is a study, not a preset; use: oelm study {name}.")
        if what == "study" and self._find(name, self.experiments) is not None:
            raise NotFound(f"'{name}' is a preset, not a study; use: oelm run {name}.")
        raise NotFound(f"no {what} '{name}'.{did_you_mean(name, table) or ' See: oelm presets.'}")


def load_catalogue(extra: Path | None = None) -> Catalogue:
    """The shipped presets, then `$OELM_HOME/presets`, then `extra`. Nothing broken hides the rest."""
    folders = [SHIPPED, home() / "presets"]
    if extra is not None:
        if not extra.is_dir():
            raise BadInput(f"--presets {extra}: there is no such folder.")
        if not any((extra / sub).is_dir() for sub in ("experiments", "studies")):
            raise BadInput(f"--presets {extra}: there is no folder experiments or studies in it.")
        folders.append(extra)
    return load_folders(folders)


def load_folders(folders: list[Path]) -> Catalogue:
    catalogue = Catalogue()
    documents: dict[tuple[str, str], Document] = {}
    for folder in folders:
        for document in documents_in(folder, catalogue):
            key = ("study" if document.kind == "study" else "experiment", document.name.lower())
            if key in documents:
                taken = f"{document.where}: the id is already used in {documents[key].file}; choose another."
                catalogue.reject(BadInput(taken), document.name)
            else:
                documents[key] = document
    for document in documents.values():
        try:
            if document.kind == "study":
                catalogue.studies[document.name] = build_study(document.content, document.where)
            elif document.kind == "experiment":
                content = _extended(document, documents, ())
                catalogue.experiments[document.name] = build_experiment(content, document.where)
        except LabError as error:
            catalogue.reject(error, document.name)
    _check_references(catalogue, documents)
    return catalogue


def _extended(document: Document, documents: dict[tuple[str, str], Document], below: tuple[str, ...]) -> dict[str, Any]:
    """The document's content on top of everything it extends, nearest last."""
    if document.name in below:
        raise BadInput(f"{document.where}: extends leads back to itself: {' -> '.join((*below, document.name))}.")
    own = dict(document.content)
    parents = own.pop("extends", [])
    if not isinstance(parents, (str, list)):
        raise BadInput(f"{document.where}: key 'extends' is {parents!r}; it should be a preset's id or a list of ids.")
    joined: dict[str, Any] = {}
    for name in [parents] if isinstance(parents, str) else parents:
        parent = documents.get(("experiment", str(name).lower()))
        if parent is None:
            known = [d.name for d in documents.values() if d.kind != "study"]
            raise BadInput(f"{document.where}: extends '{name}', which does not exist.{did_you_mean(str(name), known)}")
        joined = merge(joined, _extended(parent, documents, (*below, document.name)))
    for key in ("part", "id", "title", "published", "about"):  # an arm's own story is not inherited
        joined.pop(key, None)
    return merge(joined, own)


def _check_references(catalogue: Catalogue, documents: Mapping[tuple[str, str], Document]) -> None:
    known = {name.lower() for name in catalogue.experiments}
    presets = catalogue.experiments.items()
    arms = [("experiment", name, "baseline", [arm.baseline]) for name, arm in presets if arm.baseline]
    studies = [("study", name, "arm", study.arms) for name, study in catalogue.studies.items()]
    for kind, name, key, wanted in (*arms, *studies):
        missing = next((other for other in wanted if other.lower() not in known), None)
        if missing is not None:
            # First: a preset is no suggestion for its own baseline.
            del (catalogue.studies if kind == "study" else catalogue.experiments)[name]
            problem = f"{key} '{missing}' is not among the presets.{did_you_mean(missing, catalogue.experiments)}"
            catalogue.reject(BadInput(f"{documents[kind, name.lower()].where}: {problem}"), name)


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


def documents_in(folder: Path, catalogue: Catalogue) -> Iterator[Document]:
    """The documents that can be read. A file that cannot is one warning, and breaks the ids written in it."""
    for kind, sub in (("experiment", folder / "experiments"), ("study", folder / "studies")):
        for file in sorted([*sub.glob("*.yaml"), *sub.glob("*.yml")]):
            try:
                yield from _documents_of(file, kind)
            except LabError as error:
                catalogue.reject(error, *_ids_written_in(file))


def _ids_written_in(file: Path) -> list[str]:
    try:
        return WRITTEN_ID.findall(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _documents_of(file: Path, kind: str) -> Iterator[Document]:
    for content in read_yaml_file(file, read_yaml_documents):
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
