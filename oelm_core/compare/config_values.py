"""How one setting is read from a configuration: effective batch, row norm of Q/K, length. None: it does not say.

With settings.py the one place of the comparison that knows the keys of a configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from oelm_core.config.limits import steps_in_epochs
from oelm_core.registry import FAMILIES, INITIALISERS, is_orthonormal, models_language, start_of
from oelm_core.runs.schema import setting

INIT_STD = 0.02
"""Standard deviation of weights drawn from scratch."""
OWN = "own"
"""Row norm of Q/K weights left at whatever their pretrained norm was."""

Config = dict[str, Any]
"""A recorded or published configuration, shaped like a preset; what it does not say is unknown."""


def at(key: str) -> Callable[[Config], Any]:
    return lambda config: setting(config, key)


def parts(section: str, *keys: str) -> Callable[[Config], Any]:
    """Several keys that are one setting; None where none of them is there."""

    def read(config: Config) -> Any:
        found = setting(config, section, {})
        return {key: found[key] for key in keys if key in found} or None

    return read


def of_method(read: Callable[[Config], Any]) -> Callable[[Config], Any]:
    """Unknown for an imported run that does not say how Q and K start."""
    return lambda config: read(config) if "init" in setting(config, "method", {}) else None


def or_default(key: str, default: str) -> Callable[[Config], Any]:
    """The default where the key is there and null; unknown where it is not there."""

    def read(config: Config) -> Any:
        section, _, name = key.partition(".")
        found = setting(config, section, {})
        return None if name not in found else default if found[name] is None else found[name]

    return read


def switch(key: str) -> Callable[[Config], str | None]:
    """on or off, also where a run was made before there was such a key; unknown where nothing is said of training."""

    def read(config: Config) -> str | None:
        return ("on" if setting(config, key) else "off") if setting(config, "train") else None

    return read


def data_part(config: Config) -> str | None:
    data = setting(config, "data", {})
    kept = [f"{key} {data[key]}" for key in ("max_tokens", "limit") if data.get(key) is not None]
    return ", ".join(kept) or ("all" if "limit" in data else None)


def test_set(config: Config) -> Any:
    """What `data.test` names; recorded recipes from before there was such a key had none."""
    data = setting(config, "data", {})
    return data.get("test") or ("none" if "validation" in data else None)


def tokenizer(config: Config) -> str | None:
    """By name: the folder that holds it may lie anywhere."""
    found = or_default("data.tokenizer", "the model's own")(config)
    return PurePath(str(found)).name if found is not None else None


def effective_batch(config: Config) -> int | None:
    batch = setting(config, "train.batch_size")
    return batch * setting(config, "train.accumulate", 1) if batch else None


def batching(config: Config) -> str | None:
    return "fixed length" if models_language(config) else setting(config, "train.batching")


def freeze(config: Config) -> list[str] | None:
    method = setting(config, "method", {})
    return sorted(method["freeze"] or []) if "freeze" in method else None


def layers(config: Config) -> Any:
    touches = setting(config, "method.init") != "none" or bool(setting(config, "method.freeze"))
    return setting(config, "method.layers", "all") if touches else "all"


def rates(config: Config) -> tuple[float, float]:
    return setting(config, "method.qk_lr", 1.0), setting(config, "method.layer_decay", 1.0)


def extras(config: Config) -> str:
    """Attention parameters added by `method.extras`: "position_bias 64, gain"."""
    added = {key: value for key, value in setting(config, "method.extras", {}).items() if value}
    return ", ".join(key if value is True else f"{key} {value}" for key, value in added.items()) or "none"


def is_imported(config: Config) -> bool:
    """Whether a configuration is of an imported run, which has no defaults: what it does not say is unknown."""
    return bool(config.get("imported")) or config.get("model") == {}


def architecture(config: Config) -> str | None:
    """What `model.arch` says, else that of the family; None for an imported run that does not say."""
    family = FAMILIES.get(str(config.get("family")))
    own = family.architectures[0] if family and setting(config, "model.name") else None
    arch: str | None = setting(config, "model.arch", own)
    return arch


def start(config: Config) -> str | None:
    return setting(config, "model.start") if is_imported(config) else start_of(config)


def qk_from(config: Config) -> str | None:
    """Whether Q/K keep the pretrained row space, or start from a random draw."""
    begun, init = start(config), setting(config, "method.init", "none")
    if begun is None:
        return None
    if begun == "scratch":
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
        if start(config) == "scratch":
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


def duration(config: Config) -> str | None:
    steps, epochs = steps_of(config), setting(config, "train.epochs")
    if steps:
        return f"{steps:,} steps"
    return f"{epochs:g} epochs" if epochs else None


def clock(config: Config) -> str | None:
    """What one tick of the run's clock was: an optimiser step, unless an author's run says otherwise."""
    if "clock" in config and config["clock"] is None:
        return None
    tick = config.get("clock")
    if isinstance(tick, Mapping):
        tick = tick.get("per") or tick.get("unit") or tick.get("counts")
    return str(tick).replace("_", "-").replace(" ", "-") if tick else "optimiser-step"


def validation(config: Config) -> str | None:
    data = setting(config, "data", {})
    kind: str | None = data.get("validation")
    if kind in (None, "split"):
        return kind
    text = f"{kind} {data.get('validation_fraction')}"
    return f"{text}, seed {data.get('validation_seed')}" if kind == "random" else text


def warmup(config: Config) -> str | None:
    train = setting(config, "train", {})
    if train.get("warmup_steps") is not None:
        return f"{train['warmup_steps']:,} steps"
    if train.get("warmup_ratio") is not None:
        return f"{train['warmup_ratio']:.0%}"
    return "none" if "warmup_ratio" in train else None
