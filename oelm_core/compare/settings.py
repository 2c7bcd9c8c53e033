"""A configuration read as the settings a reviewer would compare: effective batch, row norm, what Q/K started from.

The one place of the comparison that knows the keys of a configuration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from oelm_core.config.limits import steps_in_epochs
from oelm_core.registry import INITIALISERS, is_orthonormal, models_language, start_of
from oelm_core.runs.schema import setting

INIT_STD = 0.02
"""Standard deviation of weights drawn from scratch."""
OWN = "own"
"""Row norm of Q/K weights left at whatever their pretrained norm was."""

Config = dict[str, Any]
"""A recorded or published configuration, shaped like a preset; what it does not say is unknown."""
Settings = dict[str, Any]
"""By the names in SETTINGS; None for what is unknown."""


class Setting(NamedTuple):
    label: str
    keys: tuple[str, ...] = ()
    """What `--set` changes it by."""


SETTINGS = {
    "data": Setting("data"),
    "data_part": Setting("data used"),
    "validation": Setting("validation split"),
    "max_length": Setting("sequence length", ("data.max_length",)),
    "tokenizer": Setting("tokenizer"),
    "model": Setting("model"),
    "shape": Setting("model sizes"),
    "dropout": Setting("dropout", ("model.dropout",)),
    "start": Setting("pretrained or from scratch"),
    "duration": Setting("training length", ("train.max_steps", "train.epochs")),
    "lr": Setting("learning rate", ("train.lr",)),
    "schedule": Setting("schedule", ("train.schedule",)),
    "warmup": Setting("warm-up", ("train.warmup_steps", "train.warmup_ratio")),
    "optimiser": Setting("optimiser settings", ("train.weight_decay", "train.eps", "train.clip")),
    "effective_batch": Setting("effective batch", ("train.batch_size", "train.accumulate")),
    "accumulate": Setting("gradient accumulation", ("train.batch_size", "train.accumulate")),
    "precision": Setting("precision", ("train.precision",)),
    "batching": Setting("batching", ("train.batching",)),
    "compile": Setting("torch.compile", ("train.compile",)),
    "eval_every": Setting("validation interval", ("train.eval_every",)),
    "qk_norm": Setting("init scale"),
    "qk_from": Setting("row space"),
    "init": Setting("initialisation"),
    "freeze": Setting("frozen weights"),
    "layers": Setting("layers acted on"),
    "unfreeze": Setting("unfreezing"),
    "rates": Setting("per-layer rates"),
    "extras": Setting("extra attention parameters"),
    "peer": Setting("peer method"),
    "clock": Setting("clock"),
}
LABELS = {name: one.label for name, one in SETTINGS.items()}
PARTS = ("model", "data", "method", "train")
"""Parts of a configuration that decide a result."""


def readable_config(config: Config) -> Config:
    """Without the parts that are no mappings: a stranger's file must not stop the table."""
    return {key: value for key, value in config.items() if key not in PARTS or isinstance(value, dict)}


def settings_of(config: Config) -> Settings:
    """Settings by name, None where the configuration does not say. Works on partial (imported, as-run) ones too."""
    data, train = setting(config, "data", {}), setting(config, "train", {})
    batch, accumulate = train.get("batch_size"), train.get("accumulate")
    return {
        "data": data.get("name"),
        "data_part": {key: data.get(key) for key in ("max_tokens", "limit") if data.get(key) is not None} or "all",
        "validation": _validation(data),
        "max_length": data.get("max_length"),
        "tokenizer": data.get("tokenizer"),
        "model": setting(config, "model.name"),
        "shape": setting(config, "model.shape"),
        "dropout": setting(config, "model.dropout"),
        "start": _start(config),
        "duration": _duration(config),
        "lr": train.get("lr"),
        "schedule": train.get("schedule"),
        "warmup": _warmup(train),
        "optimiser": {key: train.get(key) for key in ("weight_decay", "betas", "eps", "clip") if key in train} or None,
        "effective_batch": batch * (accumulate or 1) if batch else None,
        "accumulate": accumulate,
        "precision": train.get("precision"),
        "batching": None if models_language(config) else train.get("batching"),
        "compile": train.get("compile"),
        "eval_every": train.get("eval_every"),
        **_method_settings(config),
        "clock": _clock(config),
    }


