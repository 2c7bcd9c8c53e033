"""Our own training steps, as the trainer runs them, and the same with one of its choices switched off."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.bench.sizes import Sizes
from oelm_core.bench.stepping import Step, device, token_batch


def gpt(*, frozen: bool = False, without: str | None = None, compiled: bool = False, **given: Any) -> Step:
    """Our GPT's step. without: a key of SWITCHES, that choice undone; compiled: as train.compile does it."""
    from oelm_core.models.gpt import OelmGPTForCausalLM

    sizes = Sizes(**given)
    if without is not None:
        SWITCHES[without]()
    torch.manual_seed(0)
    model: Any = OelmGPTForCausalLM(gpt_config(sizes))
    model.to(device()).train()
    freeze(model, frozen)
    if compiled:
        for layer in model.model.layers:
            layer.compile(dynamic=True)
    inputs, targets = token_batch(sizes.vocab, sizes.batch, sizes.length)
    units = sizes.tokens

    def loss() -> Tensor:
        found: Tensor = model(input_ids=inputs, shift_labels=targets, num_items_in_batch=units).loss
        return found

    return Step(model, loss, "default" if without == "fused optimiser" else "fused")


def gpt_layer(*, frozen: bool = False, **given: Any) -> Step:
    """Forward and backward of one block of our GPT alone: where freezing saves, nothing around it."""
    from oelm_core.models.gpt import Block

    sizes = Sizes(**given)
    torch.manual_seed(0)
    block = Block(gpt_config(sizes), 0).to(device()).train()
    freeze(block, frozen)
    start = torch.randn(sizes.batch, sizes.length, sizes.d_model, device=device(), requires_grad=True)

    def loss() -> Tensor:
        start.grad = None
        out: Tensor = block(start, None, None)
        return out.sum()

    return Step(block, loss, None)


def gpt_config(sizes: Sizes) -> Any:
    from oelm_core.models.gpt import OelmGPTConfig

    return OelmGPTConfig(
        vocab_size=sizes.vocab,
        positions=sizes.length,
        d_model=sizes.d_model,
        layers=sizes.layers,
        heads=sizes.heads,
        d_ff=sizes.d_ff,
        dropout=sizes.dropout,
    )


def freeze(model: nn.Module, frozen: bool) -> None:
    from oelm_core.method.freezing import freeze_model_parameters

    freeze_model_parameters(model, frozen)


# Each undoes one choice in this process; a variant has a process of its own, so nothing leaks.


def _whole_logits() -> None:
    from oelm_core.models import gpt as module

    def plain(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(hidden @ weight.T, targets, reduction=reduction)

    module.linear_cross_entropy = plain


def _torch_attention() -> None:
    from oelm_core.models import gpt as module

    module.dropout_attention_usable = lambda *_: False  # type: ignore[assignment]


def _torch_dropout() -> None:
    from oelm_core.models import bert, dropout

    dropout.cheaper_here = lambda _: False  # type: ignore[assignment]
    bert.cheaper_here = dropout.cheaper_here  # type: ignore[attr-defined]


SWITCHES = {
    "loss in chunks": _whole_logits,
    "attention in blocks": _torch_attention,
    "cheap dropout": _torch_dropout,
    "fused optimiser": lambda: None,
}


def bert_config(sizes: Sizes, arch: str = "bert") -> Any:
    from oelm_core.config import Shape
    from oelm_core.models.bert import encoder_config

    return encoder_config(Shape(**sizes.shape(positions=512)), arch, 2, sizes.dropout)
