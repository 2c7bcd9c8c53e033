"""The settings a reviewer would compare: one row each, with what a difference in it means and what settles it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from oelm_core.compare import config_values as read
from oelm_core.compare.config_values import OWN
from oelm_core.compare.config_values import Config as Config
from oelm_core.runs.schema import setting

Grade = Literal["breaks", "confounds", "note"]
"""breaks: the gap does not stand. confounds: something else may explain it."""
Settings = dict[str, Any]
"""By the names in SETTINGS; None for what is unknown."""


class Setting(NamedTuple):
    """One row of the table: how it is read, how bad a difference in it is, who looks at it."""

    label: str
    read: Callable[[Config], Any]
    """Its value in a configuration; None where that does not say."""
    grade: Grade | None = None
    """Of a difference between two arms; None for what is under test, or is judged by a rule of its own."""
    doubt: str = ""
    """What a difference puts in doubt."""
    keys: tuple[str, ...] = ()
    """What `--set` changes it by."""
    reassures: bool = False
    """A reader is glad to see it named as equal."""
    of_control: bool = True
    """A control preset must share it; False where it follows from others, or does not decide what a control shows."""
    proof: Literal["text", "weights"] | None = None
    """The fingerprint of a run that, where it is recorded, says more about it than the configuration."""
    of_recipe: bool = True
    """Another value makes a result one of another recipe than the one that was published."""


_BATCH = ("train.batch_size", "train.accumulate")
SETTINGS = {
    "data": Setting(
        "data", read.at("data.name"), "breaks", "the arms answer different questions", reassures=True, proof="text"
    ),
    "data_part": Setting("data used", read.data_part, "breaks", "the arms saw different amounts of data", proof="text"),
    "text": Setting(
        "text columns",
        read.or_default("data.text", "the set's own"),
        "breaks",
        "the arms read different text",
        proof="text",
    ),
    "labels": Setting(
        "labels",
        read.parts("data", "label", "labels", "classes"),
        "breaks",
        "the arms answer different questions",
        proof="text",
    ),
    "validation": Setting(
        "validation split",
        read.validation,
        "breaks",
        "the arms are judged on different text",
        reassures=True,
        proof="text",
    ),
    "test": Setting("test set", read.test_set, "breaks", "the arms are judged on different text"),
    "max_length": Setting(
        *("sequence length", read.at("data.max_length"), "confounds", "the arms see different contexts"),
        keys=("data.max_length",),
        reassures=True,
    ),
    "tokenizer": Setting(
        *("tokenizer", read.tokenizer, "breaks", "tokens, and so perplexities and lengths, do not correspond"),
        of_control=False,
        of_recipe=False,
        proof="text",
    ),
    "model": Setting(
        "model",
        read.at("model.name"),
        "breaks",
        "the networks differ",
        reassures=True,
        of_recipe=False,
        proof="weights",
    ),
    "arch": Setting("architecture", read.architecture, "breaks", "the networks differ", proof="weights"),
    "shape": Setting("model sizes", read.at("model.shape"), "breaks", "the networks differ in size", proof="weights"),
    "dropout": Setting(
        *("dropout", read.at("model.dropout"), "confounds", "regularisation may explain part of the gap"),
        keys=("model.dropout",),
        reassures=True,
    ),
    "start": Setting(
        *("pretrained or from scratch", read.start, "confounds"),
        doubt="one arm starts from pretrained weights and the other does not",
        reassures=True,
        proof="weights",
    ),
    "duration": Setting(
        *("training length", read.duration, "breaks", "one arm trained longer"),
        keys=("train.max_steps", "train.epochs"),
        reassures=True,
    ),
    "lr": Setting(
        *("learning rate", read.at("train.lr"), "confounds", "part of the gap may be the rate, not the method"),
        keys=("train.lr",),
        reassures=True,
    ),
    "schedule": Setting(
        *("schedule", read.at("train.schedule"), "confounds", "part of the gap may be the schedule"),
        keys=("train.schedule",),
        reassures=True,
    ),
    "warmup": Setting(
        *("warm-up", read.warmup, "confounds", "part of the gap may be the schedule"),
        keys=("train.warmup_steps", "train.warmup_ratio"),
        reassures=True,
    ),
    "optimiser": Setting(
        *("optimiser settings", read.parts("train", "weight_decay", "betas", "eps", "clip"), "confounds"),
        doubt="part of the gap may be the optimiser",
        keys=("train.weight_decay", "train.eps", "train.clip"),
        reassures=True,
    ),
    "effective_batch": Setting(
        *("effective batch", read.effective_batch, "confounds", "the gradient noise per step differs"),
        keys=_BATCH,
        reassures=True,
    ),
    "accumulate": Setting(
        *("gradient accumulation", read.at("train.accumulate"), "confounds", "times per step are not of the same work"),
        keys=_BATCH,
        reassures=True,
    ),
    "precision": Setting(
        *("precision", read.at("train.precision"), "confounds", "rounding and speed differ"),
        keys=("train.precision",),
        reassures=True,
        of_recipe=False,
    ),
    "batching": Setting(
        *("batching", read.batching, "confounds", "times per step are not of the same work"),
        keys=("train.batching",),
        of_control=False,
        of_recipe=False,
    ),
    "compile": Setting(
        *("torch.compile", read.at("train.compile"), "confounds", "times per step are not of the same code"),
        keys=("train.compile",),
        of_control=False,
        of_recipe=False,
    ),
    "gradient_compression": Setting(
        *("gradient compression", read.or_default("train.gradient_compression", "none"), "confounds"),
        doubt="gradients were rounded on their way between cards in one arm only",
        keys=("train.gradient_compression",),
        of_recipe=False,
    ),
    "checkpoint_activations": Setting(
        *("activation checkpointing", read.switch("train.checkpoint_activations"), "note"),
        doubt="the result is the same to the last bit, but times per step and memory are not of the same work",
        keys=("train.checkpoint_activations",),
        of_control=False,
        of_recipe=False,
    ),
    "shard": Setting(
        *("sharding", read.switch("train.shard"), "note"),
        doubt="with several cards gradients are added in another order, and times per step are not of the same work",
        keys=("train.shard",),
        of_control=False,
        of_recipe=False,
    ),
    "eval_every": Setting(
        *("validation interval", read.at("train.eval_every"), "confounds"),
        doubt="the best of more validations is a luckier best",
        keys=("train.eval_every",),
        reassures=True,
        of_control=False,
        of_recipe=False,
    ),
    "qk_norm": Setting("init scale", read.of_method(read.qk_norm)),
    "qk_from": Setting("row space", read.of_method(read.qk_from)),
    "init": Setting("initialisation", read.of_method(read.at("method.init"))),
    "freeze": Setting("frozen weights", read.of_method(read.freeze)),
    "layers": Setting("layers acted on", read.of_method(read.layers)),
    "unfreeze": Setting("unfreezing", read.of_method(read.at("method.unfreeze"))),
    "rates": Setting(
        *("per-layer rates", read.of_method(read.rates), "confounds", "layers learn at different rates"),
        keys=("method.qk_lr", "method.layer_decay"),
    ),
    "extras": Setting(
        *("extra attention parameters", read.of_method(read.extras), "confounds"),
        doubt="part of the gap may be what these learnt, with Q/K frozen or not",
    ),
    "peer": Setting("peer method", read.of_method(read.at("method.peer"))),
    "clock": Setting(
        *("clock", read.clock, "breaks", "step times count different work, so no speed can be concluded"),
        of_control=False,
        of_recipe=False,
    ),
}
"""Everything that is compared between two configurations; a new setting is one row here."""
LABELS = {name: one.label for name, one in SETTINGS.items()}


def settings_of(config: Config) -> Settings:
    """Settings by name, None where the configuration does not say. Works on partial (imported, as-run) ones too."""
    return {name: one.read(config) for name, one in SETTINGS.items()}


def shown(name: str, value: Any) -> str:
    """A setting's value as a reader writes it.

    >>> shown("lr", 0.0003)
    '3e-4'
    """
    if value is None:
        return "unknown"
    if name == "lr":
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    if name == "qk_norm":
        return "as pretrained" if value == OWN else f"{value:.2f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return " + ".join(str(part) for part in value) or "none"
    return str(value)


# -- what else a configuration says ------------------------------------------------------------------------------------

PARTS = ("model", "data", "method", "train")
"""Parts of a configuration that decide a result."""


def readable_config(config: Config) -> Config:
    """Without the parts that are no mappings: a stranger's file must not stop the table."""
    return {key: value for key, value in config.items() if key not in PARTS or isinstance(value, dict)}


