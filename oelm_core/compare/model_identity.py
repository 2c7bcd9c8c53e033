"""Which network and which data a run really had: `model.path` may put another one in the place of the preset's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from oelm_core.compare.evidence import Evidence

_PLAIN = {"model", "models", "checkpoint", "weights", "latest", "best", "final"}
_INPUTS = ("model_fingerprint", "data_fingerprint")


def substitute(config: Mapping[str, Any]) -> str | None:
    """What stands in for the preset's network: a telling end of `model.path`, None when it is the network named.

    >>> substitute({"model": {"name": "bert-base-uncased", "path": "/data/minilm/model"}})
    'minilm/model'
    >>> substitute({"model": {"name": "bert-base-uncased", "path": "/data/bert-base-uncased/"}})
    """
    model = config.get("model") or {}
    name, path = str(model.get("name") or ""), model.get("path")
    if not path:
        return None
    parts = [part for part in PurePath(str(path)).parts if part != "/"]
    named = name.replace("/", "--").lower()  # the hub's cache writes models--org--name
    if not parts or any(named in (part.lower(), part.lower().removeprefix("models--")) for part in parts):
        return None
    if str(path).lower().endswith(name.lower()):
        return None
    telling = parts[-1].lower() not in _PLAIN and not re.fullmatch(r"(step-\d+|[0-9a-f]{16,})", parts[-1])
    return parts[-1] if telling else "/".join(parts[-2:])


def model_labels(runs: Sequence[Evidence]) -> dict[str, str]:
    """Run id -> name of its network; runs that read the same weights bear one name, whatever their paths."""
    own = {run.id: str((run.config.get("model") or {}).get("name") or "unknown") for run in runs}
    said = {run.id: substitute(run.config) for run in runs}
    by_weights: dict[tuple[str, Any], str] = {}
    for run in sorted(runs, key=lambda r: said[r.id] is not None):  # the preset's own name wins
        weights = run.facts.get("model_fingerprint")
        if weights is not None:
            by_weights.setdefault((own[run.id], weights), said[run.id] or own[run.id])
    return {
        run.id: by_weights[own[run.id], weights]
        if said[run.id] and (weights := run.facts.get("model_fingerprint")) is not None
        else said[run.id] or own[run.id]
        for run in runs
    }


def same_inputs(one: Evidence, other: Evidence) -> bool:
    """Whether two runs of one recipe read the same weights and text; what is not recorded is taken as the same."""
    pairs = [(one.facts.get(fact), other.facts.get(fact)) for fact in _INPUTS]
    return all(a is None or b is None or a == b for a, b in pairs)
