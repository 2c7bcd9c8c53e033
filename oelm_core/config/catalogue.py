"""The catalogue: finds preset files, joins what they extend, and validates them one by one."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from oelm_core.config import Experiment, Study, build_experiment, build_study, merge
from oelm_core.config.plain_yaml import read_yaml_documents, read_yaml_file
from oelm_core.errors import BadInput, LabError, NotFound, did_you_mean, first_line
from oelm_core.home import home
from oelm_core.small_files import read_small_file

Kind = TypeVar("Kind")
SHIPPED = (Path(__file__).parents[1] / "presets").resolve()
"""Files of the package; in a checkout a link to the folder /presets."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it becomes part of a run folder's name
LONGEST_NAME = 100
MOST_EXTENDS = 20
"""Presets between one and the last that it rests on."""
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
    parents = _Parents(documents)
    for document in documents.values():
        with _only_this_suffers(catalogue, document.where, functools.partial(list, [document.name])):
            if document.kind == "study":
                catalogue.studies[document.name] = build_study(document.content, document.where)
            elif document.kind == "experiment":
                content = parents.joined_with(document)
                catalogue.experiments[document.name] = build_experiment(content, document.where)
    _check_references(catalogue, documents)
    return catalogue


@contextlib.contextmanager
def _only_this_suffers(catalogue: Catalogue, where: str, names: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Whatever is wrong with one file or preset becomes its own sentence, and the rest of the catalogue is read."""
    try:
        yield
    except LabError as error:
        catalogue.reject(error, *names())
    except Exception as error:  # nobody foresaw it; still no reason to hide the others
        catalogue.reject(BadInput(f"{where}: cannot be used ({type(error).__name__}: {first_line(error)})."), *names())


class _TooLong(Exception):
    """A chain of extends beyond what is followed; said of the preset that begins it."""


class _Parents:
    """Joins presets with what they extend; each is joined once, however many rest on it."""

    def __init__(self, documents: Mapping[tuple[str, str], Document]) -> None:
        self._documents = documents
        self._joined: dict[str, tuple[dict[str, Any], int]] = {}
        """By id: the content, and how many presets it rests on, one on the other."""

    def joined_with(self, document: Document) -> dict[str, Any]:
        """The document's content on top of everything it extends, nearest last."""
        try:
            content, depth = self._join(document, ())
        except _TooLong:
            depth = MOST_EXTENDS + 1
        if depth > MOST_EXTENDS:
            raise BadInput(f"{document.where}: extends goes through more than {MOST_EXTENDS} presets.")
        return content

    def _join(self, document: Document, above: tuple[str, ...]) -> tuple[dict[str, Any], int]:
        """`above`: what rests on it."""
        known = self._joined.get(document.name.lower())
        if known is None:
            known = self._joined[document.name.lower()] = self._join_anew(document, above)
        return known

    def _join_anew(self, document: Document, above: tuple[str, ...]) -> tuple[dict[str, Any], int]:
        if document.name in above:
            raise BadInput(f"{document.where}: extends leads back to itself: {' -> '.join((*above, document.name))}.")
        if len(above) > MOST_EXTENDS:
            raise _TooLong
        own = dict(document.content)
        parents = own.pop("extends", [])
        if not isinstance(parents, (str, list)):
            raise BadInput(
                f"{document.where}: key 'extends' is {parents!r}; it should be a preset's id or a list of ids."
            )
        joined: dict[str, Any] = {}
        depth = 0
        for name in [parents] if isinstance(parents, str) else parents:
            parent = self._documents.get(("experiment", str(name).lower()))
            if parent is None:
                known = [d.name for d in self._documents.values() if d.kind != "study"]
                missing = f"extends '{name}', which does not exist.{did_you_mean(str(name), known)}"
                raise BadInput(f"{document.where}: {missing}")
            content, below = self._join(parent, (*above, document.name))
            joined, depth = merge(joined, content), max(depth, below + 1)
        for key in ("part", "id", "title", "published", "about", "finding"):  # an arm's own story is not inherited
            joined.pop(key, None)
        return merge(joined, own), depth


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
            found: list[Document] = []
            with _only_this_suffers(catalogue, str(file), functools.partial(_ids_written_in, file)):
                found = list(_documents_of(file, kind))
            yield from found


def _ids_written_in(file: Path) -> list[str]:
    try:
        return WRITTEN_ID.findall(read_small_file(file, "yaml", follow=True).decode("utf-8", "replace"))
    except OSError:
        return []


def _documents_of(file: Path, kind: str) -> Iterator[Document]:
    for content in read_yaml_file(file, read_yaml_documents):
        if content is None:
            continue
        if not isinstance(content, dict):
            found = "a list" if isinstance(content, list) else "a single value"
            raise BadInput(f"{file}: expected keys such as id and title, found {found}.")
        own_kind = "part" if "part" in content else kind
        name = content.get("part" if own_kind == "part" else "id")
        if not isinstance(name, str):
            raise BadInput(f"{file}: key 'id' is missing or not text; every preset needs one.")
        if not NAME.fullmatch(name):
            raise BadInput(f"{file}: id '{name}' should be letters, digits, '-', '_' and '.', a letter or digit first.")
        if len(name) > LONGEST_NAME:
            raise BadInput(f"{file}: id '{name[:20]}...' has {len(name):,} characters; {LONGEST_NAME} are the most.")
        yield Document(file, own_kind, name, content)
