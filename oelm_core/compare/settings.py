"""A configuration read as the settings a reviewer would compare: effective batch, row norm, what Q/K started from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from oelm_core.config.limits import steps_in_epochs
from oelm_core.registry import INITIALISERS, is_orthonormal, models_language, start_of

INIT_STD = 0.02
"""Standard deviation of weights drawn from scratch."""
OWN = "own"
"""Row norm of Q/K weights left at whatever their pretrained norm was."""

LABELS = {
    "data": "data",
    "data_part": "data used",
    "validation": "validation split",
    "max_length": "sequence length",
    "tokenizer": "tokenizer",
    "model": "model",
    "shape": "model sizes",
    "dropout": "dropout",
    "start": "pretrained or from scratch",
    "duration": "training length",
    "lr": "learning rate",
    "schedule": "schedule",
    "warmup": "warm-up",
    "optimiser": "optimiser settings",
    "effective_batch": "effective batch",
    "accumulate": "gradient accumulation",
    "precision": "precision",
    "batching": "batching",
    "compile": "torch.compile",
    "eval_every": "validation interval",
    "qk_norm": "init scale",
    "qk_from": "row space",
    "init": "initialisation",
    "freeze": "frozen weights",
    "layers": "layers acted on",
    "unfreeze": "unfreezing",
    "rates": "per-layer rates",
    "extras": "extra attention parameters",
    "peer": "peer method",
    "clock": "clock",
}


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, None where the configuration does not say. Works on partial (imported, as-run) ones too."""
    model, data = config.get("model") or {}, config.get("data") or {}
    train = config.get("train") or {}
    batch, accumulate = train.get("batch_size"), train.get("accumulate")
    return {
        "data": data.get("name"),
        "data_part": {key: data.get(key) for key in ("max_tokens", "limit") if data.get(key) is not None} or "all",
        "validation": _validation(data),
        "max_length": data.get("max_length"),
        "tokenizer": data.get("tokenizer"),
        "model": model.get("name"),
        "shape": model.get("shape"),
        "dropout": model.get("dropout"),
        "start": _start(config),
        "duration": duration(config),
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
        **method_settings(config),
        "clock": clock_of(config),
    }


def method_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    method = config.get("method") or {}
    if "init" not in method:  # an imported run that does not say
        return dict.fromkeys(("qk_norm", "qk_from", "init", "freeze", "layers", "unfreeze", "rates", "extras", "peer"))
    touches = method.get("init", "none") != "none" or bool(method.get("freeze"))
    return {
        "qk_norm": qk_norm(config),
        "qk_from": qk_from(config),
        "init": method.get("init", "none"),
        "freeze": sorted(method["freeze"] or []) if "freeze" in method else None,
        "layers": method.get("layers", "all") if touches else "all",
        "unfreeze": method.get("unfreeze"),
        "rates": (method.get("qk_lr", 1.0), method.get("layer_decay", 1.0)),
        "extras": {key: value for key, value in (method.get("extras") or {}).items() if value},
        "peer": method.get("peer"),
    }


def _start(config: Mapping[str, Any]) -> str | None:
    return None if config.get("model") == {} else start_of(config)  # of an imported run that does not say


def qk_from(config: Mapping[str, Any]) -> str | None:
    """Whether Q/K keep the pretrained row space, or start from a random draw."""
    method, start = config.get("method") or {}, _start(config)
    if start is None:
        return None
    if start == "scratch":
        return "random"
    if method.get("init", "none") == "none":
        return "pretrained"
    known = INITIALISERS.get(str(method["init"]))
    fresh = method.get("from") == "gaussian" or (known is not None and not known.has_source)
    return "random" if fresh else "pretrained"


def qk_norm(config: Mapping[str, Any]) -> float | str | None:
    """Norm of a Q/K row at the start: a number, `own` for pretrained norms, None when it cannot be told.

    >>> round(qk_norm({"family": "gpt", "model": {"shape": {"d_model": 512}}, "method": {"init": "none"}}), 2)
    0.45
    """
    method = config.get("method") or {}
    width = ((config.get("model") or {}).get("shape") or {}).get("d_model")
    scale, init = method.get("scale", "unit"), method.get("init", "none")
    if init == "none" or scale == "keep":
        if _start(config) == "scratch":
            return INIT_STD * math.sqrt(width) if width else None
        return OWN
    if scale == "unit":
        return 1.0
    if is_orthonormal(init):
        return float(scale)
    return float(scale) * math.sqrt(width) if width else None


def steps_of(config: Mapping[str, Any]) -> int | None:
    """Optimiser steps, from max_steps, or from epochs when the number of training examples is known."""
    train, data = config.get("train") or {}, config.get("data") or {}
    if train.get("max_steps"):
        return int(train["max_steps"])
    examples, epochs, batch = data.get("train_examples"), train.get("epochs"), train.get("batch_size")
    if not (examples and epochs and batch):
        return None
    examples = min(examples, data.get("limit") or examples)
    return steps_in_epochs(epochs, examples, batch * (train.get("accumulate") or 1))


def duration(config: Mapping[str, Any]) -> str | None:
    train = config.get("train") or {}
    steps = steps_of(config)
    if steps:
        return f"{steps:,} steps"
    return f"{train['epochs']:g} epochs" if train.get("epochs") else None


def clock_of(config: Mapping[str, Any]) -> str | None:
    """What one tick of the run's clock was: an optimiser step, unless an author's run says otherwise."""
    if "clock" in config and config["clock"] is None:
        return None
    clock = config.get("clock")
    if isinstance(clock, Mapping):
        clock = clock.get("per") or clock.get("unit") or clock.get("counts")
    return str(clock).replace("_", "-").replace(" ", "-") if clock else "optimiser-step"


def _validation(data: Mapping[str, Any]) -> str | None:
    kind = data.get("validation")
    if kind in (None, "split"):
        return kind
    text = f"{kind} {data.get('validation_fraction')}"
    return f"{text}, seed {data.get('validation_seed')}" if kind == "random" else text


def _warmup(train: Mapping[str, Any]) -> str | None:
    if train.get("warmup_steps") is not None:
        return f"{train['warmup_steps']:,} steps"
    return f"{train['warmup_ratio']:.0%}" if train.get("warmup_ratio") is not None else None


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
