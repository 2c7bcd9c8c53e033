"""Labelled sentences and sentence pairs as flat token arrays, from a named set or the user's files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oelm_core.data import files, hub, sets
from oelm_core.data.files import Source
from oelm_core.data.test_source import held_out_share, is_path
from oelm_core.data.tokenizers import tokenizer_hash
from oelm_core.errors import BadData
from oelm_core.runs.folder import replace_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Data, Experiment

Say = Callable[[str], None]
Row = Mapping[str, Any]
# Names a column goes by in other people's files of the same set, tried in this order.
_PAIR_COLUMNS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"))
_SINGLE_COLUMNS = (("sentence",), ("text",), ("review",))
TEST_SEED = 1_000_003
"""Added to the seed of the validation part, so that the test part is another draw."""


@dataclass(frozen=True)
class Examples:
    """Tokenised examples end to end: example i is tokens[starts[i]:starts[i + 1]]."""

    tokens: np.ndarray  # int32 [total tokens]
    segments: np.ndarray  # uint8 [total tokens]; 0 for the first sentence, 1 for the second
    starts: np.ndarray  # int64 [examples + 1]
    labels: np.ndarray  # int64 [examples]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def tokens_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lengths of the chosen examples; and of each of their tokens its index and its place in its example."""
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return lengths, np.repeat(self.starts[chosen], lengths) + within, within


@dataclass(frozen=True)
class ClassificationData:
    """A training split and the validation splits; the first validation split decides what is best."""

    name: str
    train: Examples
    validation: Mapping[str, Examples]
    classes: int
    at_max_length: int
    """Examples that fill data.max_length: cut there, or just as long."""
    fingerprint: str
    test: Examples | None = None
    """What `data.test` names; never part of the fingerprint, for it decides nothing."""


def load(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerFast,
    cache: Path,
    say: Say = lambda _: None,
) -> ClassificationData:
    """Reads, checks and tokenises the experiment's data; tokenised arrays are kept in `cache`."""
    data = experiment.data
    loaded: dict[str, Examples] = {}
    full = 0
    for split, source in find_sources(data).items():
        loaded[split] = _tokenised(source, data, tokenizer, split, cache, say)
        full += int((loaded[split].lengths >= data.max_length).sum())
    train = loaded.pop("train")
    test, share = None, held_out_share(data.test)
    if share is not None:  # first of all, so that neither data.limit nor the validation part changes what it is
        train, test = hold_out(train, share, data.validation_seed + TEST_SEED, data.name)
    if not loaded:
        seed = data.validation_seed if data.validation == "random" else None
        train, held_out = hold_out(train, data.validation_fraction, seed, data.name)
        loaded = {"validation": held_out}
    if test is not None:
        test = _without_copies(test, [train, *loaded.values()], say)
    if data.limit:
        train = select(train, np.arange(min(data.limit, len(train))))
    if data.test is not None and test is None:
        test = load_scored(data, data.test, None, tokenizer, cache, say)
    known = fingerprint([train, *loaded.values()])
    if test is not None and any(fingerprint([test]) == fingerprint([one]) for one in (train, *loaded.values())):
        raise BadData(f"data.test {data.test}: these are the very examples that the run trains on or is chosen by.")
    return ClassificationData(data.name, train, loaded, data.classes or 0, full, known, test)


def load_scored(
    data: Data,
    wanted: str,
    split: str | None,
    tokenizer: PreTrainedTokenizerFast,
    cache: Path,
    say: Say = lambda _: None,
    key: str = "data.test",
) -> Examples:
    """Examples that are only scored: those of a path, or of a split of the experiment's own data.

    split: which one of a folder. `key` is the setting or option that named them, for errors.
    """
    return _tokenised(_scored_source(data, wanted, split, key), data, tokenizer, "test", cache, say)


def find_scored(folder: str, split: str | None, key: str) -> str | None:
    """The split of a folder that is scored: the one asked for, else test, else validation."""
    return files.find_split(Path(folder), files.TABLES, split, key)[0]


def _scored_source(data: Data, wanted: str, split: str | None, key: str) -> Source[Row]:
    if is_path(wanted):
        return files.source_of(files.find_split(Path(wanted), files.TABLES, split, key)[1], files.read_rows)
    named = sets.find_set(data.name)
    folder = sets.local_files(data.name, data.path)
    if folder is None and named is not None:
        folder = sets.kept_folder(named.name)
        place = named.test if wanted == "test" else named.splits.get(wanted)
        if place is not None and not any(folder.glob(f"{wanted}.*")):
            return _hub_source(named.name, place)
    if folder is None or folder.is_file():
        raise BadData(f"{key} {wanted}: {data.path or data.name} has no splits; name a file.")
    return files.source_of(files.find_split(folder, files.TABLES, wanted, key)[1], files.read_rows)


