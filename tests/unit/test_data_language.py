"""Token files: prepared once, gone on with after an interruption, refused when made otherwise than asked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oelm_core.config import Data, build_experiment
from oelm_core.data import language, prepare, token_files
from oelm_core.data.files import Source
from oelm_core.data.tokenizers import word_tokenizer
from oelm_core.errors import BadInput, NotFound, Refused
from tests.training_runs import GPT

WORDS = ["once", "there", "was", "a", "cat", "dog", "."]
END = 5
STORIES = ["once there was a cat .", "a dog was there .", "there was once a dog .", "cat . dog ."]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text("\n<|endoftext|>\n".join(STORIES * 5))
    (folder / "valid.txt").write_text("a cat was a dog .\n<|endoftext|>\nthere was a dog .\n")
    return folder


def data(path: Path, **settings: Any) -> Data:
    return Data(**{"name": "mine", "path": str(path), "max_length": 8, **settings})


def load(path: Path, cache: Path, words: list[str] = WORDS, **settings: Any) -> language.LanguageData:
    chosen = build_experiment({**GPT, "data": data(path, **settings).model_dump()}, "test")
    return language.load(chosen, word_tokenizer(words), cache)


def test_documents_stand_end_to_end_with_an_end_token_after_each(texts: Path, tmp_path: Path) -> None:
    found = load(texts, tmp_path / "cache")
    spoken = word_tokenizer(WORDS).decode(found.train[:13].tolist())
    assert spoken == "once there was a cat . <|endoftext|> a dog was there . <|endoftext|>"
    assert (found.train == END).sum() == 20
    assert (found.validation == END).sum() == 2
    assert found.train.dtype == np.uint16


def test_sequences_do_not_overlap_and_targets_are_one_further() -> None:
    text = np.arange(20, dtype=np.uint16)
    assert language.sequence_count(text, 6) == 3
    inputs, targets = language.sequences(text, np.array([2, 0]), 6)
    assert inputs.tolist() == [[12, 13, 14, 15, 16, 17], [0, 1, 2, 3, 4, 5]]
    assert targets.tolist() == [[13, 14, 15, 16, 17, 18], [1, 2, 3, 4, 5, 6]]
    assert language.sequence_count(np.arange(6), 6) == 0


def test_text_is_tokenised_once(texts: Path, tmp_path: Path) -> None:
    first = load(texts, tmp_path / "cache")
    made = [p for p in (tmp_path / "cache" / "tokens").iterdir() if p.is_dir()]
    stamp = (made[0] / "train.bin").stat().st_mtime_ns
    again = load(texts, tmp_path / "cache")
    assert again.fingerprint == first.fingerprint
    assert (made[0] / "train.bin").stat().st_mtime_ns == stamp


def test_the_tail_or_random_documents_can_be_held_out(texts: Path, tmp_path: Path) -> None:
    whole = load(texts, tmp_path / "cache").train
    tail = load(texts, tmp_path / "cache", validation="tail", validation_fraction=0.1)
    assert len(tail.train) + len(tail.validation) == len(whole)
    assert np.array_equal(np.concatenate([tail.train, tail.validation]), whole)
    drawn = load(texts, tmp_path / "cache", validation="random", validation_fraction=0.3)
    assert len(drawn.train) + len(drawn.validation) == len(whole)
    assert drawn.train[-1] == drawn.validation[-1] == END  # whole documents on either side
    other = load(texts, tmp_path / "cache", validation="random", validation_fraction=0.3, validation_seed=7)
    assert other.fingerprint != drawn.fingerprint


def test_only_the_first_tokens_are_used_when_asked(texts: Path, tmp_path: Path) -> None:
    found = load(texts, tmp_path / "cache", max_tokens=50, validation="tail", validation_fraction=0.2)
    assert (len(found.train), len(found.validation)) == (40, 10)


class Interrupt(Exception):
    pass


def test_an_interrupted_preparation_goes_on_and_gives_the_same_files(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "SHARD", 3)
    tokenizer = word_tokenizer(WORDS)
    held_out = token_files.HeldOut(0.3, 42)
    sources = prepare.text_sources("mine", str(texts))
    whole = token_files.write_tokens(tmp_path / "whole", "mine", sources, tokenizer, held_out)
    read = {"documents": 0}
    original = sources["train"].read

    def counted() -> Iterator[str]:
        for document in original():
            read["documents"] += 1
            yield document

    watched = {**sources, "train": Source("x", sources["train"].identity, counted)}
    broken = tmp_path / "broken"
    for stop_at in (4, 7, 16):

        def stop(documents: int, tokens: int, fraction: float | None, stop_at: int = stop_at) -> None:
            if documents >= stop_at:
                raise Interrupt

        with pytest.raises(Interrupt):
            token_files.write_tokens(broken, "mine", watched, tokenizer, held_out, stop)
        with open(broken / "train.bin.part", "ab") as part:
            part.write(b"half a shard")  # what a kill in the middle of a write leaves
    journal = json.loads((broken / "journal.json").read_text())
    assert journal["documents"] == 18
    token_files.write_tokens(broken, "mine", watched, tokenizer, held_out)
    for name in ("train.bin", "validation.bin"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert not (broken / "journal.json").exists()


@pytest.mark.parametrize("held_out", [None, token_files.HeldOut(0.3, 42)])
@pytest.mark.parametrize("killed_before", ["validation.bin", "manifest.json"])
def test_a_preparation_killed_while_it_finishes_gives_the_same_files(
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_before: str,
    held_out: token_files.HeldOut | None,
) -> None:
    sources = prepare.text_sources("mine", str(texts))
    tokenizer = word_tokenizer(WORDS)
    whole = token_files.write_tokens(tmp_path / "whole", "mine", sources, tokenizer, held_out)
    replace = os.replace

    def killed(old: Path, new: Path) -> None:
        if Path(new).name == killed_before:
            raise Interrupt
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(Interrupt):
            token_files.write_tokens(tmp_path / "broken", "mine", sources, tokenizer, held_out)
    broken = token_files.write_tokens(tmp_path / "broken", "mine", sources, tokenizer, held_out)
    for name in ("train.bin", "validation.bin"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert not list(broken.glob("*.part"))


def test_a_part_file_shorter_than_its_journal_starts_over(texts: Path, tmp_path: Path) -> None:
    sources = prepare.text_sources("mine", str(texts))
    tokenizer = word_tokenizer(WORDS)
    whole = token_files.write_tokens(tmp_path / "whole", "mine", sources, tokenizer)

    def stop(documents: int, tokens: int, fraction: float | None) -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        token_files.write_tokens(tmp_path / "broken", "mine", sources, tokenizer, progress=stop)
    (tmp_path / "broken" / "train.bin.part").write_bytes(b"")
    broken = token_files.write_tokens(tmp_path / "broken", "mine", sources, tokenizer)
    assert (broken / "train.bin").read_bytes() == (whole / "train.bin").read_bytes()


def test_two_preparations_into_one_folder_are_refused(texts: Path, tmp_path: Path) -> None:
    sources = prepare.text_sources("mine", str(texts))

    def second(documents: int, tokens: int, fraction: float | None) -> None:
        with pytest.raises(Refused, match="another process is preparing it"):
            token_files.write_tokens(tmp_path / "one", "mine", sources, word_tokenizer(WORDS))

    token_files.write_tokens(tmp_path / "one", "mine", sources, word_tokenizer(WORDS), progress=second)


def test_a_changed_tokenizer_or_source_is_noticed(texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    tokenizer = word_tokenizer(WORDS)
    token_files.write_tokens(folder, "mine", prepare.text_sources("mine", str(texts)), tokenizer)
    with pytest.raises(BadInput, match="prepared with another tokenizer"):
        load(folder, tmp_path, words=[*WORDS, "bird"])
    with pytest.raises(BadInput, match="already prepared from another tokenizer"):
        token_files.write_tokens(folder, "mine", prepare.text_sources("mine", str(texts)), word_tokenizer(["other"]))
    (texts / "train.txt").write_text("a cat .")
    with pytest.raises(BadInput, match="already prepared from another source"):
        token_files.write_tokens(folder, "mine", prepare.text_sources("mine", str(texts)), tokenizer)


def test_a_prepared_folder_is_used_as_it_is_and_checked(texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    token_files.write_tokens(folder, "mine", prepare.text_sources("mine", str(texts)), word_tokenizer(WORDS))
    assert len(load(folder, tmp_path / "cache").train) == len(load(texts, tmp_path / "cache").train)
    with pytest.raises(BadInput, match="held out as its own split but the experiment asks for"):
        load(folder, tmp_path, validation="random")
    (folder / "train.bin").write_bytes(b"1")
    with pytest.raises(BadInput, match="does not match its manifest"):
        load(folder, tmp_path)


@pytest.mark.parametrize("content", ["", "<|endoftext|>\n<|endoftext|>"])
def test_an_empty_text_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.txt").write_text(content)
    (tmp_path / "valid.txt").write_text("a cat .")
    with pytest.raises(BadInput, match="no text for the train split"):
        load(tmp_path, tmp_path / "cache")


def test_a_text_shorter_than_one_sequence_is_refused_with_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a cat .")
    (tmp_path / "valid.txt").write_text("a cat .")
    with pytest.raises(BadInput, match="4 training and 4 validation tokens are too few for sequences of 8"):
        load(tmp_path, tmp_path / "cache")


def test_a_set_that_is_not_prepared_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    chosen = build_experiment({**GPT, "data": {"name": "openwebtext", "max_length": 32}}, "test")
    with pytest.raises(NotFound, match="oelm data prepare openwebtext"):
        language.load(chosen, word_tokenizer(WORDS), tmp_path / "cache")


def test_prepare_keeps_a_users_text_where_it_is_told(texts: Path, tmp_path: Path) -> None:
    said: list[float | None] = []
    chosen = build_experiment({**GPT, "data": {"name": "demo-x", "path": str(texts), "max_length": 8}}, "test")
    folder = prepare.prepare(chosen, tmp_path / "out", progress=lambda d, t, f: said.append(f))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["splits"]["train"]["documents"] == 20
    assert said
    assert all(f is not None and 0 < f <= 1 for f in said)
    assert prepare.prepare(chosen, tmp_path / "out") == folder  # again: verified, nothing done
