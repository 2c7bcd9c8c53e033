"""Evaluation takes as many batches at once as fit, each example once; what it takes of a GPU is not training's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oelm_core.training.evaluation import LargestBatch
from oelm_core.training.timing import MemoryMeter

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


def test_batches_double_until_they_do_not_fit_and_stay_at_what_did(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest, tried = LargestBatch(), []
    seen = np.concatenate([chosen for chosen, _ in largest.over(BATCHES, takes(10, tried))])
    assert seen.tolist() == list(range(50))
    assert tried[:4] == [4, 8, 16, 8]
    assert max(tried[3:]) == 8
    list(largest.over(BATCHES, takes(10, again := [])))
    assert max(again) == again[0] == 8


def test_batches_that_always_fit_grow_to_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest = LargestBatch()
    for _ in range(3):
        list(largest.over(BATCHES, takes(1000, tried := [])))
    assert tried == [50]


def test_no_more_are_joined_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest = LargestBatch(most=4)
    for _ in range(2):
        list(largest.over(BATCHES, takes(1000, tried := [])))
    assert tried == [16, 16, 16, 2]


def test_one_batch_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        list(LargestBatch().over(BATCHES, takes(3, [])))


@pytest.mark.parametrize("gpu", [True, False])
def test_a_batch_that_the_recipe_fixes_is_never_joined(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    list(LargestBatch(most=1).over(BATCHES, takes(100, tried := [])))
    assert tried == [len(batch) for batch in BATCHES]


def test_without_a_gpu_batches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    list(LargestBatch().over(BATCHES, takes(100, tried := [])))
    assert tried == [len(batch) for batch in BATCHES]


def test_the_peak_of_training_does_not_count_what_evaluation_took(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"peak": 0}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: card["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: card.update(peak=0))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    memory = MemoryMeter(torch.device("cuda", 0))
    card["peak"] = 500
    with memory.evaluating():
        card["peak"] = 9000
    card["peak"] = 400
    assert memory.peak().device_peak == 500
    card["peak"] = 600
    assert memory.peak().device_peak == 600


def test_a_run_without_a_gpu_has_the_peak_of_its_process() -> None:
    memory = MemoryMeter(torch.device("cpu"))
    with memory.evaluating():
        held = memory.peak()
    assert held.device_peak is None
    assert held.host_peak > 10_000_000
