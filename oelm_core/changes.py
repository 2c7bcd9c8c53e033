"""How two recorded configurations differ, and what a run changed from its preset, in a few words: `lr 3e-3`.

Beside the rooms: lists of runs, the screen and a preset's card say it in the same words. Works on plain mappings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

LABELS = frozenset({"id", "title", "about", "finding", "baseline", "published", "target", "family", "seed", "slurm"})
"""What tells of a configuration without being a setting of it."""


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"train": {"lr": 1}}` -> `{"train.lr": 1}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found.update(flattened(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def settings_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """By dotted key, without labels, stories and published figures."""
    return {key: value for key, value in flattened(config).items() if key.partition(".")[0] not in LABELS}


def differences(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, as (here, there)."""
    mine, theirs = settings_in(config), settings_in(other)
    keys = sorted(set(mine) | set(theirs))
    return {key: (mine.get(key), theirs.get(key)) for key in keys if mine.get(key) != theirs.get(key)}


def as_text(value: Any) -> str:
    """A setting as one would write it.

    >>> as_text(0.003), as_text(0.1), as_text(["query", "key"]), as_text(None)
    ('3e-3', '0.1', '[query, key]', '-')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "-"
    if isinstance(value, float):
        if 0 < abs(value) < 0.01:
            digits, _, power = f"{value:.6e}".partition("e")
            return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(as_text(item) for item in value) + "]"
    return str(value)


def changed_settings(config: Mapping[str, Any], preset: Mapping[str, Any]) -> tuple[str, ...]:
    """What a run's configuration says otherwise than its preset does, each in a word or two.

    A setting that one of them does not know (another version wrote it) is no change. The last part of a key names it
    where no other section has one of that name. Where files lie is said last, and only a path's end: it tells no runs
    apart that a table has cut short.

    >>> changed_settings({"train": {"lr": 3e-3}, "data": {"name": "x"}}, {"train": {"lr": 1e-3}, "data": {"name": "x"}})
    ('lr 3e-3',)
    """
    mine, theirs = settings_in(config), settings_in(preset)
    leaves = Counter(key.rpartition(".")[2] for key in theirs)
    found: list[str] = []
    places: list[str] = []
    for key, value in mine.items():
        if key not in theirs or value == theirs[key] or key == "method.name":
            continue
        leaf = key.rpartition(".")[2]
        text = as_text(value)
        is_place = leaf in ("path", "tokenizer") and "/" in text
        if is_place:
            text = text.rstrip("/").rpartition("/")[2]
        (places if is_place else found).append(f"{leaf if leaves[leaf] == 1 else key} {text}")
    return (*found, *places)
