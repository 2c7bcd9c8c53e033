"""What an experiment and a study are: the preset schema, overrides by dotted key, and the configuration's hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from oelm_core.errors import BadInput
from oelm_core.plain_yaml import read_yaml
from oelm_core.slurm_settings import check_settings
from oelm_core.validation import first_problem

SCHEMA_VERSION = 1

Family = Literal["bert", "gpt"]
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a preset. Unknown keys are errors: a misspelt key must never be silently ignored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())


class Shape(Section):
    """Sizes of a model. Used to build one from scratch and to count one without a download."""

    layers: Positive
    d_model: Positive
    heads: Positive
    d_ff: Positive
    vocab: Positive
    positions: Positive

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Shape:
        if self.d_model % self.heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.heads} equal heads")
        return self


class Model(Section):
    """Which network, and where its weights come from."""

    name: str
    """Name of the network: a hub name for encoders, gpt-medium-512 and the like for ours."""
    arch: Literal["bert", "roberta", "gpt"] | None = None
    """Architecture; follows the family unless said."""
    path: str | None = None
    """Hub name or folder to load instead of `name`; a folder brings its own shape."""
    start: Literal["pretrained", "scratch"] | None = None
    """Where the weights come from: bert starts pretrained, gpt from scratch, unless said."""
    shape: Shape | None = None
    dropout: Fraction = 0.1


class Data(Section):
    """Which text, and how it becomes tokens."""

    name: str
    path: str | None = None
    """File or folder to read instead of the named set; splits are found by file name."""
    tokenizer: str | None = None
    """Hub name or folder; the model's own unless said."""
    text: list[str] | None = None
    """Names of the text columns: one, or two for sentence pairs."""
    label: str = "label"
    labels: list[str] | None = None
    """Class names in the order of their numbers."""
    classes: Positive | None = None
    """Number of classes; None for language modelling."""
    metric: Literal["accuracy", "f1", "matthews", "perplexity"] | None = None
    """The headline metric: accuracy, or perplexity for language models, unless said."""
    max_length: Positive = 128
    """Tokens per example at most (bert) or per sequence exactly (gpt)."""
    validation: Literal["split", "random", "tail"] = "split"
    """Held-out text: the set's own split, a random part or the last part of the training text."""
    validation_fraction: Fraction = 0.01
    validation_seed: int = 42
    max_tokens: Positive | None = None
    """Use only the first so many tokens of the training text (gpt)."""
    limit: Positive | None = None
    """Use only the first so many training examples (bert)."""
    train_examples: Positive | None = None
    """How many training examples the set is known to have; the audit of published figures counts with it."""
    eval_examples: Positive | None = None
    """How many evaluation examples the set is known to have: accuracies are multiples of one over this."""


class Unfreeze(Section):
    """When frozen Q/K weights begin to train."""

    at: Annotated[float, Field(gt=0)]
    """Step number, or below 1 the fraction of training."""
    order: Literal["together", "top-down"] = "together"
    """All layers at once, or one at a time from the top."""
    every: Annotated[float, Field(gt=0)] | None = None
    """With top-down: steps (or fraction) between one layer and the next."""
    warmup: Annotated[int, Field(ge=0)] = 100
    """Steps over which a newly trained weight's own rate grows to the full one."""


class Extras(Section):
    """A little freedom given back to frozen attention. All off by default; each has its cost in the census."""

    position_bias: Annotated[int, Field(ge=0)] = 0
    """Learned bias per head and relative distance, up to this distance; 0 is off."""
    temperature: bool = False
    """Learned logit scale per head."""
    gain: bool = False
    """Learned gain per query channel."""
    qk_bias: bool = False
    """Learned biases on Q and K although their weights stay frozen."""


class Peer(Section):
    """A parameter-efficient method of other people, to compare with."""

    kind: Literal["lora", "bitfit", "adapter"]
    rank: Positive = 8
    """LoRA rank or adapter bottleneck width."""
    alpha: Annotated[float, Field(gt=0)] = 16.0