def _tokenised(
    source: Source[Row], data: Data, tokenizer: PreTrainedTokenizerFast, split: str, cache: Path, say: Say
) -> Examples:
    kept = _cache_file(cache, source, tokenizer, data, split)
    examples = _read_cached(kept)
    if examples is None:
        say(f"tokenising {data.name} {split} from {source.where}")
        examples = tokenise(source, data, tokenizer, split)
        _write_cached(kept, examples)
    return examples


def fingerprint(splits: Iterable[Examples]) -> str:
    """Names what a run trains and is judged on: equal only for equal tokens and labels in equal order."""
    digest = hashlib.sha256()
    for examples in splits:
        for part in (examples.tokens, examples.segments, examples.starts, examples.labels):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def find_sources(data: Data) -> dict[str, Source[Row]]:
    """Split -> source, training first: data.path, the folder kept by `oelm data prepare`, else the hub's cache."""
    named = sets.find_set(data.name)
    folder = sets.local_files(data.name, data.path)
    if folder is None and named is not None and named.kind == "classification":
        folder = sets.kept_folder(named.name)
        if not (folder / "manifest.json").is_file():
            wanted = [split for split in named.splits if split != data.test]
            return {split: _hub_source(named.name, named.splits[split]) for split in wanted}
    if folder is None:
        raise BadData(
            f"data.name {data.name}: not a classification set known by name"
            f" ({', '.join(s.name for s in sets.SETS.values() if s.kind == 'classification')});"
            " give its files with --set data.path=FOLDER."
        )
    splits = files.find_splits(folder, files.TABLES)
    if "train" not in splits:
        raise BadData(f"data.path {folder}: there is no training file (train.tsv, train.jsonl, ...).")
    wanted = ["train"]
    if data.validation == "split":
        others = ("validation", "mismatched") if data.test != "mismatched" else ("validation",)
        wanted += [split for split in others if split in splits]
        if len(wanted) == 1:
            raise BadData(
                f"data.path {folder}: there is no validation file beside {splits['train'][0].name};"
                " add one (validation.tsv) or hold a part out with --set data.validation=random."
            )
    return {split: files.source_of(splits[split], files.read_rows) for split in wanted}


def _hub_source(name: str, place: sets.Split) -> Source[Row]:
    table = hub.load_split(name, place)
    return Source(f"{place.repo} ({place.name})", str(table._fingerprint), lambda: table)


def text_columns(data: Data, found: Iterable[str], where: str) -> tuple[str, ...]:
    """The text columns to read: data.text, else what the set calls them, else a usual pair or single name."""
    columns = list(found)
    named = sets.find_set(data.name)
    choices: list[tuple[str, ...]] = [*_PAIR_COLUMNS, *_SINGLE_COLUMNS]
    if data.text:
        choices = [tuple(data.text)]
    elif named:
        choices = [named.text, *(_PAIR_COLUMNS if len(named.text) == 2 else _SINGLE_COLUMNS)]
    for choice in choices:
        if all(column in columns for column in choice):
            return choice
    raise BadData(
        f"{where}: no column{'s' if len(choices[0]) > 1 else ''} {' and '.join(choices[0])}; the columns are"
        f" {', '.join(map(str, columns))}. Name the text with --set data.text=[COLUMN]."
    )


def tokenise(source: Source[Row], data: Data, tokenizer: PreTrainedTokenizerFast, split: str) -> Examples:
    """Rows -> flat arrays. Labels are checked, texts cut at data.max_length tokens, longest sentence first."""
    names = data.labels or list(getattr(sets.find_set(data.name), "labels", ()))
    columns: tuple[str, ...] = ()
    texts: list[Any] = []
    labels: list[int] = []
    for number, row in enumerate(source.read(), 1):
        if not columns:
            columns = text_columns(data, row, source.where)
            if data.label not in row:
                raise BadData(
                    f"{source.where}: no column '{data.label}' for the labels; the columns are"
                    f" {', '.join(map(str, row))}. Name it with --set data.label=COLUMN."
                )
        labels.append(_label(row[data.label], names, data.classes or 0, source.where, number, split))
        parts = [row[column] for column in columns]
        if any(part is None for part in parts):
            raise BadData(f"{source.where}: row {number} has no text in column {columns[parts.index(None)]}.")
        texts.append(str(parts[0]) if len(parts) == 1 else (str(parts[0]), str(parts[1])))
    if not texts:
        raise BadData(f"{source.where}: the {split} split is empty.")
    return encode(texts, labels, data.max_length, tokenizer)


