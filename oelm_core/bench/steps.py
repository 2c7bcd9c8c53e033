"""The training steps that are measured, as the trainer runs them: our GPT, and encoders on short sentences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core import models
from oelm_core.config import Experiment, build_experiment
from oelm_core.data import packing
from oelm_core.data.classification import Examples
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes
from oelm_core.method.freezing import freeze_model_parameters
from oelm_core.registry import family_of
from oelm_core.training.compiling import compile_layers

MEDIUM = StepSizes()
SMALL = StepSizes(vocab=202, d_model=128, layers=4, heads=4, d_ff=512, batch=16, length=128)  # about the demo's
TINY = StepSizes(vocab=512, d_model=64, layers=2, heads=2, d_ff=128, batch=2, length=32)
BERT_BASE = StepSizes(vocab=30522, d_model=768, layers=12, heads=12, d_ff=3072, batch=32, length=128)
TINY_BERT = StepSizes(vocab=512, d_model=64, layers=2, heads=2, d_ff=128, batch=8, length=128)
PACKED, DYNAMIC = "packed", "dynamic"
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CLIP = 1.0


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Step:
    """A training step: gradients, clipping, AdamW. `about` says what the variant is made of."""

    def __init__(
        self, model: nn.Module, loss: Callable[[], Tensor], optimiser: str | None, about: dict[str, float] | None = None
    ) -> None:
        """optimiser: fused, default (what torch takes when nothing is said), or None for gradients alone."""
        self.model, self.loss = model, loss
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = _adamw(self.trained, optimiser) if optimiser else None
        self.about: dict[str, float] = {"trained": sum(p.numel() for p in self.trained), **(about or {})}

    def __call__(self) -> None:
        self.loss().backward()
        if self.optimiser is None:
            for parameter in self.trained:
                parameter.grad = None
            return
        nn.utils.clip_grad_norm_(self.trained, CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


def _adamw(trained: list[nn.Parameter], kind: str) -> torch.optim.AdamW:
    """With its moments made, by a step of zero gradients: the first real one holds as much memory as any other."""
    fused = None if kind == "default" else True
    optimiser = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=fused)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return optimiser


class Gemm:
    """A square product: in fp32 the fastest this machine can be, in the same rounds as the variants."""

    def __init__(self, side: int, format_name: str = "fp32") -> None:
        self._a, self._b = (torch.randn(side, side, device=device()).to(FORMATS[format_name]) for _ in range(2))
        self.about: dict[str, float] = {"flops": 2 * side**3}

    def __call__(self) -> None:
        self._a @ self._b


# -- GPT -------------------------------------------------------------------------------------------------------------


def gpt(
    sizes: StepSizes,
    *,
    frozen: bool = False,
    compiled: bool | Literal["graphs"] = False,
    optimiser: str = "fused",
) -> Step:
    """Our GPT's step; compiled: as train.compile does it."""
    model = network("gpt", sizes).train()
    freeze_model_parameters(model, frozen)
    if compiled:
        compile_layers(model, fixed_shapes=True, graphs=compiled == "graphs")
    inputs, targets = token_batch(sizes)

    def loss() -> Tensor:
        found: Tensor = model(input_ids=inputs, shift_labels=targets, num_items_in_batch=sizes.tokens).loss
        return found

    return Step(model, loss, optimiser, work(sizes, frozen=frozen))


def work(sizes: StepSizes, *, frozen: bool = False, classifier: bool = False) -> dict[str, float]:
    """What a step has to do, for its variant's `about`."""
    total = sum(flops.expected(sizes, frozen=frozen, classifier=classifier).values())
    return {"tokens_a_step": sizes.tokens, "real_tokens": sizes.tokens, "flops": total}


def token_batch(sizes: StepSizes) -> tuple[Tensor, Tensor]:
    """Inputs and next tokens `[batch, length]`, drawn once."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, sizes.vocab, (sizes.batch, sizes.length + 1), generator=draw).to(device())
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


# -- encoders --------------------------------------------------------------------------------------------------------


USUAL = {6: 381, 1: 2193}
"""Numbers of batches of 32 to the seed whose batches have what many have on average: 13.0 tokens a sentence, and some
39.7 in the longest."""


def bert(sizes: StepSizes, *, batching: str = PACKED, frozen: bool = False, batches: int = 6) -> Step:
    """A fine-tuning step; a few different batches come round, the same for every kind of batching."""
    examples = like_sst2(sizes.batch * batches, sizes.vocab, seed=USUAL[batches])
    model = network("bert", sizes).train()
    freeze_model_parameters(model, frozen)
    pack = partial(packing.pack, first_position=packing.first_position(model)) if batching == PACKED else packing.pad
    parts = np.arange(len(examples)).reshape(batches, sizes.batch)
    made = [pack(examples, chosen, 0).to(device()) for chosen in parts]
    turn = itertools.cycle(made)

    def loss() -> Tensor:
        batch = next(turn)
        return F.cross_entropy(packing.logits(model, batch), batch.labels)

    shapes = [sizes.but(batch=batch.tokens.shape[0], length=batch.tokens.shape[1]) for batch in made]
    each = [work(shape, frozen=frozen, classifier=True) for shape in shapes]
    about = {key: sum(one[key] for one in each) / batches for key in each[0]}
    return Step(model, loss, "fused", {**about, "real_tokens": float(examples.lengths.sum() / batches)})


def like_sst2(count: int, vocab: int, seed: int = 0) -> Examples:
    """Examples of 3 to 60 tokens, 13 in the mean, most of them short: SST-2's training phrases."""
    draw = np.random.default_rng(seed)
    lengths = np.minimum(3 + draw.gamma(1.35, 10.5 / 1.35, count).astype(np.int64), 60)
    tokens = draw.integers(5, vocab, int(lengths.sum()), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Examples(tokens, np.zeros(len(tokens), np.uint8), starts, draw.integers(0, 2, count))


# -- as the trainer has them -----------------------------------------------------------------------------------------


def network(arch: str, sizes: StepSizes, place: str | None = None) -> Any:
    """An untouched model from scratch; place: another device than the one to measure on."""
    return models.build(experiment(arch, sizes), device=place or device().type, seed=0)


def experiment(
    arch: str, sizes: StepSizes, *, data: dict[str, Any] | None = None, train: dict[str, Any] | None = None
) -> Experiment:
    """An untouched baseline from scratch. The demo's tokenizer goes with its data."""
    family = family_of(arch)
    text = {"name": "bench", "max_length": sizes.length, "classes": None if family.language else 2}
    content = {
        "id": "bench",
        "title": "A part of the bench",
        "family": family.name,
        "model": {
            "name": f"demo-{family.name}",
            "arch": arch,
            "start": "scratch",
            "dropout": sizes.dropout,
            "shape": {
                "layers": sizes.layers,
                "d_model": sizes.d_model,
                "heads": sizes.heads,
                "d_ff": sizes.d_ff,
                "vocab": sizes.vocab,
                "positions": sizes.length if family.language else 512,
            },
        },
        "data": {**text, **(data or {})},
        "method": {"name": "baseline"},
        "train": {"batch_size": sizes.batch, "max_steps": 1, "lr": 1e-3, **(train or {})},
    }
    return build_experiment(content, "bench")
