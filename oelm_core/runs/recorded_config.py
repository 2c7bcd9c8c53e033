"""What a recorded configuration may hold: the kind of every value that lists, tables and audits count with.

A preset is checked when it is read (config/sections.py); the copy in a run folder was perhaps made by an older version,
by an import, or by hand. Keys may be missing and others may be there; one of the wrong kind makes run.json unreadable.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

MOST = 10**12
"""More than any count or rate of a recipe."""
Count = Annotated[int, Meta(ge=0, le=MOST)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Texts = list[str]


class RecordedShape(Struct):
    layers: Count | None = None
    d_model: Count | None = None
    heads: Count | None = None
    d_ff: Count | None = None
    vocab: Count | None = None
    positions: Count | None = None


class RecordedModel(Struct):
    name: str | None = None
    arch: str | None = None
    path: str | None = None
    start: str | None = None
    shape: RecordedShape | None = None
    dropout: Number | None = None


class RecordedData(Struct):
    name: str | None = None
    path: str | None = None
    tokenizer: str | None = None
    text: Texts | None = None
    label: str | None = None
    labels: Texts | None = None
    classes: Count | None = None
    metric: str | None = None
    max_length: Count | None = None
    validation: str | None = None
    validation_fraction: Number | None = None
    validation_seed: int | None = None
    test: str | None = None
    max_tokens: Count | None = None
    limit: Count | None = None
    train_examples: Count | None = None
    eval_examples: Count | None = None


class RecordedUnfreeze(Struct):
    at: Number | None = None
    order: str | None = None
    every: Number | None = None
    warmup: Count | None = None


class RecordedPeer(Struct):
    kind: str | None = None
    rank: Count | None = None
    alpha: Number | None = None


class RecordedMethod(Struct):
    name: str | None = None
    init: str | None = None
    source: str | None = field(name="from", default=None)
    scale: str | Number | None = None
    freeze: Texts | None = None
    layers: str | list[int] | None = None
    unfreeze: RecordedUnfreeze | None = None
    qk_lr: Number | None = None
    layer_decay: Number | None = None
    extras: dict[str, Count | bool | None] | None = None
    peer: RecordedPeer | None = None


class RecordedTrain(Struct):
    max_steps: Count | None = None
    epochs: Number | None = None
    batch_size: Count | None = None
    accumulate: Count | None = None
    lr: Number | None = None
    schedule: str | None = None
    warmup_steps: Count | None = None
    warmup_ratio: Number | None = None
    weight_decay: Number | None = None
    betas: list[Number] | None = None
    eps: Number | None = None
    clip: Number | None = None
    precision: str | None = None
    batching: str | None = None
    eval_every: Count | None = None
    eval_batch_size: Count | None = None
    checkpoint_every: Count | None = None
    keep_checkpoints: Count | None = None
    log_every: Count | None = None
    samples: Count | None = None
    attention_stats: bool | None = None
    compile: bool | None = None
    gradient_compression: str | None = None
    threads: Count | None = None


class RecordedTarget(Struct):
    metric: str
    above: Number | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    of: str | None = None


class RecordedConfig(Struct):
    id: str | None = None
    title: str | None = None
    family: str | None = None
    baseline: str | None = None
    model: RecordedModel | None = None
    data: RecordedData | None = None
    method: RecordedMethod | None = None
    train: RecordedTrain | None = None
    target: RecordedTarget | None = None
    published: dict[str, Any] | None = None
    slurm: dict[str, Any] | None = None
    clock: str | dict[str, Any] | None = None
    imported: bool | None = None
    seed: int | None = None


def check_config(config: dict[str, Any]) -> None:
    """msgspec.ValidationError names the first key of the wrong kind."""
    msgspec.convert(config, RecordedConfig)
