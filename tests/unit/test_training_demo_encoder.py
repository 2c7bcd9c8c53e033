"""The demo's encoder: made once, the same every time, and better at the words than chance."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from oelm_core.config import Shape
from oelm_core.data import synthetic
from oelm_core.training import pretrain_demo
from oelm_core.training.distributed import Ranks

SHAPE = Shape(layers=1, d_model=32, heads=2, d_ff=32, vocab=len(synthetic.vocabulary()) + 16, positions=64)


def test_pretraining_is_deterministic_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write_sentiment(tmp_path, train=300, valid=10)
    said: list[str] = []
    monkeypatch.setattr(pretrain_demo, "BATCH", 16)
    first, tokenizer = pretrain_demo.pretrain(SHAPE, tmp_path, said.append, steps=100)
    again, _ = pretrain_demo.pretrain(SHAPE, tmp_path, said.append, steps=100)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert float(said[0].split()[-1]) < math.log(len(tokenizer)) - 1


class Kept:
    """Stands in for a model and a tokenizer: all that is asked of them is to write themselves down."""

    def save_pretrained(self, folder: Path) -> None:
        (Path(folder) / "config.json").write_text("{}")


def test_the_encoder_is_made_once_even_when_runs_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Shape] = []
    both_ask = threading.Barrier(2)

    def pretrain(shape: Shape, *_: object) -> tuple[Kept, Kept]:
        made.append(shape)
        return Kept(), Kept()

    def ask() -> Path:
        both_ask.wait()
        return pretrain_demo.ensure_demo_encoder(tmp_path, SHAPE)

    monkeypatch.setattr(pretrain_demo, "pretrain", pretrain)
    with ThreadPoolExecutor(2) as runs:
        first, second = (run.result() for run in [runs.submit(ask), runs.submit(ask)])
    assert first == second
    assert made == [SHAPE]
    wider = SHAPE.model_copy(update={"d_ff": 64})
    assert pretrain_demo.ensure_demo_encoder(tmp_path, wider) != first
    assert made == [SHAPE, wider]


@pytest.mark.parametrize(("rank", "order"), [(0, ["made", "met"]), (1, ["met", "made"])])
def test_of_several_ranks_the_first_makes_it(rank: int, order: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(Ranks, "barrier", lambda self: done.append("met"))
    Ranks(rank, 2, torch.device("cpu")).first_alone(lambda: done.append("made"))
    assert done == order
