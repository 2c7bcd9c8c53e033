"""Changing an experiment by dotted keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oelm_core.config.experiment import Experiment, build_experiment
from oelm_core.config.plain_yaml import read_setting
from oelm_core.errors import BadInput


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
        nested: Any = read_setting(raw)
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        overrides = merge(overrides, nested)
    return overrides


def override(experiment: Experiment, settings: Iterable[str]) -> Experiment:
    """The experiment with `--set` settings applied and validated again. `lr` is understood as `train.lr`."""
    settings = list(settings)
    if not settings:
        return experiment
    from oelm_core.config.setting_keys import with_full_key  # late: only what is changed needs the whole list

    settings = [with_full_key(text) for text in settings]
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
