"""On real text, where OELM_REAL_DATA names a folder that has it: counts, token ids and pairs as they are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oelm_core.config import Data, build_experiment
from oelm_core.data import classification, language
from oelm_core.data.tokenizers import load_named
from tests.training_runs import BERT, GPT

ROOT = Path(os.environ.get("OELM_REAL_DATA") or "/nonexistent")
pytestmark = pytest.mark.skipif(
    not ROOT.is_dir(),
    reason="OELM_REAL_DATA names no folder with sst2/, tinystories/ and tokenizers/ (CONTRIBUTING.md)",
)


def longer(base: dict[str, Any]) -> dict[str, Any]:
    """The tiny model with positions enough for real text."""
    return {**base["model"], "shape": {**base["model"]["shape"], "positions": 512}}


def test_sst2_has_its_published_sizes_and_tokens(tmp_path: Path) -> None:
    tokenizer = load_named(str(ROOT / "tokenizers" / "bert-base-uncased"))
    settings = Data(name="sst2", path=str(ROOT / "sst2"), classes=2, max_length=128)
    chosen = build_experiment({**BERT, "model": longer(BERT), "data": settings.model_dump()}, "test")
    found = classification.load(chosen, tokenizer, tmp_path)
    assert (len(found.train), len(found.validation["validation"])) == (67_349, 872)
    first = found.train.tokens[: found.train.starts[1]].tolist()
    assert first == tokenizer("hide new secretions from the parental units ")["input_ids"]
    assert found.train.labels[:3].tolist() == [0, 0, 1]
    assert found.at_max_length == 0


def test_xnli_pairs_carry_names_for_labels_and_segments(tmp_path: Path) -> None:
    tokenizer = load_named(str(ROOT / "tokenizers" / "bert-base-uncased"))
    chosen = Data(name="xnli", path=str(ROOT / "xnli"), classes=3)
    rows = list(classification.files.read_rows(ROOT / "xnli" / "en.dev.tsv"))
    source = classification.Source("xnli", "x", lambda: rows)
    found = classification.tokenise(source, chosen, tokenizer, "validation")
    assert np.bincount(found.labels).tolist() == [830, 830, 830]
    reference = tokenizer(rows[0]["sentence1"], rows[0]["sentence2"])
    assert found.tokens[: found.starts[1]].tolist() == reference["input_ids"]
    assert found.segments[: found.starts[1]].tolist() == reference["token_type_ids"]


def test_tinystories_come_out_of_the_token_file_as_they_went_in(tmp_path: Path) -> None:
    tokenizer = load_named(str(ROOT / "tokenizers" / "gpt2"))
    settings = Data(name="tinystories", path=str(ROOT / "tinystories"), max_length=512)
    chosen = build_experiment({**GPT, "model": longer(GPT), "data": settings.model_dump()}, "test")
    found = language.load(chosen, tokenizer, tmp_path)
    ends = np.flatnonzero(found.train == tokenizer.eos_token_id)
    assert len(ends) == 2_800
    stories = (ROOT / "tinystories" / "train.txt").read_text().split("<|endoftext|>")
    assert tokenizer.decode(found.train[: ends[0]].tolist()) == stories[0].strip()
