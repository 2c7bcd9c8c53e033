"""The settings that the author's programs write, under our names: of config.json, results.json and checkpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import fields

from oelm_core.runs.recorded_config import MOST, Count, Number
from oelm_core.runs.schema import Misfit, check_plain, convert

S = TypeVar("S", bound=Struct)

LONGEST = 200
"""Characters kept of a text."""
OTHER_NAMES = {
    "max_lr": "learning_rate",
    "lr": "learning_rate",
    "epochs": "num_epochs",
    "seq_len": "max_seq_len",
    "val_interval": "eval_interval",
    "validate_steps": "eval_interval",
    "grad_clip": "max_grad_norm",
}
"""The programs' different names for one thing."""


class AuthorConfig(Struct):
    """What a run was started with; None where the files do not say."""

    model_type: str | None = None
    model_name: str | None = None
    init_method: str | None = None
    freeze_mode: bool | None = None
    dataset: str | None = None
    seed: int | None = None
    classes: Count | None = field(default=None, name="num_classes")
    layers: Count | None = field(default=None, name="num_layers")
    d_model: Count | None = None
    heads: Count | None = field(default=None, name="num_heads")
    d_ff: Count | None = None
    vocab: Count | None = field(default=None, name="vocab_size")
    positions: Count | None = field(default=None, name="max_seq_len")
    max_length: Count | None = None
    dropout: Number | None = None
    lr: Number | None = field(default=None, name="learning_rate")
    batch_size: Count | None = None
    epochs: Number | None = field(default=None, name="num_epochs")
    max_steps: Annotated[int, Meta(ge=-1, le=MOST)] | None = None
    warmup_steps: Count | None = None
    warmup_ratio: Number | None = None
    weight_decay: Number | None = None
    clip: Number | None = field(default=None, name="max_grad_norm")
    eval_every: Count | None = field(default=None, name="eval_interval")
    accumulate: Count | None = field(default=None, name="gradient_accumulation_steps")

    def named(self, *names: str) -> dict[str, Any]:
        """Those of the settings that are known."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


SHAPE = ("layers", "d_model", "heads", "d_ff", "vocab", "positions")
TRAIN = (
    *("lr", "batch_size", "epochs", "max_steps", "warmup_steps", "warmup_ratio", "weight_decay", "clip"),
    *("eval_every", "accumulate"),
)


def read_settings(
    content: Mapping[str, Any], other_names: Mapping[str, str] = OTHER_NAMES
) -> tuple[AuthorConfig, dict[str, Misfit]]:
    """(the settings, those that are not what they should be, by the name they have there)."""
    there = {other_names.get(name, name): name for name in content}
    config, misfits = known_fields({ours: content[name] for ours, name in there.items()}, AuthorConfig)
    if config.max_steps is not None and config.max_steps < 1:  # the BERT program's -1: by epochs
        config.max_steps = None
    if config.max_steps is not None:
        config.epochs = None
    return config, {there[name]: misfit for name, misfit in misfits.items()}


def known_fields(content: Mapping[str, Any], kind: type[S]) -> tuple[S, dict[str, Misfit]]:
    """(a record with what fits, why the other keys do not): one odd value does not cost the others."""
    found, misfits = {}, {}
    for one in fields(kind):
        value = content.get(one.encode_name)
        if value is None:
            continue
        try:
            check_plain(value)
            fitting = convert(value, one.type)
        except Misfit as misfit:
            misfits[one.encode_name] = misfit
            continue
        if isinstance(fitting, float) and not math.isfinite(fitting):
            continue  # as good as not said
        found[one.name] = one_line(fitting) if isinstance(fitting, str) else fitting
    return kind(**found), misfits


def unreadable(file: str, key: str, why: object) -> str:
    """The note on one value of a file."""
    return f"unreadable: {one_line(file)}, {one_line(key)}: {why}; it is left out."


def one_line(text: str) -> str:
    """Without line breaks, control characters and halves of characters, and no longer than a name is."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+", " ", text).strip()[:LONGEST]
