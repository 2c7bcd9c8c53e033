"""Finds attention in a model by its module structure: which Linear is a query, which a key, how many heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from oelm_core.errors import BadInput

# Names of (query, key, value, output) as encoders and decoders spell them. The output is looked for in the attention
# module first, then beside it (BERT keeps it in attention.output.dense).
_SPELLINGS = (
    ("query", "key", "value", "output.dense"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("query_proj", "key_proj", "value_proj", "output.dense"),
    ("q", "k", "v", "o"),
)
_HEADS = ("heads", "num_attention_heads", "num_heads", "n_heads")

# Submodules that a peer method or an extra brings along; never part of the network proper.
ADDED = {"lora_A", "lora_B", "adapter", "extras"}


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's attention. `query.weight`: `[heads * head_dim, d_model]`; `key.weight` has key_heads instead."""

    index: int
    """Counted from 0 at the input."""
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear | None
    heads: int
    key_heads: int
    """Fewer than heads in grouped-query attention."""
    head_dim: int
    module: nn.Module
    """The module that owns query, key and value."""
    block: nn.Module
    """The whole layer: attention, feed-forward and norms."""
    ffn: tuple[nn.Linear, ...]
    """Feed-forward projections, in order of use: up, then down."""

    def projections(self) -> dict[str, tuple[nn.Linear, int]]:
        """What the method acts on: name -> (Linear, its number of heads)."""
        return {"query": (self.query, self.heads), "key": (self.key, self.key_heads)}


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """The self-attention layers of a model, from the input upwards; a refusal when none can be found."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise BadInput(
            f"{type(model).__name__}: it has an encoder and a decoder, and not all of its attention is self-attention; "
            "use a BERT- or RoBERTa-like encoder, or this project's GPT."
        )
    modules = dict(model.named_modules())
    found = [(name, linears) for name in modules if (linears := _linears(name, modules))]
    if not found:
        raise BadInput(
            f"{type(model).__name__}: no attention with separate query, key and value projections was found in it; "
            "use a BERT- or RoBERTa-like encoder, or this project's GPT."
        )
    return [_describe(index, name, linears, modules) for index, (name, linears) in enumerate(found)]


def head_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What turns features into answers: pooler, classifier, language-model head. They must always train."""
    names = {"pooler", "classifier", "score", "lm_head", "pre_classifier", "cls"}
    for name, module in model.named_modules():
        parts = name.split(".")
        if parts[-1] in names and not names & set(parts[:-1]) and any(True for _ in module.parameters()):
            yield name, module


def _linears(name: str, modules: dict[str, nn.Module]) -> tuple[list[nn.Linear], str] | None:
    """Query, key and value of an attention module, and the path to its output; None for any other module."""
    for *names, output in _SPELLINGS:
        found = [linear for part in names if (linear := _linear(modules, name, part))]
        if len(found) == len(names):
            return found, output
    return None


def _linear(modules: dict[str, nn.Module], name: str, path: str) -> nn.Linear | None:
    """The Linear at a path below a module, or inside the adapter that peft has wrapped around it."""
    found = modules.get(f"{name}.{path}".lstrip("."))
    inner = getattr(found, "base_layer", found)
    return inner if isinstance(inner, nn.Linear) else None


def _describe(
    index: int, name: str, linears: tuple[list[nn.Linear], str], modules: dict[str, nn.Module]
) -> AttentionLayer:
    (query, key, value), output = linears
    module = modules[name]
    heads = _head_count(module)
    if not heads or query.out_features % heads:
        given = f"{heads} heads do not divide" if heads else "it does not say how many heads share"
        raise BadInput(f"layer {index} ({name}): {given} its query's width of {query.out_features}.")
    head_dim = query.out_features // heads
    if key.out_features % head_dim:
        raise BadInput(f"layer {index} ({name}): heads of {head_dim} do not divide its key's {key.out_features} rows.")
    block_name = _block_name(name, modules)
    return AttentionLayer(
        index=index,
        query=query,
        key=key,
        value=value,
        output=_linear(modules, name, output) or _linear(modules, name.rpartition(".")[0], output),
        heads=heads,
        key_heads=key.out_features // head_dim,
        head_dim=head_dim,
        module=module,
        block=modules[block_name],
        ffn=_feed_forward(modules[block_name], name[len(block_name) :].strip(".").split(".")[0]),
    )


def _head_count(module: nn.Module) -> int | None:
    owners = (module, getattr(module, "config", None))
    numbers = (getattr(owner, name, None) for owner in owners for name in _HEADS)
    return next((number for number in numbers if isinstance(number, int)), None)


def _block_name(name: str, modules: dict[str, nn.Module]) -> str:
    """The innermost list item around an attention module: `encoder.layer.3` for `encoder.layer.3.attention.self`."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if isinstance(modules.get(".".join(parts[: end - 1])), nn.ModuleList):
            return ".".join(parts[:end])
    return name.rpartition(".")[0]


def _feed_forward(block: nn.Module, attention_child: str) -> tuple[nn.Linear, ...]:
    """Every Linear of a block outside its attention and outside what a peer method has added."""
    found = []
    for name, module in block.named_modules():
        parts = name.split(".")
        if isinstance(module, nn.Linear) and parts[0] != attention_child and not ADDED & set(parts):
            found.append(module)
    return tuple(found)
