"""Text for a language model as token arrays: prepared folders opened, small texts tokenised on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oelm_core.data import files, prepare, sets, token_files
from oelm_core.data.files import Source, exclusive
from oelm_core.data.test_source import is_path
from oelm_core.data.tokenizers import tokenizer_hash
from oelm_core.errors import BadData, NotFound
from oelm_core.formatting import size

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Data, Experiment

SMALL = 512 << 20  # bytes of text that a run may tokenise itself; more is `oelm data prepare`'s work


@dataclass(frozen=True)
class LanguageData:
    """Token streams, documents end to end with an end token between; memory-mapped."""

    name: str
    train: np.ndarray  # uint16 or uint32 [tokens]
    validation: np.ndarray
    end_token: int
    fingerprint: str
    test: np.ndarray | None = None
    """What `data.test` names; never part of the fingerprint, for it decides nothing."""


def load(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerFast,
    cache: Path,
    say: Callable[[str], None] = lambda _: None,
) -> LanguageData:
    """The experiment's token streams: a prepared folder, or text tokenised into the cache first."""
    data = experiment.data
    folder = Path(data.path).expanduser() if data.path else sets.kept_folder(data.name)
    if token_files.read_manifest(folder) is None:
        folder = _prepare_small(data, tokenizer, cache, say)
    found = open_prepared(folder, data, tokenizer)
    if data.test is None:
        return found
    test = load_scored(data, data.test, None, tokenizer, cache, say)
    if any(np.array_equal(test, one) for one in (found.train, found.validation)):
        raise BadData(f"data.test {data.test}: this is the very text that the run trains on or is chosen by.")
    return replace(found, test=test)


def load_scored(
    data: Data,
    wanted: str,
    split: str | None,
    tokenizer: PreTrainedTokenizerFast,
    cache: Path,
    say: Callable[[str], None] = lambda _: None,
    key: str = "data.test",
) -> np.ndarray:
    """A token stream that is only scored: of a path, or of a split of the experiment's own data.

    split: which one of a folder. `key` is the setting or option that named it, for errors.
    """
    for folder, name in _prepared_places(data, wanted, split):
        manifest = token_files.read_manifest(folder)
        if manifest is not None and name in manifest.splits:
            _check_tokenizer(folder, manifest, tokenizer)
            return _stream(folder, manifest, name)
    source = _scored_source(data, wanted, split, key)
    known = hashlib.sha256(f"{source.identity} {tokenizer_hash(tokenizer)}".encode()).hexdigest()[:16]
    folder = cache / "tokens" / f"{data.name}-test-{known}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / f".{folder.name}.lock"):
        if not token_files.read_manifest(folder):
            say(f"tokenising {data.name} test from {source.where}")
            token_files.write_tokens(folder, data.name, {"test": source}, tokenizer)
    manifest = token_files.read_manifest(folder)
    assert manifest is not None
    tokens = _stream(folder, manifest, "test")
    if len(tokens) < 2:
        raise BadData(f"{key} {wanted}: {len(tokens)} tokens are too few to score.")
    return tokens


def find_scored(folder: str, split: str | None, key: str) -> str | None:
    """The split of a folder, of text or of tokens, that is scored: the one asked for, else test, else validation."""
    for place, name in _prepared_places(None, folder, split):
        manifest = token_files.read_manifest(place)
        if manifest is not None and name in manifest.splits:
            return name
    return files.find_split(Path(folder), prepare.READABLE, split, key)[0]


def _prepared_places(data: Data | None, wanted: str, split: str | None) -> list[tuple[Path, str]]:
    """Folders that may hold the text as tokens already, each with its split's name there."""
    if is_path(wanted):
        folder = Path(wanted).expanduser()
        names = [split] if split else ["test", "validation"]
        return [place for name in names for place in ((folder, name), (folder / name, name))]
    if data is None:
        return []
    folder = Path(data.path).expanduser() if data.path else sets.kept_folder(data.name)
    return [(folder / wanted, wanted)]


def _scored_source(data: Data, wanted: str, split: str | None, key: str) -> Source[str]:
    column = (data.text or ["text"])[0]
    if is_path(wanted):
        _refuse_large(Path(wanted).expanduser(), data)
        return prepare.documents_of(files.find_split(Path(wanted), prepare.READABLE, split, key)[1], column)
    if data.path:
        folder = Path(data.path).expanduser()
        if token_files.read_manifest(folder) is not None or folder.is_file():
            raise BadData(f"{key} {wanted}: {folder} holds no {wanted} text; name a file of text.")
        return prepare.documents_of(files.find_split(folder, prepare.READABLE, wanted, key)[1], column)
    return prepare.split_source(data.name, wanted)


