"""Evaluation takes as many batches at once as fit, each example once; what it takes of a GPU is not training's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oelm_core.training.distributed import Ranks
from oelm_core.training.evaluation import CardMemory, LargestBatch, forward_all
from oelm_core.training.supervision import Interrupted, StopRequest
from oelm_core.training.timing import MemoryMeter

BATCHES = [np.arange(start, min(start + 4, 50)) for start in range(0, 50, 4)]


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


class Plenty(CardMemory):
    """A card that always says it has room."""

    def begin(self) -> None:
        pass

    def taken(self) -> int:
        return 1

    def free(self) -> int:
        return 1 << 40


class Measured(Plenty):
    """A card with room for so many examples; the last pass took what its examples take."""

    def __init__(self, room: int, tried: list[int]) -> None:
        self.room, self.tried = room, tried

    def taken(self) -> int:
        return 1000 * self.tried[-1]

    def free(self) -> int:
        return 1000 * self.room


def takes(most: int, tried: list[int], error: Exception | None = None):
    def forward(chosen: np.ndarray) -> int:
        tried.append(len(chosen))
        if len(chosen) > most:
            raise error or torch.cuda.OutOfMemoryError("too much")
        return len(chosen)

    return forward


def test_batches_grow_by_measured_memory_and_not_by_running_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    tried: list[int] = []
    largest = LargestBatch(memory=Measured(25, tried))
    seen = np.concatenate([chosen for chosen, _ in largest.over(BATCHES, takes(20, tried))])
    assert seen.tolist() == list(range(50))
    assert (tried[:3], max(tried)) == ([4, 8, 16], 16)  # 32 would not fit, and is not tried
    list(largest.over(BATCHES, takes(20, tried)))
    assert max(tried) == 16


@pytest.mark.parametrize(
    "words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"]
)
def test_a_card_that_runs_out_in_other_words_halves_the_batch_too(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    on_a_gpu(monkeypatch)
    tried: list[int] = []
    list(LargestBatch(memory=Plenty()).over(BATCHES, takes(10, tried, RuntimeError(words))))
    assert tried[:4] == [4, 8, 16, 8]
    with pytest.raises(RuntimeError, match="a bug"):
        list(LargestBatch(memory=Plenty()).over(BATCHES, takes(10, [], RuntimeError("a bug"))))


def test_what_a_pass_took_and_what_is_left_are_read_from_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"memory_allocated": 100, "memory_reserved": 300, "max_memory_allocated": 900}
    for name in card:
        monkeypatch.setattr(torch.cuda, name, lambda name=name: card[name])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: card.update(max_memory_allocated=100))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000, 4000))
    memory = CardMemory()
    memory.begin()
    card["max_memory_allocated"] = 250
    assert (memory.taken(), memory.free()) == (150, 1200)


def test_batches_double_until_they_do_not_fit_and_stay_at_what_did(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest, tried = LargestBatch(memory=Plenty()), []
    seen = np.concatenate([chosen for chosen, _ in largest.over(BATCHES, takes(10, tried))])
    assert seen.tolist() == list(range(50))
    assert tried[:4] == [4, 8, 16, 8]
    assert max(tried[3:]) == 8
    list(largest.over(BATCHES, takes(10, again := [])))
    assert max(again) == again[0] == 8


def test_batches_that_always_fit_grow_to_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest = LargestBatch(memory=Plenty())
    for _ in range(3):
        list(largest.over(BATCHES, takes(1000, tried := [])))
    assert tried == [50]


def test_no_more_are_joined_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    largest = LargestBatch(most=4, memory=Plenty())
    for _ in range(2):
        list(largest.over(BATCHES, takes(1000, tried := [])))
    assert tried == [16, 16, 16, 2]


def test_one_batch_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        list(LargestBatch(memory=Plenty()).over(BATCHES, takes(3, [])))


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


class Together(Ranks):
    """The first of two ranks; `other` is what the second one brings to every meeting."""

    other: list[tuple[np.ndarray, np.ndarray]] | None = []

    def gather(self, mine):
        return [mine, self.other]


def test_with_several_ranks_too_an_evaluation_hears_a_stop_whoever_was_asked() -> None:
    seen: list[int] = []
    stop, together = StopRequest(), Together(0, 2, torch.device("cpu"))

    def forward(chosen: np.ndarray) -> torch.Tensor:
        seen.append(len(chosen))
        if len(seen) == 2:
            stop.request(15)
        return torch.zeros(len(chosen))

    assert len(forward_all(LargestBatch(), BATCHES[:2], forward, together, stop)) == 1
    with pytest.raises(Interrupted):
        forward_all(LargestBatch(), BATCHES, forward, together, stop)
    assert len(seen) == 2
    Together.other = None
    with pytest.raises(Interrupted):
        forward_all(LargestBatch(), BATCHES[:2], forward, together, StopRequest())