LayerChoice = str | list[int]
_LAYERS = re.compile(r"^(all|none|(first|last):\d+|\d+(-\d+)?)$")


class Method(Section):
    """How Q and K start, and what is frozen."""

    name: str
    init: Literal["none", "head-qr", "polar", "global-qr", "gaussian"] = "none"
    source: Literal["pretrained", "gaussian"] = Field("pretrained", alias="from")
    """What the initialiser orthogonalises: the weight it finds, or a fresh Gaussian."""
    scale: Literal["unit", "keep"] | Annotated[float, Field(gt=0)] = "unit"
    """Unit rows; keep each head's Frobenius norm; or a number (a std for gaussian, else a factor)."""
    freeze: list[Literal["query", "key", "ffn"]] = []
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
        if isinstance(value, str) and not _LAYERS.match(value):
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
    epochs: Annotated[float, Field(gt=0)] | None = None
    batch_size: Positive
    """Examples in one forward pass."""
    accumulate: Positive = 1
    """Forward passes per optimiser step."""
    lr: Annotated[float, Field(gt=0)]
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    warmup_ratio: Fraction | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    precision: Literal["fp32", "bf16", "fp16", "amp"] = "fp32"
    """amp picks what the device does fast and says which."""
    batching: Literal["packed", "dynamic", "padded"] = "packed"
    """bert: no padding at all, padding to the batch's longest, or padding to max_length."""
    eval_every: Positive = 500
    eval_batch_size: Positive | None = None
    checkpoint_every: Positive | None = None
    """Steps between checkpoints; eval_every unless said."""
    keep_checkpoints: Positive = 2
    log_every: Positive = 10
    samples: Annotated[int, Field(ge=0)] = 2
    """Texts generated at each evaluation (gpt)."""
    attention_stats: bool = False
    """Record entropy and distance of every head's attention at evaluations."""
    compile: bool = False
    threads: Positive | None = None
    """CPU threads; recorded and restored on resume."""

    @model_validator(mode="after")
    def _duration_and_warmup_are_said_once(self) -> Train:
        if (self.max_steps is None) == (self.epochs is None):
            raise ValueError("give either max_steps or epochs")
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError("give either warmup_steps or warmup_ratio")
        return self

    @property
    def effective_batch(self) -> int:
        return self.batch_size * self.accumulate


class Target(Section):
    """What counts as success."""

    metric: Literal["accuracy", "f1", "matthews", "perplexity", "loss"]
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


class Claim(Section):
    """One published figure, right or wrong; the audit weighs it.

    `what` is one of these words; shares, accuracies and differences are fractions, times are seconds:
    accuracy, best_accuracy, f1, loss, perplexity     results; the curve's own points are in `curve`
    delta                                             difference of two accuracies (-0.0184 is 1.84 points)
    relative_delta                                    relative difference, chiefly of perplexities (0.098 is +9.8 %)
    mean_delta, retention, mean_retention             averages over data sets; the share of the baseline that is kept
    seconds, training_seconds                         wall clock of a run; its training steps alone
    clock_start, clock_end                            times of day, in seconds since midnight
    step_time, it_per_s, steps                        seconds per step, steps per second, optimiser steps
    step_time_run                                     step time of one timing run; one claim per run, in their order
    step_time_spread                                  std of those runs over their mean
    speedup                                           share of the step time saved (0.57 is "57 % faster")
    steps_to_80, steps_to_90, seconds_to_80, seconds_to_90   when an accuracy was first reached
    total, trainable, frozen, frozen_share, saved_share      parameters, and shares of the total
    checkpoint_mib                                    size of a checkpoint file
    baseline_perplexity, target_perplexity            what the author compared with; the bound computed from it
    """

    what: str
    value: float
    unit: str | None = None
    source: str
    """File name of the report; figures from the author's repository start with `repo:`."""
    note: str | None = None
    arms: list[str] = []
    """The arm a figure is about, then what it is compared with; unless said, the preset and its baseline."""
    settings: dict[str, Any] = {}
    """Settings the figure was obtained with, where they differ from the recipe; shaped like a preset."""