def _label(value: Any, names: list[str], classes: int, where: str, row: int, split: str) -> int:
    text = str(value).strip()
    if text in names:
        return names.index(text)
    try:
        number = int(text)
    except ValueError:
        number = -1
    if text == "-1" and split == "test":
        raise BadData(f"{where}: row {row} has no label (-1), as those of GLUE's test splits; name another text.")
    if not 0 <= number < classes:
        known = f" or {', '.join(names)}" if names else ""
        run = f"labels of {classes} classes run from 0 to {classes - 1}"
        if not known and not text.isdecimal():
            known = "; name the classes with --set data.labels=[NAME, NAME]"
        raise BadData(f"{where}: row {row} of {split} has label '{text}'; {run}{known}.")
    return number


def encode(texts: list[Any], labels: list[int], max_length: int, tokenizer: PreTrainedTokenizerFast) -> Examples:
    """Texts, or pairs of them, as flat arrays, cut at max_length tokens."""
    inner = tokenizer.backend_tokenizer
    inner.no_padding()
    inner.enable_truncation(max_length)  # longest_first, as transformers does with truncation=True
    nothing = next((t for t in (tokenizer.eos_token_id, tokenizer.pad_token_id) if t is not None), 0)
    tokens: list[np.ndarray] = []
    segments: list[np.ndarray] = []
    lengths = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), 10_000):
        for offset, encoded in enumerate(inner.encode_batch(texts[start : start + 10_000])):
            ids = encoded.ids or [nothing]  # an empty sentence without special tokens still needs a place
            tokens.append(np.asarray(ids, np.int32))
            segments.append(np.asarray(encoded.type_ids or [0], np.uint8))
            lengths[start + offset] = len(ids)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Examples(np.concatenate(tokens), np.concatenate(segments), starts, np.asarray(labels, np.int64))


def select(examples: Examples, chosen: np.ndarray) -> Examples:
    """The chosen examples, in the order given."""
    lengths, index, _ = examples.tokens_of(chosen)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Examples(examples.tokens[index], examples.segments[index], starts, examples.labels[chosen])


def hold_out(examples: Examples, share: float, seed: int | None, name: str) -> tuple[Examples, Examples]:
    """(what is left, a part of this share): drawn by the seed, or the last part without one."""
    count = max(1, round(len(examples) * share))
    if count >= len(examples):
        raise BadData(f"data.name {name}: {len(examples)} examples are too few to hold {count} of them out.")
    order = np.arange(len(examples))
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(examples))
    kept, held = np.sort(order[:-count]), np.sort(order[-count:])
    return select(examples, kept), select(examples, held)


def _without_copies(test: Examples, others: Iterable[Examples], say: Say) -> Examples:
    """Without the examples whose very text is also trained on or chosen by: a file may hold one more than once."""
    seen = {tokens for examples in others for tokens in _each(examples)}
    new = np.array([place for place, tokens in enumerate(_each(test)) if tokens not in seen], np.int64)
    if len(new) == 0:
        raise BadData("data.test: every held-out example is also among those that stay; name a file instead.")
    if len(new) < len(test):
        say(f"data.test: {len(test) - len(new)} held-out examples are also among those that stay, and are left out")
    return select(test, new)


def _each(examples: Examples) -> Iterator[bytes]:
    tokens, starts = np.ascontiguousarray(examples.tokens), examples.starts.tolist()
    return (tokens[start:end].tobytes() for start, end in itertools.pairwise(starts))


def _cache_file(cache: Path, source: Source[Row], tokenizer: PreTrainedTokenizerFast, data: Data, split: str) -> Path:
    key = "|".join(
        map(str, (source.identity, tokenizer_hash(tokenizer), data.text, data.label, data.labels, data.classes))
    )
    name = hashlib.sha256(f"{key}|{data.name}|{data.max_length}|{split}".encode()).hexdigest()[:20]
    return cache / "tokens" / f"{name}.npz"


def _read_cached(file: Path) -> Examples | None:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return Examples(**arrays)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile):
        return None  # not there, or half a file from a full disk: made again


def _write_cached(file: Path, examples: Examples) -> None:
    packed = io.BytesIO()
    np.savez(packed, **vars(examples))
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not the run
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, packed.getvalue(), durable=False)
