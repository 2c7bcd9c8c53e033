"""The named datasets: titles, columns, labels, where their splits are on the hub. A new one is an entry here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from oelm_core.errors import NotFound, did_you_mean
from oelm_core.home import home

GLUE = "nyu-mll/glue"
NLI_LABELS = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Split:
    """Where one split lives on the hub."""

    repo: str
    config: str | None
    name: str


@dataclass(frozen=True)
class NamedSet:
    """A dataset known by name. `text` holds the column names: one, or two for sentence pairs."""

    name: str
    title: str
    """As papers write it."""
    kind: Literal["classification", "language", "demo"]
    about: str
    splits: Mapping[str, Split] = field(default_factory=dict)
    text: tuple[str, ...] = ("text",)
    labels: tuple[str, ...] = ()
    held_out: Literal["split", "random", "tail"] = "split"
    """How `oelm data prepare` holds validation text out unless an experiment says otherwise."""
    max_tokens: int | None = None
    """How much of the text `oelm data prepare` takes unless an experiment says otherwise."""
    aliases: tuple[str, ...] = ()
    """Other names people give it."""
    mean_tokens: int | None = None
    """Tokens of a training example in the mean, as BERT's tokenizer cuts them; None where we did not count them."""
    test: Split | None = None
    """A test split with labels, fetched for runs whose `data.test` asks for it. GLUE keeps the labels of its own."""


def _places(repo: str, config: str | None, **splits: str) -> dict[str, Split]:
    """Splits that lie in one repository: ours -> what the hub calls it."""
    return {ours: Split(repo, config, theirs) for ours, theirs in splits.items()}


BOTH = {"train": "train", "validation": "validation"}


def _glue(
    title: str,
    about: str,
    text: tuple[str, ...],
    labels: tuple[str, ...],
    aliases: tuple[str, ...] = (),
    mean_tokens: int | None = None,
) -> NamedSet:
    name = title.lower().replace("-", "")
    places = _places(GLUE, name, **BOTH)
    return NamedSet(
        name, title, "classification", about, places, text, labels, aliases=aliases, mean_tokens=mean_tokens
    )


SETS: dict[str, NamedSet] = {
    named.name: named
    for named in (
        _glue("SST-2", "film reviews, negative or positive", ("sentence",), ("negative", "positive"), ("sst-2",), 13),
        _glue("QQP", "do two questions ask the same", ("question1", "question2"), ("not_duplicate", "duplicate")),
        _glue("MRPC", "do two sentences say the same", ("sentence1", "sentence2"), ("not_equivalent", "equivalent")),
        _glue("CoLA", "is the sentence grammatical", ("sentence",), ("unacceptable", "acceptable")),
        _glue("QNLI", "does the sentence answer", ("question", "sentence"), ("entailment", "not_entailment")),
        NamedSet(
            "mnli",
            "MNLI",
            "classification",
            "does the premise entail the hypothesis",
            _places(GLUE, "mnli", train="train", validation="validation_matched", mismatched="validation_mismatched"),
            ("premise", "hypothesis"),
            NLI_LABELS,
        ),
        NamedSet(
            "xnli",
            "XNLI",
            "classification",
            "train = MNLI, validation = XNLI English",
            {"train": Split(GLUE, "mnli", "train"), "validation": Split("facebook/xnli", "en", "validation")},
            ("premise", "hypothesis"),
            NLI_LABELS,
            test=Split("facebook/xnli", "en", "test"),
        ),
        NamedSet(
            "tinystories",
            "TinyStories",
            "language",
            "short stories in simple words",
            _places("roneneldan/TinyStories", None, **BOTH),
            held_out="random",
        ),
        NamedSet(
            "openwebtext",
            "OpenWebText",
            "language",
            "web pages linked from Reddit",
            _places("Skylion007/openwebtext", None, train="train"),
            held_out="tail",
            max_tokens=100_000_000,
            aliases=("owt",),
        ),
        NamedSet(
            "wikitext103",
            "WikiText-103",
            "language",
            "good Wikipedia articles",
            _places("Salesforce/wikitext", "wikitext-103-raw-v1", **BOTH),
            aliases=("wikitext-103", "wikitext-103-raw-v1"),
            test=Split("Salesforce/wikitext", "wikitext-103-raw-v1", "test"),
        ),
        NamedSet(
            "demo-sentiment", "demo reviews", "demo", "generated two-class sentiment sentences", text=("sentence",)
        ),
        NamedSet("demo-stories", "demo stories", "demo", "generated short stories"),
    )
}