class CurvePoint(Section):
    step: Positive
    source: str | None = None
    """Where the point comes from, if not from the source of the whole."""
    accuracy: float | None = None
    loss: float | None = None
    f1: float | None = None
    perplexity: float | None = None


class Published(Section):
    """What the author reported, with its source, and what they really ran where it was another recipe."""

    source: str
    accuracy: float | None = None
    f1: float | None = None
    loss: float | None = None
    perplexity: float | None = None
    seconds: float | None = None
    """Wall-clock time of the run."""
    step_time: float | None = None
    step_time_std: float | None = None
    curve: list[CurvePoint] = []
    claims: list[Claim] = []
    as_run: dict[str, Any] = {}
    """Settings that differed in the author's run, shaped like a preset; empty when it was this recipe."""
    as_run_note: str = ""
    """What is known about that run and how surely, in a sentence."""


class Experiment(Section):
    """One arm: everything needed to run it, its baseline, and what was published about it."""

    id: str
    title: str
    family: Family
    baseline: str | None = None
    """Id of the arm this one is compared with; None for a baseline."""
    about: str = ""
    """What the arm is for, in a sentence or two."""
    model: Model
    data: Data
    method: Method
    train: Train
    seed: int = 42
    target: Target | None = None
    published: Published | None = None
    slurm: dict[str, Any] | None = None
    """Site settings of this preset under Slurm, over slurm.yaml: time, memory, constraint and the like."""

    @field_validator("slurm")
    @classmethod
    def _slurm_settings_are_known(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            check_settings(value)
        return value

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Experiment:
        _check_family(self)
        _check_method(self)
        _check_published(self)
        return self

    @property
    def metric(self) -> str:
        return self.data.metric or ("perplexity" if self.data.classes is None else "accuracy")

    @property
    def arch(self) -> str:
        return self.model.arch or self.family

    @property
    def start(self) -> str:
        return self.model.start or ("pretrained" if self.family == "bert" else "scratch")

    @property
    def is_baseline(self) -> bool:
        return self.baseline is None


class Study(Section):
    """Arms x seeds: what gets compared in one table."""

    id: str
    title: str
    question: str
    arms: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[int], Field(min_length=1)] = [42]
    pause: Annotated[float, Field(ge=0)] = 0
    """Seconds between runs on one device, so that one does not warm the card for the next."""
    table: Literal["matrix", "ablation", "cross-dataset", "timing", "curve"] = "matrix"
    claims: list[Claim] = []
    """Published figures about the study as a whole: gaps, averages, speed-ups."""


def _check_family(exp: Experiment) -> None:
    shape = exp.model.shape
    if exp.family == "bert" and exp.data.classes is None:
        raise ValueError("data.classes is missing; a bert experiment classifies, so say how many classes")
    if shape and exp.data.max_length > shape.positions:
        raise ValueError(
            f"data.max_length {exp.data.max_length} is longer than the model's {shape.positions} positions"
        )
    if exp.start == "scratch" and exp.model.path is None and shape is None:
        raise ValueError("model.shape is missing; a model from scratch needs its sizes")


def _check_method(exp: Experiment) -> None:
    method, shape, train = exp.method, exp.model.shape, exp.train
    if method.init in ("head-qr", "polar", "global-qr") and method.source == "pretrained" and exp.start == "scratch":
        raise ValueError("method.from is pretrained but the model starts from scratch; write from: gaussian")
    if exp.is_baseline and method.freeze:
        raise ValueError("method.freeze is set on a baseline; name the baseline it is compared with")
    if exp.is_baseline and method.init != "none":
        raise ValueError(f"method.init is {method.init} on a baseline; a baseline's Q/K stay untouched (init: none)")
    if shape and method.peer is None:
        layer_numbers(method.layers, shape.layers)
    if method.unfreeze:
        _check_unfreeze(method, train.max_steps, shape.layers if shape else None)


