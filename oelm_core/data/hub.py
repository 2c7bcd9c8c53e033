"""The Hugging Face hub: whether it can be reached, what a run needs from it, and loading a split.

Without a network its libraries retry for half a minute per file, so they are told beforehand to use their cache only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oelm_core.data import sets
from oelm_core.errors import NotFound
from oelm_core.registry import FAMILIES, start_of

PATIENCE = 3.0  # seconds


def hub_is_reachable() -> bool:
    """Tries to open a connection to HF_ENDPOINT, or the hub. Behind a proxy this cannot be told, so it is assumed."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), PATIENCE):
            return True
    except OSError:
        return False


def stay_offline_if_unreachable() -> None:
    """Tells the hub's libraries to use their cache only. Must come before they are imported."""
    if "HF_HUB_OFFLINE" not in os.environ and not hub_is_reachable():
        os.environ["HF_HUB_OFFLINE"] = "1"


def prepare_for(*configs: Mapping[str, Any]) -> None:
    """Before the libraries of these runs are imported: their cache where the hub is needed and away."""
    if any(map(needs_hub, configs)):
        stay_offline_if_unreachable()


def needs_hub(config: Mapping[str, Any]) -> bool:
    """Whether a run's configuration names anything that may have to come from the hub."""
    model, data = config.get("model", {}), config.get("data", {})
    weights = model.get("path") or (model.get("name") if start_of(config) == "pretrained" else None)
    names = [data.get("tokenizer"), weights]
    if data.get("tokenizer") is None and not str(model.get("name")).startswith("demo-"):
        family = FAMILIES.get(str(config.get("family")))
        names.append(family.tokenizer if family else None)
    named = [str(name) for name in names if name and not str(name).startswith("demo-")]
    on_disk = all(Path(name).expanduser().is_dir() for name in named)
    return not on_disk or not (data.get("path") or str(data.get("name")).startswith("demo-"))


def load_split(name: str, place: sets.Split, streaming: bool = False) -> Any:
    """A split through the `datasets` library: its cache, or the network where there is one."""
    import datasets

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(place.repo, place.config, split=place.name, streaming=streaming)
    except Exception as error:  # the library raises a dozen kinds for "cannot reach it"
        why = "no network" if "onnect" in str(error) or "ffline" in str(error) else type(error).__name__
        looked = map(str, (sets.kept_folder(name), *(sets.hub_cache_folders(place) or sets.hub_caches())))
        raise NotFound(
            f"dataset {name} ({place.repo}, {place.name}) is not here and cannot be fetched"
            f" ({why}); looked in {', '.join(looked)}."
            f" To get it: {sets.how_to_get(name)}."
        ) from None