def is_untouched(config: Config) -> bool:
    """Whether a configuration leaves the network as it is: a baseline's."""
    method = setting(config, "method", {})
    if "init" not in method:  # imported: only its name tells
        return bool(method.get("name") == "baseline")
    acts = method["init"] != "none" or method.get("freeze") or method.get("peer")
    return not acts and read.extras(config) == "none"


def config_differences(one: Config, other: Config) -> list[str]:
    """["train.lr=5e-05", ...]: what `other` sets that `one` does not, in the parts that decide a result."""
    found = []
    for part in PARTS:
        a, b = setting(one, part, {}), setting(other, part, {})
        found += [
            f"{part}.{key}={b.get(key)}" for key in sorted({*a, *b}) if a.get(key) != b.get(key) and key != "name"
        ]
    return found


class TargetBound(NamedTuple):
    """What counts as success."""

    metric: str
    sign: str
    """>, >= or <=."""
    bound: float
    of_baseline: bool
    """The bound is a multiple of the baseline's value."""


def target_of(config: Config) -> TargetBound | None:
    """The preset's target; None where it states none."""
    target = setting(config, "target", {})
    for key, sign in (("above", ">"), ("at_least", ">="), ("at_most", "<=")):
        if target.get(key) is not None:
            return TargetBound(str(target["metric"]), sign, float(target[key]), target.get("of") == "baseline")
    return None


_PLAIN = {"model", "models", "checkpoint", "weights", "latest", "best", "final"}


def substituted_model(config: Config) -> str | None:
    """What `model.path` puts in the place of the preset's network: a telling end of it; None when it is that network.

    >>> substituted_model({"model": {"name": "bert-base-uncased", "path": "/data/minilm/model"}})
    'minilm/model'
    >>> substituted_model({"model": {"name": "bert-base-uncased", "path": "/data/bert-base-uncased/"}})
    """
    name, path = str(setting(config, "model.name", "")), str(setting(config, "model.path", ""))
    parts = [part for part in PurePath(path).parts if part != "/"]
    named = name.replace("/", "--").lower()  # the hub's cache writes models--org--name
    if not parts or any(named in (part.lower(), part.lower().removeprefix("models--")) for part in parts):
        return None
    if path.lower().endswith(name.lower()):
        return None
    telling = parts[-1].lower() not in _PLAIN and not re.fullmatch(r"(step-\d+|[0-9a-f]{16,})", parts[-1])
    return parts[-1] if telling else "/".join(parts[-2:])
