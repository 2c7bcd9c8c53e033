"""Other people's parameter-efficient methods on the same models: LoRA through peft, BitFit, bottleneck adapters."""

from __future__ import annotations

import warnings
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Peer
from oelm_core.models.projections import Projection
from oelm_core.models.structure import attention_layers


def attach_peer(model: nn.Module, peer: Peer) -> None:
    """Adds what the method needs to a model, in place; what then trains is decided by freezing."""
    if peer.kind == "lora":
        _attach_lora(model, peer)
    elif peer.kind == "adapter":
        _attach_adapters(model, peer.rank)


def _attach_lora(model: nn.Module, peer: Peer) -> None:
    """Low-rank updates of query and value, the choice of the LoRA paper; injected in place, so names stay readable."""
    from peft import LoraConfig, inject_adapter_in_model

    names = {id(module): name for name, module in model.named_modules()}
    wanted = [projection.owner for layer in attention_layers(model) for projection in (layer.query, layer.value)]
    targets = [names[id(module)] for module in wanted]
    config = LoraConfig(r=peer.rank, lora_alpha=peer.alpha, lora_dropout=0.0, target_modules=targets)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of meta tensors; on the meta device we only count
        inject_adapter_in_model(config, model)


class Adapter(nn.Module):
    """A bottleneck with a skip: x + up(gelu(down(x))). It starts as the identity, for its `up` starts at zero."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(F.gelu(self.down(x)))


def _attach_adapters(model: nn.Module, bottleneck: int) -> None:
    """One adapter behind each layer's feed-forward output projection, before its residual sum (Pfeiffer's place)."""
    for layer in attention_layers(model):
        down = layer.ffn[-1]
        adapter = Adapter(Projection(down, 1).out_features, bottleneck)
        layer.block.adapter = adapter

        def through(module: nn.Module, inputs: Any, output: Tensor, adapter: Adapter = adapter) -> Tensor:
            result: Tensor = adapter(output)
            return result

        down.register_forward_hook(through)


def trains_under(peer: Peer, name: str) -> bool:
    """Whether a peer method trains a parameter of this name, heads aside (they always train)."""
    parts = name.split(".")
    if peer.kind == "bitfit":
        return parts[-1] == "bias"
    return bool({"lora_A", "lora_B"} & set(parts)) if peer.kind == "lora" else "adapter" in parts
