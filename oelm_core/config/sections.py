"""The sections of a preset: model, data, method, training recipe, target. One line on each key says what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from oelm_core.data import test_source
from oelm_core.errors import one_line
from oelm_core.metric import METRICS, headline_metrics
from oelm_core.plain_text import visible
from oelm_core.registry import FAMILIES, INITIALISERS, architectures

MOST = 10**12
"""More than any count in a recipe: what is beyond is a slip, and must not get as far as an allocation."""
Positive = Annotated[int, Field(gt=0, le=MOST)]
SEEDS = range(-(2**63), 2**63)
"""What torch's generator takes, and a number of 64 bits holds."""
Seed = Annotated[int, Field(ge=SEEDS.start, lt=SEEDS.stop)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _one_line(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError("it should be one line")
    if visible(value) != value:
        raise ValueError(f"it should have no control characters, and has one in '{visible(value)[:40]}'")
    if one_line(value) != value:
        raise ValueError(f"it is too long, {len(value):,} characters")
    return value


Line = Annotated[str, AfterValidator(_one_line)]
"""A name or a title: what stands in a table."""


def one_of(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Names of a table, asked for when a preset is read: unlike a Literal it knows what was added since."""

    def check(value: Any) -> Any:
        *known, last = map(repr, names())
        if repr(value) not in (*known, last):
            expected = f"{', '.join(known)} or {last}" if known else last
            raise PydanticKnownError("literal_error", {"expected": expected})
        return value

    check.names = names  # type: ignore[attr-defined]  # for those who offer them
    return BeforeValidator(check)


FamilyName = Annotated[str, one_of(FAMILIES.keys)]


class Section(BaseModel):
    """A part of a preset. Unknown keys are errors: a misspelt key must never be silently ignored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=(), allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic would take it for 1, and train a single step."""
        if isinstance(value, bool) and "bool" not in str(cls.model_fields[info.field_name or ""].annotation):
            raise PydanticCustomError("number", "it should not be true or false")
        return value


class Shape(Section):
    """Sizes of a model. Used to build one from scratch and to count one without a download."""

    layers: Annotated[int, Field(gt=0, le=1_000)]
    """Transformer layers."""
    d_model: Annotated[int, Field(gt=0, le=100_000)]
    """Width: numbers that stand for one token."""
    heads: Annotated[int, Field(gt=0, le=10_000)]
    """Attention heads of a layer; they divide d_model."""
    d_ff: Annotated[int, Field(gt=0, le=1_000_000)]
    """Width within the feed-forward part."""
    vocab: Annotated[int, Field(gt=0, le=10_000_000)]
    """Tokens that there are."""
    positions: Annotated[int, Field(gt=0, le=10_000_000)]
    """Tokens of a sequence at most."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Shape:
        if self.d_model % self.heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.heads} equal heads")
        return self


class Model(Section):
    """Which network, and where its weights come from."""

    name: Line
    """Name of the network: a hub name for encoders, gpt-medium-512 and the like for ours."""
    arch: Annotated[str, one_of(architectures)] | None = None
    """Architecture; follows the family unless said."""
    path: str | None = None
    """Hub name or folder to load instead of `name`; a folder brings its own shape."""
    start: Literal["pretrained", "scratch"] | None = None
    """Where the weights come from: bert starts pretrained, gpt from scratch, unless said."""
    shape: Shape | None = None
    config: dict[str, int | float | bool | str] | None = None
    """decoder: more of transformers' configuration of this architecture, such as num_key_value_heads."""
    dropout: Fraction = 0.1
    """Share of activations set to zero in training."""


class Data(Section):
    """Which text, and how it becomes tokens."""

    name: Line
    """The data set's name; `oelm data list` shows them."""
    path: str | None = None
    """File or folder to read instead of the named set; splits are found by file name."""
    tokenizer: str | None = None
    """Hub name or folder; the model's own unless said."""
    text: list[str] | None = None
    """Names of the text columns: one, or two for sentence pairs."""
    label: str = "label"
    """Name of the column with the class."""
    labels: list[str] | None = None
    """Class names in the order of their numbers."""
    classes: Positive | None = None
    """Number of classes; None for language modelling."""
    metric: Annotated[str, one_of(headline_metrics)] | None = None
    """The headline metric: accuracy, or perplexity for language models, unless said."""
    max_length: Positive = 128
    """Tokens per example at most (bert) or per sequence exactly (gpt)."""
    validation: Literal["split", "random", "tail"] = "split"
    """Held-out text: the set's own split, a random part or the last part of the training text."""
    validation_fraction: Fraction = 0.01
    """Share that is held out, where validation is random or tail."""
    validation_seed: Seed = 42
    """What chance draws the held-out part."""
    test: str | None = None
    """Scored once, at the end, by the best checkpoint: a split (test), held-out 0.1 of the training text, or a path."""
    max_tokens: Positive | None = None
    """Use only the first so many tokens of the training text (gpt)."""
    limit: Positive | None = None
    """Use only the first so many training examples (bert)."""
    train_examples: Positive | None = None
    """How many training examples the set is known to have; the audit of published figures counts with it."""
    eval_examples: Positive | None = None
    """How many evaluation examples the set is known to have: accuracies are multiples of one over this."""

    @field_validator("test")
    @classmethod
    def _test_is_readable(cls, value: str | None) -> str | None:
        return None if value is None else test_source.checked(value)

    @model_validator(mode="after")
    def _test_chooses_nothing(self) -> Data:
        if self.test == "validation" and self.validation == "split":
            raise ValueError("test is the validation split, which chooses the best checkpoint; name other text")
        if test_source.held_out_share(self.test) and self.classes is None:
            raise ValueError("test is held-out, which is for classification; name a split or a file of text")
        if self.test == "mismatched" and self.classes is None:
            raise ValueError("test is mismatched, which is a split of MNLI; name test or a file of text")
        return self


class Unfreeze(Section):
    """When frozen Q/K weights begin to train."""

    at: Annotated[float, Field(gt=0, le=MOST)]
    """Step number, or below 1 the fraction of training."""
    order: Literal["together", "top-down"] = "together"
    """All layers at once, or one at a time from the top."""
    every: Annotated[float, Field(gt=0, le=MOST)] | None = None
    """With top-down: steps (or fraction) between one layer and the next."""
    warmup: Annotated[int, Field(ge=0, le=MOST)] = 100
    """Steps over which a newly trained weight's own rate grows to the full one."""


class Extras(Section):
    """A little freedom given back to frozen attention. All off by default; each has its cost in the census."""

    position_bias: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Learned bias per head and relative distance, up to this distance; 0 is off."""
    temperature: bool = False
    """Learned logit scale per head."""
    gain: bool = False
    """Learned gain per query channel."""
    qk_bias: bool = False
    """Learned biases on Q and K although their weights stay frozen."""
    low_rank: Positive | None = None
    """Learned update of the Q and K weights of this rank, beside the frozen ones."""


class Peer(Section):
    """A parameter-efficient method of other people, to compare with."""

    kind: Literal["lora", "bitfit", "adapter"]
    """Which method."""
    rank: Positive = 8
    """LoRA rank or adapter bottleneck width."""
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """LoRA's scale: its update counts alpha / rank."""


LayerChoice = str | Annotated[list[int], Field(max_length=1_000)]
_LAYERS = re.compile(r"(all|none|(first|last):\d{1,6}|\d{1,6}(-\d{1,6})?)")


class Method(Section):
    """How Q and K start, and what is frozen."""

    name: Line
    """What tables call it."""
    init: Annotated[str, one_of(INITIALISERS.keys)] = "none"
    """How Q and K start: none leaves them as they are; head-qr makes each head's rows orthonormal."""
    source: Literal["pretrained", "gaussian"] = Field("pretrained", alias="from")
    """What the initialiser orthogonalises: the weight it finds, or a fresh Gaussian."""
    scale: Literal["unit", "keep"] | Annotated[float, Field(gt=0)] = "unit"
    """Unit rows; keep each head's Frobenius norm; or a number (a std for gaussian, else a factor)."""
    freeze: tuple[Literal["query", "key", "ffn"], ...] = ()
    """Weights that do not train: [query, key]."""
    layers: LayerChoice = "all"
    """Layers that init and freeze act on: all, first:N, last:N, A-B, or a list; counted from 0."""
    unfreeze: Unfreeze | None = None
    qk_lr: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies the learning rate of Q/K where they train."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning rate of each layer relative to the one above it."""
    extras: Extras = Extras()
    peer: Peer | None = None

    @field_validator("layers", mode="before")
    @classmethod
    def _one_layer_may_be_a_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("layers")
    @classmethod
    def _layers_are_readable(cls, value: LayerChoice) -> LayerChoice:
        if isinstance(value, str) and not _LAYERS.fullmatch(value):
            raise ValueError(f"'{value}' is none of: all, none, first:N, last:N, A-B, a list of numbers")
        return value

    @model_validator(mode="after")
    def _schedule_has_something_to_unfreeze(self) -> Method:
        if self.unfreeze and not self.freeze:
            raise ValueError("unfreeze is set but nothing is frozen; add freeze: [query, key]")
        return self


class Train(Section):
    """The recipe. One optimiser step sees batch_size x accumulate examples."""

    max_steps: Positive | None = None
    """Optimiser steps, in the place of epochs."""
    epochs: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Passes over the training data, in the place of max_steps."""
    batch_size: Positive
    """Examples in one forward pass."""
    accumulate: Positive = 1
    """Forward passes per optimiser step."""
    lr: Annotated[float, Field(gt=0)]
    """Learning rate at its highest."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0, le=MOST)] | None = None
    """Steps over which the learning rate grows."""
    warmup_ratio: Fraction | None = None
    """The same as a share of all steps."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW's pull towards zero."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """AdamW's two memories: [0.9, 0.999]."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's least divisor."""
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    """Longest gradient; null for no limit."""
    precision: Literal["fp32", "tf32", "bf16", "fp16", "amp"] = "fp32"
    """tf32: fp32 whose products a card rounds to 10 bits. amp picks what the device does fast and says which."""
    batching: Literal["packed", "dynamic", "padded"] = "packed"
    """bert: no padding at all, padding to the batch's longest, or padding to max_length."""
    eval_every: Positive = 500
    """Steps between evaluations."""
    eval_batch_size: Positive | None = None
    """Examples in one forward pass of an evaluation."""
    checkpoint_every: Positive | None = None
    """Steps between checkpoints; eval_every unless said."""
    keep_checkpoints: Positive = 2
    """Newest checkpoints that are kept."""
    log_every: Positive = 10
    """Steps between lines in the log and points of a curve."""
    samples: Annotated[int, Field(ge=0, le=1_000)] = 2
    """Texts generated at each evaluation (gpt)."""
    attention_stats: bool = False
    """Record every head's attention at evaluations: entropy, distance, and how far it is from the baseline arm's."""
    compile: bool | Literal["graphs"] = False
    """Compile the network with torch.compile; graphs: and let a card replay each layer's launches as a CUDA graph."""
    gradient_compression: Literal["bf16"] | None = None
    """With several ranks, how gradients travel between them: as they are, or in bf16, which halves the bytes."""
    checkpoint_activations: bool | None = None
    """Layers keep their input alone and go forward again before going backward: less memory, more time, same result."""
    shard: bool | None = None
    """With several ranks each holds only its part of weights, gradients and moments; else each holds all of them."""
    threads: Positive | None = None
    """CPU threads; recorded and restored on resume."""

    @model_validator(mode="after")
    def _duration_and_warmup_are_said_once(self) -> Train:
        if (self.max_steps is None) == (self.epochs is None):
            raise ValueError("give either max_steps or epochs")
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError("give either warmup_steps or warmup_ratio")
        return self

    @model_validator(mode="after")
    def _shards_are_not_compiled(self) -> Train:
        if self.shard and self.compile:
            raise ValueError("shard and compile do not go together; leave one of them out")
        return self

    @model_validator(mode="after")
    def _graphs_take_a_plain_step(self) -> Train:
        if self.compile == "graphs" and self.accumulate > 1:  # the next pass would overwrite what is to be added to
            raise ValueError("compile: graphs needs accumulate: 1; make it true, or batch_size larger")
        if self.compile == "graphs" and self.checkpoint_activations:
            raise ValueError("compile: graphs does not go with checkpoint_activations; leave one of them out")
        return self

    @property
    def effective_batch(self) -> int:
        return self.batch_size * self.accumulate


class Target(Section):
    """What counts as success."""

    metric: Annotated[str, one_of(METRICS.keys)]
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    of: Literal["baseline"] | None = None
    """With `of: baseline` the bound is a multiple of the baseline's value."""

    @model_validator(mode="after")
    def _one_bound(self) -> Target:
        if sum(bound is not None for bound in (self.above, self.at_least, self.at_most)) != 1:
            raise ValueError("give exactly one of above, at_least, at_most")
        return self


def layer_numbers(choice: LayerChoice, layers: int) -> list[int]:
    """The layers a choice means in a model of so many layers.

    >>> layer_numbers("last:2", 6)
    [4, 5]
    """
    if isinstance(choice, list):
        numbers = choice
    elif choice in ("all", "none"):
        numbers = list(range(layers)) if choice == "all" else []
    elif ":" in choice:
        end, count = choice.split(":")
        if int(count) > layers:
            raise ValueError(f"method.layers {choice} asks for more than the model's {layers} layers")
        numbers = list(range(layers))[: int(count)] if end == "first" else list(range(layers))[layers - int(count) :]
    else:
        low, _, high = choice.partition("-")
        if int(high or low) < int(low):
            raise ValueError(f"method.layers {choice} runs backwards and names no layer; write {high}-{low}")
        numbers = list(range(int(low), int(high or low) + 1))
    outside = [n for n in numbers if not 0 <= n < layers]
    if outside:
        raise ValueError(f"method.layers names layer {outside[0]}, but the model's layers are 0 to {layers - 1}")
    return sorted(set(numbers))