def _prepare_small(data: Data, tokenizer: PreTrainedTokenizerFast, cache: Path, say: Callable[[str], None]) -> Path:
    named = sets.find_set(data.name)
    if data.path:
        _refuse_large(Path(data.path).expanduser(), data)
    elif named is None or named.kind == "classification":
        raise BadData(f"data.name {data.name}: not a text known by name; give its files with --set data.path=FOLDER.")
    elif named.kind == "language":
        raise NotFound(
            f"dataset {data.name} is not prepared: looked in {sets.kept_folder(data.name)}."
            f" To get it: {sets.how_to_get(named.name)}."
        )
    sources = prepare.text_sources(data.name, data.path, data.text)
    held_out = token_files.HeldOut.of(data)
    if held_out and "validation" in sources:
        say(f"{sources['validation'].where} is left aside: data.validation is random, as the recipe says")
    identity = [{split: source.identity for split, source in sources.items()}, tokenizer_hash(tokenizer), str(held_out)]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / "tokens" / f"{data.name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / f".{folder.name}.lock"):  # several runs started at once tokenise once
        if not token_files.read_manifest(folder):
            say(f"tokenising {data.name} from {sources['train'].where}")
            token_files.write_tokens(folder, data.name, sources, tokenizer, held_out)
    return folder


def _refuse_large(path: Path, data: Data) -> None:
    texts = [path] if path.is_file() else list(path.rglob("*")) if path.is_dir() else []
    total = sum(text.stat().st_size for text in texts if text.is_file())
    if total > SMALL:
        raise BadData(
            f"data.path {path}: {size(total)} of text is prepared once, not by every run:"
            f" oelm data prepare {data.name} --path {path} --out FOLDER, then --set data.path=FOLDER."
        )


def open_prepared(folder: Path, data: Data, tokenizer: PreTrainedTokenizerFast) -> LanguageData:
    """Memory-maps a prepared folder and cuts it as the experiment says; refuses one made otherwise."""
    manifest = token_files.read_manifest(folder)
    if manifest is None:
        raise BadData(f"{folder}: holds no prepared tokens; see: oelm data prepare.")
    _check_tokenizer(folder, manifest, tokenizer)
    train = _stream(folder, manifest, "train")
    prepared = manifest.max_tokens
    if prepared is not None and (data.max_tokens is None or data.max_tokens > len(train)):
        raise BadData(
            f"{folder}: only the first {prepared} tokens were prepared, the experiment asks for"
            f" {data.max_tokens or 'all'}; prepare it again into another folder or set data.max_tokens={prepared}."
        )
    if data.max_tokens:
        train = train[: data.max_tokens]
    train, validation = _cut(train, folder, manifest, data)
    shortest = min(len(train), len(validation))
    if shortest < 2 or len(train) < data.max_length + 1:
        raise BadData(
            f"{folder}: {len(train)} training and {len(validation)} validation tokens are too few"
            f" for sequences of {data.max_length}."
        )
    kept = {name: split.sha256 for name, split in manifest.splits.items()}
    cut = [kept, data.validation, data.validation_fraction, data.max_tokens]
    fingerprint = hashlib.sha256(json.dumps(cut, sort_keys=True).encode()).hexdigest()[:16]
    return LanguageData(data.name, train, validation, manifest.end_token, fingerprint)


def _check_tokenizer(folder: Path, manifest: token_files.Manifest, tokenizer: PreTrainedTokenizerFast) -> None:
    if manifest.tokenizer.hash != tokenizer_hash(tokenizer):
        raise BadData(
            f"{folder}: prepared with another tokenizer ({manifest.tokenizer}; the"
            f" experiment's has {len(tokenizer)}, {tokenizer_hash(tokenizer)}); set data.tokenizer or prepare it again."
        )


def fingerprint(tokens: np.ndarray, end_token: int) -> str:
    """Names a text that is only scored: equal only for equal tokens."""
    return hashlib.sha256(np.ascontiguousarray(tokens).tobytes() + str(end_token).encode()).hexdigest()[:16]


def _stream(folder: Path, manifest: token_files.Manifest, split: str) -> np.ndarray:
    about = manifest.splits[split]
    file = folder / about.file
    dtype = np.dtype(manifest.dtype)
    if not file.is_file() or file.stat().st_size != about.tokens * dtype.itemsize:
        raise BadData(f"{file}: does not match its manifest; delete {folder} and prepare it again.")
    return np.memmap(file, dtype, mode="r")


def _cut(train: np.ndarray, folder: Path, manifest: token_files.Manifest, data: Data) -> tuple[np.ndarray, np.ndarray]:
    if data.validation == "tail":
        held = max(1, round(len(train) * data.validation_fraction))
        return train[:-held], train[-held:]
    wanted = token_files.HeldOut.of(data)
    if manifest.held_out != wanted:
        raise BadData(
            f"{folder}: its validation text was held out as {manifest.held_out or 'its own split'} but the"
            f" experiment asks for {wanted or 'its own split'}; prepare it again into another folder."
        )
    if "validation" not in manifest.splits:
        raise BadData(
            f"{folder}: there is no validation text; add a validation file or write --set data.validation=tail."
        )
    return train, _stream(folder, manifest, "validation")


def sequence_count(tokens: np.ndarray, length: int) -> int:
    """Whole sequences of `length` inputs, each with its next token."""
    return (len(tokens) - 1) // length


def sequences(tokens: np.ndarray, chosen: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets) `[chosen, length]` int64; targets are the inputs one further."""
    windows = np.stack([tokens[i * length : i * length + length + 1] for i in chosen]).astype(np.int64)
    return windows[:, :-1], windows[:, 1:]