def _method_settings(config: Config) -> Settings:
    method = setting(config, "method", {})
    if "init" not in method:  # an imported run that does not say
        return dict.fromkeys(("qk_norm", "qk_from", "init", "freeze", "layers", "unfreeze", "rates", "extras", "peer"))
    touches = method["init"] != "none" or bool(method.get("freeze"))
    return {
        "qk_norm": qk_norm(config),
        "qk_from": _qk_from(config),
        "init": method["init"],
        "freeze": sorted(method["freeze"] or []) if "freeze" in method else None,
        "layers": method.get("layers", "all") if touches else "all",
        "unfreeze": method.get("unfreeze"),
        "rates": (method.get("qk_lr", 1.0), method.get("layer_decay", 1.0)),
        "extras": {key: value for key, value in (method.get("extras") or {}).items() if value},
        "peer": method.get("peer"),
    }


def _start(config: Config) -> str | None:
    return None if config.get("model") == {} else start_of(config)  # of an imported run that does not say


def _qk_from(config: Config) -> str | None:
    """Whether Q/K keep the pretrained row space, or start from a random draw."""
    start, init = _start(config), setting(config, "method.init", "none")
    if start is None:
        return None
    if start == "scratch":
        return "random"
    if init == "none":
        return "pretrained"
    known = INITIALISERS.get(str(init))
    fresh = setting(config, "method.from") == "gaussian" or (known is not None and not known.has_source)
    return "random" if fresh else "pretrained"


def qk_norm(config: Config) -> float | str | None:
    """Norm of a Q/K row at the start: a number, `own` for pretrained norms, None when it cannot be told.

    >>> round(qk_norm({"family": "gpt", "model": {"shape": {"d_model": 512}}, "method": {"init": "none"}}), 2)
    0.45
    """
    width = setting(config, "model.shape.d_model")
    scale, init = setting(config, "method.scale", "unit"), setting(config, "method.init", "none")
    if init == "none" or scale == "keep":
        if _start(config) == "scratch":
            return INIT_STD * math.sqrt(width) if width else None
        return OWN
    if scale == "unit":
        return 1.0
    if is_orthonormal(init):
        return float(scale)
    return float(scale) * math.sqrt(width) if width else None


def steps_of(config: Config) -> int | None:
    """Optimiser steps, from max_steps, or from epochs when the number of training examples is known."""
    train, data = setting(config, "train", {}), setting(config, "data", {})
    if train.get("max_steps"):
        return int(train["max_steps"])
    examples, epochs, batch = data.get("train_examples"), train.get("epochs"), train.get("batch_size")
    if not (examples and epochs and batch):
        return None
    examples = min(examples, data.get("limit") or examples)
    return steps_in_epochs(epochs, examples, batch * (train.get("accumulate") or 1))


def _duration(config: Config) -> str | None:
    steps, epochs = steps_of(config), setting(config, "train.epochs")
    if steps:
        return f"{steps:,} steps"
    return f"{epochs:g} epochs" if epochs else None


def _clock(config: Config) -> str | None:
    """What one tick of the run's clock was: an optimiser step, unless an author's run says otherwise."""
    if "clock" in config and config["clock"] is None:
        return None
    clock = config.get("clock")
    if isinstance(clock, Mapping):
        clock = clock.get("per") or clock.get("unit") or clock.get("counts")
    return str(clock).replace("_", "-").replace(" ", "-") if clock else "optimiser-step"


def _validation(data: Config) -> str | None:
    kind: str | None = data.get("validation")
    if kind in (None, "split"):
        return kind
    text = f"{kind} {data.get('validation_fraction')}"
    return f"{text}, seed {data.get('validation_seed')}" if kind == "random" else text


def _warmup(train: Config) -> str | None:
    if train.get("warmup_steps") is not None:
        return f"{train['warmup_steps']:,} steps"
    return f"{train['warmup_ratio']:.0%}" if train.get("warmup_ratio") is not None else None


def is_untouched(config: Config) -> bool:
    """Whether a configuration leaves the network as it is: a baseline's."""
    method = setting(config, "method", {})
    if "init" not in method:  # imported: only its name tells
        return bool(method.get("name") == "baseline")
    return bool(method["init"] == "none" and not method.get("freeze") and not method.get("peer"))


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
