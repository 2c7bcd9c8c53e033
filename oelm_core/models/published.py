"""Networks as folders that others can load: `oelm publish` writes them, `oelm_core.load_published` reads them.

A BERT, a RoBERTa or another network of transformers is a folder like any other. Our GPT needs this package. So does a
network with learned extras or a peer's modules: its `model_type` is one that transformers does not know, for a loader
that left them out in silence would make another model of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oelm_core.config import Extras, Peer
from oelm_core.errors import BadInput
from oelm_core.models.extras import attach_extras
from oelm_core.models.peers import attach_peer
from oelm_core.shared_files import share_weights
from oelm_core.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Method

OWN = "oelm"
"""Key of config.json: what this package must add to transformers' network."""


class Published(NamedTuple):
    """`model, tokenizer = load_published(folder)`."""

    model: Any
    """Ready to evaluate."""
    tokenizer: Any


def save_published(
    model: nn.Module, tokenizer: PreTrainedTokenizerFast, folder: Path, method: Method, labels: Sequence[str] = ()
) -> str:
    """Weights in safetensors, config.json and the tokenizer. Returns who can load it: transformers, or oelm_core."""
    network: Any = model
    if labels:
        network.config.id2label = dict(enumerate(labels))
        network.config.label2id = {label: number for number, label in enumerate(labels)}
    network.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    share_weights(folder)
    parts = _own_parts(network, method)
    if parts:
        file = folder / "config.json"
        config = json.loads(file.read_text())
        known = config["model_type"]
        config |= {"model_type": f"{known}-with-{'-and-'.join(parts)}", OWN: {"model_type": known, **parts}}
        file.write_text(json.dumps(config, indent=2) + "\n")
    return "oelm_core" if parts or not type(model).__module__.startswith("transformers.") else "transformers"


def _own_parts(model: Any, method: Method) -> dict[str, Any]:
    """What the network has beside the modules that its configuration alone makes: its method's extras, its peer."""
    import torch

    with torch.device("meta"):
        plain = type(model)(model.config)
    added = model.state_dict().keys() - plain.state_dict().keys()
    if not added:
        return {}
    parts: dict[str, Any] = {}
    if not hasattr(model.config, "extras"):  # our GPT's configuration says them itself
        parts["extras"] = method.extras.model_dump(exclude_defaults=True)
    if method.peer is not None:
        parts[method.peer.kind] = method.peer.model_dump()
    return {name: part for name, part in parts.items() if part}


def load_published(folder: Path | str) -> Published:
    """The network and the tokenizer of a folder that `oelm publish` wrote. No code of the folder is ever run."""
    from transformers import AutoTokenizer

    place = Path(folder).expanduser()
    try:
        config = json.loads(read_small_file(place / "config.json", follow=True))
    except OSError as error:
        raise BadInput(f"{place}: no published model; its config.json cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{place}: no published model; its config.json is not JSON.") from None
    if not isinstance(config, dict):
        raise BadInput(f"{place}: no published model; its config.json is no configuration.")
    model = _load(place, config) if OWN in config else _class_of(config, place).from_pretrained(str(place))
    return Published(model.eval(), AutoTokenizer.from_pretrained(str(place)))


def _class_of(config: dict[str, Any], place: Path) -> Any:
    import transformers

    import oelm_core.models.gpt as ours

    named = config.get("architectures")
    name = named[0] if isinstance(named, list) and named else ""
    found = getattr(ours, str(name), None) or getattr(transformers, str(name), None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise BadInput(f"{place}: its config.json names no network that is known here ({name or 'none'}).")
    return found


def _load(place: Path, config: dict[str, Any]) -> Any:
    """transformers' network, or our GPT, with what its method added, then every weight by its name."""
    from safetensors.torch import load_file

    kind = _class_of(config, place)
    own = config.pop(OWN)
    try:
        made = kind.config_class.from_dict({**config, "model_type": own["model_type"]})
        model = kind(made)
        if "extras" in own:
            attach_extras(model, Extras(**own["extras"]))
        for peer in ("lora", "adapter"):
            if peer in own:
                attach_peer(model, Peer(**own[peer]))
        found = model.load_state_dict(load_file(place / "model.safetensors"), strict=False)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadInput(f"{place}: it could not be loaded ({str(error).splitlines()[0]}).") from None
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    odd = [*(name for name in found.missing_keys if name not in tied), *found.unexpected_keys]
    if odd:
        raise BadInput(f"{place}: its weights are of another model ({len(odd)} names differ, first {odd[0]}).")
    model.tie_weights()
    return model
