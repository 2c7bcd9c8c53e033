"""A tokenizer learnt from text: the same for the same text, of the size asked for, giving the text back."""

from __future__ import annotations

from pathlib import Path

import pytest

from oelm_core.data.tokenizers import load_named, make_tokenizer, tokenizer_hash
from oelm_core.errors import BadData, Refused

STORIES = [
    "Once upon a time there was a cat called Mia.",
    "Mia saw a dog. The dog saw Mia, and the cat ran up a tree!",
    "\u201cCome down,\u201d said the dog. \u201cOnce upon a time there was a tree.\u201d",
]


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    folder = tmp_path / "stories"
    folder.mkdir()
    (folder / "train.txt").write_text("\n<|endoftext|>\n".join(STORIES))
    (folder / "valid.txt").write_text("zzz zzz zzz zzz zzz zzz")
    return folder


def test_it_has_the_size_asked_for_and_gives_any_text_back(stories: Path, tmp_path: Path) -> None:
    made = load_named(str(make_tokenizer(stories, 280, tmp_path / "made")))
    assert len(made) == 280
    assert made.eos_token_id == made.convert_tokens_to_ids("<|endoftext|>") == 0
    for text in (*STORIES, "a word that was not there: \u00fcber"):
        assert made.decode(made(text)["input_ids"]) == text
    assert len(made("there was")["input_ids"]) < len("there was")
    assert "zz" not in made.get_vocab()  # validation text teaches nothing


def test_the_order_of_the_documents_does_not_matter_and_what_is_there_stays(stories: Path, tmp_path: Path) -> None:
    first = make_tokenizer(stories / "train.txt", 280, tmp_path / "first")
    stamp = (first / "tokenizer.json").stat().st_mtime_ns
    (stories / "train.txt").write_text("\n<|endoftext|>\n".join(STORIES[::-1]))
    assert make_tokenizer(stories / "train.txt", 280, tmp_path / "first") == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == stamp
    other = make_tokenizer(stories, 279, tmp_path / "other")
    assert tokenizer_hash(load_named(str(other))) != tokenizer_hash(load_named(str(first)))
    with pytest.raises(Refused, match=r"first is there already and holds something else; name another folder"):
        make_tokenizer(stories, 279, first)


@pytest.mark.parametrize(
    ("place", "size", "sentence"),
    [
        ("train.txt", 256, "a vocabulary of 256 is too small: 256 bytes and the end token are 257"),
        ("train.txt", 5000, "the text is too short for 5000 tokens: it has only "),
        ("nowhere.txt", 280, "--from .*nowhere.txt: no such file or folder"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(
    stories: Path, tmp_path: Path, place: str, size: int, sentence: str
) -> None:
    with pytest.raises(BadData, match=sentence):
        make_tokenizer(stories / place, size, tmp_path / "made")
    assert not (tmp_path / "made").exists()
