"""What names a recorded configuration: the hash of what decides its result, and of the method it is about.

Beside the rooms, for presets and run folders need the same names. Imports are late: a waiting runner needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oelm_core.runs.schema import RunRecord

HASH_FORM = 2
"""Kept beside the hash in run.json. The first form also counted what `NO_RESULT` lists under `train`."""
NO_RESULT: dict[str, tuple[str, ...]] = {
    "model": ("path",),
    "data": ("path", "tokenizer", "train_examples", "eval_examples"),
    "method": ("name",),
    "train": (
        *("threads", "log_every", "samples", "attention_stats", "keep_checkpoints", "checkpoint_every"),
        *("checkpoint_activations", "shard"),
    ),
}
"""Labels, paths and settings that cannot change a result (threads and shards: beyond rounding), by section."""


def config_hash(config: Mapping[str, Any]) -> str:
    """Names what decides a result: everything but the seed, paths, threads, labels, logging and published figures.

    A setting that is null counts as absent, so that one added later does not rename the runs before it.
    """
    from oelm_core.data.test_source import held_out_share

    kept = {
        part: {key: value for key, value in config[part].items() if key not in left_out}
        for part, left_out in NO_RESULT.items()
    }
    # A split or file that is scored after training changes no weight: runs with and without it are seeds of one arm,
    # and the fingerprint in result.json says which of their test scores compare. A held-out part changes training.
    if held_out_share(kept["data"].get("test")) is None:
        kept["data"].pop("test", None)
    return _hash({"family": config["family"], **kept})


def method_hash(config: Mapping[str, Any]) -> str:
    """Names what is compared: the method on a model and data set, whatever the training recipe and the preset's id."""
    method = {key: value for key, value in config["method"].items() if key != "name"}
    place = {"family": config["family"], "model": config["model"].get("name"), "data": config["data"].get("name")}
    return _hash({**place, "method": method})


def recorded_hash(record: RunRecord) -> str:
    """A run's configuration hash in the present form; a run of the first form is hashed again from what it kept."""
    if record.hash >= HASH_FORM or record.imported is not None:
        return record.config_hash
    try:
        return config_hash(record.config)
    except (KeyError, AttributeError, TypeError):  # a stranger's run.json
        return record.config_hash


def recorded_method(config: Mapping[str, Any]) -> str | None:
    """`method_hash`, or None where the configuration does not say enough (an import)."""
    try:
        return method_hash(config) if "init" in config["method"] else None
    except (KeyError, AttributeError, TypeError):
        return None


def _hash(content: Mapping[str, Any]) -> str:
    import hashlib
    import json

    text = json.dumps(_without_null(content), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_null(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _without_null(value) for key, value in content.items() if value is not None}
    return content
