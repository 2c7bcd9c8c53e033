"""The generated demo data: the same bytes everywhere, splits that share nothing, and no short cut to the answer."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oelm_core.data import synthetic
from oelm_core.data.files import SEPARATOR
from oelm_core.data.synthetic import Dice
from oelm_core.errors import NotFound, Refused

FILES = {"demo-sentiment": ("train.tsv", "valid.tsv"), "demo-stories": ("train.txt", "valid.txt")}

# A changed text needs a new VERSION (old caches would be read as the new data) and then new digests here.
DIGESTS = {
    (2, "demo-sentiment"): "dc941cf47150b5cb",
    (2, "demo-stories"): "081925ab0fda5b0e",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    for name in FILES:
        synthetic.ensure(name, folder)
    return folder


def _reviews(cache: Path, split: str) -> list[tuple[str, int]]:
    text = (synthetic.ensure("demo-sentiment", cache) / f"{split}.tsv").read_text()
    rows = [line.split("\t") for line in text.splitlines()]
    assert rows[0] == ["sentence", "label"]
    return [(sentence, int(label)) for sentence, label in rows[1:]]


def _stories(cache: Path, split: str) -> list[str]:
    text = (synthetic.ensure("demo-stories", cache) / f"{split}.txt").read_text()
    return [story.strip() for story in text.split(SEPARATOR) if story.strip()]


@pytest.mark.parametrize("name", FILES)
def test_the_text_of_a_version_never_changes(cache: Path, name: str) -> None:
    folder = synthetic.ensure(name, cache)
    digest = hashlib.sha256(b"".join((folder / file).read_bytes() for file in FILES[name])).hexdigest()
    assert digest[:16] == DIGESTS[synthetic.VERSION, name]


def test_the_dice_give_the_published_splitmix64_sequence() -> None:
    dice = Dice(1234567)
    assert [dice.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_another_seed_gives_another_text(tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        synthetic.write_sentiment(tmp_path / str(seed), seed=seed, train=20, valid=5)
        synthetic.write_stories(tmp_path / str(seed), seed=seed, train=20, valid=5)
    for files in FILES.values():
        for file in files:
            assert (tmp_path / "0" / file).read_bytes() != (tmp_path / "1" / file).read_bytes()


def test_no_sentence_or_story_is_in_both_splits_or_twice_in_one(cache: Path) -> None:
    for texts in ([r[0] for s in ("train", "valid") for r in _reviews(cache, s)], _both(cache)):
        assert len(set(texts)) == len(texts)


def _both(cache: Path) -> list[str]:
    return [story for split in ("train", "valid") for story in _stories(cache, split)]


def test_the_vocabulary_is_exactly_the_words_that_occur(cache: Path) -> None:
    reviews = {word for sentence, _ in _reviews(cache, "train") for word in sentence.split(" ")}
    told = {word for story in _stories(cache, "train") for word in story.split(" ")}
    assert synthetic.review_words() == reviews
    assert synthetic.story_words() == told
    assert synthetic.vocabulary() == sorted(reviews | told)


def _read(clause: str) -> tuple[bool, bool, int]:
    """(the writer's own, about the work, liked) of one clause, by reading it."""
    tokens = clause.split()
    own = not {"my", "people", "advert"} & set(tokens)
    good = any(token in synthetic.GOOD for token in tokens)
    denied = bool({"not", "never", "nothing", "deny"} & set(tokens)) or "far from" in clause
    return own, any(token in synthetic.WORKS for token in tokens), int(good != denied)


def _verdict_by_rule(sentence: str) -> int:
    """The label from the text alone: the writer's clause about the work, and of two the one that is not conceded."""
    clauses = sentence.removesuffix(" .").split(" , ")
    found = []
    for clause in clauses:
        own, on_work, liked = _read(clause)
        if own and on_work:
            found.append((clause, liked))
    if len(found) == 1:
        return found[0][1]
    (first, liked_first), (second, liked_second) = found
    if second.startswith("but") or first.startswith("although"):
        return liked_second
    assert second.startswith("although")
    return liked_first


def test_every_label_follows_from_its_sentence_by_rule(cache: Path) -> None:
    for split in ("train", "valid"):
        wrong = [sentence for sentence, label in _reviews(cache, split) if _verdict_by_rule(sentence) != label]
        assert wrong == []


def test_the_labels_are_balanced(cache: Path) -> None:
    for split in ("train", "valid"):
        labels = [label for _, label in _reviews(cache, split)]
        assert 0.45 < sum(labels) / len(labels) < 0.55


def _naive_bayes_accuracy(train: list[tuple[str, int]], valid: list[tuple[str, int]]) -> float:
    counts = (Counter[str](), Counter[str]())
    for sentence, label in train:
        counts[label].update(set(sentence.split()))
    sizes = Counter(label for _, label in train)

    def says_liked(sentence: str) -> bool:
        odds = math.log(sizes[1] / sizes[0])
        for word in set(sentence.split()):
            odds += math.log((counts[1][word] + 1) / (sizes[1] + 2)) - math.log((counts[0][word] + 1) / (sizes[0] + 2))
        return odds > 0

    return sum(says_liked(sentence) == bool(label) for sentence, label in valid) / len(valid)


def _logistic_accuracy(train: list[tuple[str, int]], valid: list[tuple[str, int]]) -> float:
    """Word counts into a linear classifier, trained to convergence by Newton's method."""
    import numpy as np

    column = {word: number for number, word in enumerate(sorted(synthetic.review_words()))}

    def matrix(rows: list[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
        counts = np.zeros((len(rows), len(column) + 1))
        counts[:, -1] = 1
        for row, (sentence, _) in enumerate(rows):
            for word in sentence.split():
                counts[row, column[word]] += 1
        return counts, np.array([label for _, label in rows], dtype=float)

    x, y = matrix(train)
    weights = np.zeros(x.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-x @ weights))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(weights))
        weights -= np.linalg.solve(hessian, x.T @ (p - y) + weights)
    held_out, truth = matrix(valid)
    return float(np.mean((held_out @ weights > 0) == truth))


def test_counting_words_is_not_enough(cache: Path) -> None:
    train, valid = _reviews(cache, "train"), _reviews(cache, "valid")
    assert _naive_bayes_accuracy(train, valid) < 0.70
    assert _logistic_accuracy(train[:4000], valid) < 0.75


def test_a_story_keeps_to_its_pronouns(cache: Path) -> None:
    for story in _stories(cache, "train")[:1000]:
        tokens = story.split()
        girl = any(token in synthetic.GIRLS for token in tokens)
        assert girl != any(token in synthetic.BOYS for token in tokens)
        assert not {"he", "him", "his"} & set(tokens) if girl else not {"she", "her"} & set(tokens)


def test_a_story_recalls_its_find_colour_and_place_at_the_end(cache: Path) -> None:
    for story in _stories(cache, "train")[:1000]:
        tokens = story.split()
        finds = [token for token in tokens if token in synthetic.FINDS]
        colours = [token for token in tokens if token in synthetic.COLOURS]
        places = [place for place in synthetic.PLACES if place in story]
        assert finds[0] == finds[-1]
        assert colours[0] == colours[-1]
        assert len(set(finds)) == len(set(colours)), "a refused find differs in both"
        assert len(places) == 1
        assert story.count(places[0]) >= 2
        assert story.rindex(finds[-1]) > len(story) * 0.6


def test_ensure_generates_once(tmp_path: Path) -> None:
    first = synthetic.ensure("demo-sentiment", tmp_path)
    (first / "mark").touch()
    assert synthetic.ensure("demo-sentiment", tmp_path) == first
    assert (first / "mark").exists()


def test_the_folder_carries_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = synthetic.ensure("demo-stories", tmp_path)
    monkeypatch.setattr(synthetic, "VERSION", synthetic.VERSION + 1)
    assert synthetic.ensure("demo-stories", tmp_path) != old


def test_processes_that_ask_at_once_all_get_the_whole_set(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oelm_core.data import synthetic;"
        "print(len((synthetic.ensure('demo-stories', Path(sys.argv[1])) / 'train.txt').read_bytes()))"
    )

    def ask(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(4) as pool:
        sizes = set(pool.map(ask, range(4)))
    assert sizes == {f"{(synthetic.ensure('demo-stories', tmp_path) / 'train.txt').stat().st_size}\n"}
    assert [path.name for path in tmp_path.iterdir()] == [f"demo-stories-v{synthetic.VERSION}"], "no drafts left"


def test_the_one_that_comes_second_takes_the_first_ones_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found nothing and both wrote; the other renamed first."""
    rename = os.rename

    def other_first(draft: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "train.tsv").touch()
        rename(draft, folder)

    monkeypatch.setattr(os, "rename", other_first)
    folder = synthetic.ensure("demo-sentiment", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["train.tsv"]
    assert list(tmp_path.iterdir()) == [folder]


def test_an_unknown_demo_set_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Did you mean demo-stories"):
        synthetic.ensure("demo-story", tmp_path)


def test_a_cache_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot write demo-stories"):
        synthetic.ensure("demo-stories", tmp_path / "file")


def test_generating_needs_the_standard_library_only() -> None:
    code = "import oelm_core.data.synthetic, sys; print({'numpy', 'torch', 'pydantic', 'datasets'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "set()"


def test_the_demo_models_have_room_for_every_word_and_sentence(cache: Path) -> None:
    from oelm_core.config.catalogue import load_catalogue

    catalogue = load_catalogue()
    longest = max(len(sentence.split()) for split in ("train", "valid") for sentence, _ in _reviews(cache, split))
    for arm in catalogue.study("demo").arms:
        experiment = catalogue.experiment(arm)
        shape = experiment.model.shape
        assert shape is not None
        assert len(synthetic.vocabulary()) + 6 <= shape.vocab, "six special tokens come with the words"
        if experiment.family == "bert":
            assert longest + 2 <= experiment.data.max_length


def test_the_arms_of_a_demo_family_differ_in_their_method_only() -> None:
    from oelm_core.config import as_dict
    from oelm_core.config.catalogue import load_catalogue

    catalogue = load_catalogue()
    for family in ("bert", "gpt"):
        arms = [as_dict(catalogue.experiment(f"demo-{family}-{what}")) for what in ("baseline", "oelm", "random")]
        for part in ("model", "data", "train", "seed"):
            assert arms[0][part] == arms[1][part] == arms[2][part]
