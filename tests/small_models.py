"""Small experiments of every architecture, for the tests of the method."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from oelm_core.config import Experiment, build_experiment
from oelm_core.method.freezing import Frozen, apply_freezing
from oelm_core.method.initialisers import apply_method
from oelm_core.models import build

SMALL = {"layers": 3, "d_model": 24, "heads": 3, "d_ff": 48, "vocab": 60, "positions": 34}
BERT_BASE = {"layers": 12, "d_model": 768, "heads": 12, "d_ff": 3072, "vocab": 30522, "positions": 512}
ROBERTA_BASE = {"layers": 12, "d_model": 768, "heads": 12, "d_ff": 3072, "vocab": 50265, "positions": 514}
GPT_MEDIUM = {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "vocab": 50257, "positions": 512}

OELM = {"name": "oelm", "init": "head-qr", "from": "gaussian", "freeze": ["query", "key"]}
ALL_EXTRAS = {"position_bias": 5, "temperature": True, "gain": True, "qk_bias": True, "low_rank": 2}


def experiment(
    arch: str,
    method: dict[str, Any] | None = None,
    *,
    shape: dict[str, int] = SMALL,
    classes: int | None = -1,
    train: dict[str, Any] | None = None,
    **model: Any,
) -> Experiment:
    """An experiment that starts from scratch; gpt is a language model unless classes are given."""
    classes = (None if arch == "gpt" else 2) if classes == -1 else classes
    raw = {
        "id": f"small-{arch}",
        "title": "a small one",
        "family": "gpt" if arch == "gpt" else "bert",
        "baseline": "small-baseline" if method else None,
        "model": {"name": f"small-{arch}", "arch": arch, "start": "scratch", "shape": shape, "dropout": 0.0, **model},
        "data": {"name": "none", "classes": classes, "max_length": 16},
        "method": method or {"name": "baseline"},
        "train": {"max_steps": 100, "batch_size": 2, "lr": 1e-3, **(train or {})},
    }
    return build_experiment(raw, "small")


def prepared(exp: Experiment, seed: int = 1) -> tuple[nn.Module, Frozen]:
    """The model as a run starts with it: built, initialised, frozen."""
    model = build(exp, seed=seed)
    apply_method(model, exp.method, torch.Generator().manual_seed(seed))
    return model, apply_freezing(model, exp.method)


def tokens(rows: int = 2, length: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, SMALL["vocab"], (rows, length), generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """A loss to go backward from, whatever the model predicts."""
    is_language_model = hasattr(model, "lm_head")
    labels = ids if is_language_model else torch.arange(len(ids)) % 2
    loss: torch.Tensor = model(input_ids=ids, labels=labels).loss
    return loss
