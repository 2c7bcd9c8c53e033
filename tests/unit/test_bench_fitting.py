"""Evaluation takes as many batches at once as fit, sees each example once, and gives up only when one does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oelm_core.training.fitting import ON_GPU, LargestBatch

BATCHES = [np.arange(start, min(start + 4, 50)) for start in range(0, 50, 4)]


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def takes(most: int, tried: list[int]):
    def forward(chosen: np.ndarray) -> int:
        tried.append(len(chosen))
        if len(chosen) > most:
            raise torch.cuda.OutOfMemoryError("too much")
        return len(chosen)

    return forward


def test_batches_are_halved_until_they_fit_and_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest, tried = LargestBatch(fixed=False), []
    seen = np.concatenate([chosen for chosen, _ in largest.over(BATCHES, takes(10, tried))])
    assert seen.tolist() == list(range(50))
    assert tried[:3] == [4 * ON_GPU, 16, 8]
    assert max(tried[3:]) == 8
    list(largest.over(BATCHES, takes(10, again := [])))
    assert again[0] == 8


def test_one_batch_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        list(LargestBatch(fixed=False).over(BATCHES, takes(3, [])))


@pytest.mark.parametrize("gpu", [True, False])
def test_a_batch_that_the_recipe_fixes_is_never_joined(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    list(LargestBatch(fixed=True).over(BATCHES, takes(100, tried := [])))
    assert tried == [len(batch) for batch in BATCHES]


def test_without_a_gpu_batches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    list(LargestBatch(fixed=False).over(BATCHES, takes(100, tried := [])))
    assert tried == [len(batch) for batch in BATCHES]