def find_set(name: str) -> NamedSet | None:
    """The set of that name, without regard to case; None for a name of the user's own."""
    key = name.lower()
    return SETS.get(key) or next((named for named in SETS.values() if key in named.aliases), None)


def set_title(name: str) -> str:
    """A dataset as papers write it: sst2 is SST-2. Other people's sets are called what they call them."""
    named = find_set(name)
    return named.title if named else name


def known_set(name: str) -> NamedSet:
    found = find_set(name)
    if found is None:
        raise NotFound(
            f"no dataset is called '{name}'.{did_you_mean(name, SETS)} Known: {', '.join(SETS)};"
            " or point data.path at your own files."
        )
    return found


def cache_dir() -> Path:
    """Things that can be made again: tokenised examples, generated demo data, the demo encoder."""
    return home() / "cache"


def local_files(name: str, path: str | None) -> Path | None:
    """The user's own files, or those of a demo set, generated when first asked for; None for any other set."""
    named = find_set(name)
    if path or named is None or named.kind != "demo":
        return Path(path).expanduser() if path else None
    from oelm_core.data import synthetic

    return synthetic.ensure(named.name, cache_dir())


def kept_folder(name: str) -> Path:
    """The folder of a named set kept by `oelm data prepare`, whether or not it is there yet."""
    named = find_set(name)
    return home() / "data" / (named.name if named else name.lower())


def hub_caches() -> tuple[Path, Path]:
    """Where the `datasets` and `huggingface_hub` libraries keep what they fetch."""
    hf_home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser()
    datasets_cache = Path(os.environ.get("HF_DATASETS_CACHE") or hf_home / "datasets").expanduser()
    hub_cache = Path(os.environ.get("HF_HUB_CACHE") or hf_home / "hub").expanduser()
    return datasets_cache, hub_cache


def hub_cache_folders(place: Split) -> list[Path]:
    """Folders in those caches that hold a split's configuration."""
    datasets_cache, hub_cache = hub_caches()
    repo = place.repo.replace("/", "___")
    names = {repo, repo.lower()}
    built = [datasets_cache / name / (place.config or "default") for name in sorted(names)]
    snapshots = hub_cache / f"datasets--{place.repo.replace('/', '--')}" / "snapshots"
    fetched = [found for snapshot in snapshots.glob("*") for found in snapshot.glob(place.config or ".")]
    return [folder for folder in (*built, *fetched) if folder.is_dir()]


def available(name: str) -> tuple[bool, str]:
    """(can a run use it without a network?, where it is, or the command that gets it). Imports nothing heavy."""
    named = known_set(name)
    if named.kind == "demo":
        return True, "generated when first used"
    kept = kept_folder(named.name)
    if (kept / "manifest.json").is_file():
        return True, str(kept)
    cached = [folders[0] for split in named.splits.values() if (folders := hub_cache_folders(split))]
    if named.kind == "classification" and len(cached) == len(named.splits):  # text must be tokenised first
        return True, ", ".join(sorted({str(folder) for folder in cached}))
    return False, how_to_get(named.name)


def how_to_get(name: str) -> str:
    """One sentence: the command, and the variables for a mirror or a cache."""
    return (
        f"on a machine with a network run `oelm data prepare {name}` and copy {kept_folder(name)} here,"
        " or set HF_HOME to a filled cache or HF_ENDPOINT to a mirror, or give files with --set data.path=FOLDER"
    )
