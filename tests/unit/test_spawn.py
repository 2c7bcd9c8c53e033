"""What a worker is told by its environment."""

from __future__ import annotations

import pytest

from oelm_core.launch import spawn


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spawn.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)


def test_a_card_is_handed_out_in_segments_that_grow() -> None:
    assert spawn.environment("cuda", ["GPU-1"], None)["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in spawn.environment("cpu", [], 2)


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_what_the_user_says_of_a_cards_memory_stands(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:128")
    told = spawn.environment("cuda", ["GPU-1"], None)
    assert {one: told[one] for one in spawn.ALLOCATOR if one in told} == {name: "max_split_size_mb:128"}