def _check_unfreeze(method: Method, max_steps: int | None, layers: int | None) -> None:
    """Refuses a layer that would be let go after the end; in fractions of training when the recipe gives epochs."""
    unfreeze = method.unfreeze
    if unfreeze is None or (max_steps is None and (unfreeze.at >= 1 or (unfreeze.every or 0) >= 1)):
        return  # steps of a recipe in epochs are known once the data is
    total = max_steps or 1.0
    first = unfreeze.at * total if unfreeze.at < 1 else unfreeze.at
    end = f"the end of training{f' at step {max_steps}' if max_steps else ''}"
    if first >= total:
        raise ValueError(f"method.unfreeze.at {unfreeze.at:g} is past {end}")
    if unfreeze.order == "top-down" and unfreeze.every and layers:
        gap = unfreeze.every * total if unfreeze.every < 1 else unfreeze.every
        chosen = len(layer_numbers(method.layers, layers))
        if first + (chosen - 1) * gap >= total:
            raise ValueError(f"method.unfreeze.every {unfreeze.every:g} lets the last of {chosen} layers go past {end}")


def _check_published(exp: Experiment) -> None:
    if exp.published and exp.published.as_run:
        allowed = {"method", "train", "data", "model", "clock"}
        for key in exp.published.as_run:
            if key not in allowed:
                raise ValueError(f"published.as_run.{key} is none of: {', '.join(sorted(allowed))}")


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
        numbers = list(range(int(low), int(high or low) + 1))
    outside = [n for n in numbers if not 0 <= n < layers]
    if outside:
        raise ValueError(f"method.layers names layer {outside[0]}, but the model's layers are 0 to {layers - 1}")
    return sorted(set(numbers))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings joined; `over` wins. Lists and scalars are replaced whole."""
    joined = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(joined.get(key), Mapping):
            joined[key] = merge(joined[key], value)
        else:
            joined[key] = value
    return joined


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`["train.lr=1e-4"]` -> `{"train": {"lr": 0.0001}}`; values are read as YAML."""
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {text}: write it as key=value, for example train.lr=1e-4.")
        nested: Any = _scalar(raw)
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        overrides = merge(overrides, nested)
    return overrides


def _scalar(raw: str) -> Any:
    try:
        return read_yaml(raw)
    except yaml.YAMLError:
        return raw


def build_experiment(raw: Mapping[str, Any], where: str) -> Experiment:
    """A validated experiment, or a BadInput that names `where`, the key and what was expected."""
    try:
        return Experiment.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{where}: {first_problem(error, Experiment)}") from None


def build_study(raw: Mapping[str, Any], where: str) -> Study:
    try:
        return Study.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{where}: {first_problem(error, Study)}") from None


def override(experiment: Experiment, settings: Iterable[str]) -> Experiment:
    """The experiment with `--set` settings applied and validated again."""
    settings = list(settings)
    if not settings:
        return experiment
    changed = merge(as_dict(experiment), _say_duration_once(parse_overrides(settings)))
    return build_experiment(changed, f"{experiment.id} with --set {' '.join(settings)}")


def _say_duration_once(overrides: dict[str, Any]) -> dict[str, Any]:
    """Setting one of two exclusive keys clears the other, so max_steps can shorten a recipe given in epochs."""
    train = overrides.get("train")
    if isinstance(train, dict):
        for one, other in (("max_steps", "epochs"), ("warmup_steps", "warmup_ratio")):
            for given, cleared in ((one, other), (other, one)):
                if train.get(given) is not None and cleared not in train:
                    train[cleared] = None
    return overrides


def as_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain data, with the names used in YAML."""
    return experiment.model_dump(mode="json", by_alias=True)


def config_hash(config: Mapping[str, Any]) -> str:
    """Names what decides a result: everything but the seed, paths, threads, labels and published figures."""
    kept = {part: dict(config[part]) for part in ("model", "data", "method", "train")}
    kept["model"].pop("path", None)
    for label in ("path", "tokenizer", "train_examples", "eval_examples"):
        kept["data"].pop(label, None)
    kept["train"].pop("threads", None)
    kept["method"].pop("name", None)
    text = json.dumps({"family": config["family"], **kept}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
