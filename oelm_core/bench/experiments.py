"""Experiments for the parts of the bench that run the trainer itself."""

from __future__ import annotations

from typing import Any

from oelm_core.bench.sizes import Sizes
from oelm_core.config import Experiment, build_experiment


def experiment(family: str, sizes: Sizes, *, data: dict[str, Any], train: dict[str, Any]) -> Experiment:
    """An untouched baseline from scratch; family: gpt or bert. The demo's tokenizer goes with its data."""
    model = {"name": f"demo-{family}", "arch": family, "start": "scratch", "shape": sizes.shape(sizes.length)}
    content = {
        "id": "bench",
        "title": "A part of the bench",
        "family": family,
        "model": model,
        "data": {"max_length": sizes.length, **data},
        "method": {"name": "baseline"},
        "train": {"batch_size": sizes.batch, "max_steps": 1, "lr": 1e-3, **train},
    }
    return build_experiment(content, "bench")
