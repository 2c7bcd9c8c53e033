"""Encoders with a classification head, through transformers: BERT, RoBERTa and whatever else has findable attention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    PretrainedConfig,
    RobertaConfig,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.utils import logging

from oelm_core.config import Experiment, Method, Shape
from oelm_core.errors import BadInput, NotFound, first_line
from oelm_core.models.dropout import cheapen_dropout, cheaper_here, drop
from oelm_core.models.extras import attach_extras

ATTENTION = "oelm"
"""The name under which transformers knows our `attend`, so that the encoders' code stays theirs."""

# What the published checkpoints have beside their sizes.
_ARCHITECTURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (BertConfig, {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0}),
    "roberta": (
        RobertaConfig,
        {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    ),
}


def encoder_config(shape: Shape, arch: str, classes: int, dropout: float) -> PretrainedConfig:
    """Sizes as a transformers configuration. `shape.positions` is the size of the position table (514 for RoBERTa)."""
    kind, fixed = _ARCHITECTURES[arch]
    config: PretrainedConfig = kind(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.d_ff,
        max_position_embeddings=shape.positions,
        num_labels=classes,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **fixed,
    )
    return config


def build(experiment: Experiment, *, meta: bool) -> nn.Module:
    """The classifier of an experiment; on the meta device from its sizes alone, without weights or network."""
    settings, classes = experiment.model, experiment.data.classes or 2
    folder = Path(settings.path).expanduser() if settings.path else None
    if not meta and experiment.start == "pretrained":
        model = load_pretrained(settings.path or settings.name, classes, settings.dropout)
    elif folder and folder.is_dir():
        model = from_config(AutoConfig.from_pretrained(str(folder), num_labels=classes, local_files_only=True))
    elif settings.shape:
        model = from_config(encoder_config(settings.shape, experiment.arch, classes, settings.dropout))
    else:
        raise BadInput(
            f"{experiment.id}: model.shape is missing; it is needed to count {settings.name} without a download."
        )
    model.float()  # a folder may ask for a half type; train.precision decides that here
    attach_extras(model, experiment.method.extras)
    return model


def from_config(config: PretrainedConfig) -> nn.Module:
    return cheapen_dropout(AutoModelForSequenceClassification.from_config(config, attn_implementation=ATTENTION))


def load_pretrained(source: str, classes: int, dropout: float = 0.1) -> nn.Module:
    """A pretrained encoder with a fresh head for so many classes. `source`: a hub name or a folder."""
    try:
        config = AutoConfig.from_pretrained(  # it passes over a rate that its kind of model has not
            source, num_labels=classes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        with _quiet_loading():
            model: nn.Module = AutoModelForSequenceClassification.from_pretrained(
                source, config=config, attn_implementation=ATTENTION, ignore_mismatched_sizes=True
            )
    except (OSError, ValueError) as error:
        raise NotFound(
            f"model {source}: it could not be loaded ({first_line(error)}); "
            "write a hub name or a folder with config.json and weights as model.path."
        ) from error
    return cheapen_dropout(model.float())  # a half-precision checkpoint is trained, checked and counted in fp32


def load_bert_with_head_wise_orthogonal(
    model_name: str = "bert-base-uncased",
    num_classes: int = 2,
    freeze_mode: bool = True,
    verify_orthogonality: bool = True,
    init_method: str = "orthogonal",
    seed: int = 42,
) -> nn.Module:
    """The author's loader: a pretrained encoder whose Q/K are made orthonormal per head and frozen.

    init_method: orthogonal (QR of each pretrained head), normal (Gaussian, std 0.02) or none (untouched: the only one
    that makes a baseline). Unlike the author's, freeze_mode=False with `orthogonal` is a NoFreeze arm, not a baseline.
    """
    from oelm_core.method.freezing import apply_freezing
    from oelm_core.method.initialisers import apply_method, check_model
    from oelm_core.models import seeded

    starts: dict[str, dict[str, Any]] = {
        "orthogonal": {"init": "head-qr", "from": "pretrained", "scale": "unit"},
        "normal": {"init": "gaussian", "scale": 0.02},
        "none": {"init": "none"},
    }
    if init_method not in starts:
        raise BadInput(f"init_method {init_method} is none of: {', '.join(starts)}.")
    frozen = ["query", "key"] if freeze_mode else []
    method = Method.model_validate({"name": init_method, "freeze": frozen, **starts[init_method]})
    with seeded(seed):
        model = load_pretrained(model_name, num_classes)
    apply_method(model, method, torch.Generator().manual_seed(seed))
    if verify_orthogonality:
        check_model(model, method=method)
    apply_freezing(model, method)
    return model


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """torch's SDPA, but for dropout on a CPU, where its draws cost more than its products.

    Mixed values `[B, T, H, c]` of q, k, v `[B, H, T, c]`. The mask: boolean (True: look), or added to the logits.
    """
    causal = more.get("is_causal", getattr(module, "is_causal", True))
    if causal or not 0.0 < dropout < 1.0 or not cheaper_here(query):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **more
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    logits = torch.matmul(query * scale, key.transpose(-2, -1))
    if attention_mask is not None:
        logits = logits + _added(attention_mask, logits)
    weights = drop(torch.softmax(logits, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    # The least number, not -inf: a row of padding that sees nothing must not become NaN.
    return torch.zeros((), dtype=like.dtype).masked_fill(~mask, torch.finfo(like.dtype).min)


def padding_mask(*, allow_is_bidirectional_skip: bool = False, **more: Any) -> Tensor | None:
    """transformers' mask for SDPA, boolean `[B, 1, T, keys]`, made of a padded batch's `[B, keys]`.

    Where a mask hides nothing transformers does without it, but to know that it waits for the card at every forward
    pass. The host knew when it made the batch (`data.packing.pad`), and gives no mask at all then.
    """
    nothing_to_see = more.get("attention_mask") is None
    return sdpa_mask(allow_is_bidirectional_skip=allow_is_bidirectional_skip and nothing_to_see, **more)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, padding_mask)


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Keeps a progress bar and the report about a fresh head, which is what fine-tuning means, out of the log."""
    before, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()
