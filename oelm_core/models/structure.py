"""Finds attention in a model by its module structure: where query, key and value are, how many heads share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from oelm_core.errors import BadInput
from oelm_core.models.projections import PROJECTIONS, Projection

# Names of query, key and value where each is a module of its own.
_SEPARATE = (
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("q", "k", "v"),
)
# Names of a module that is all three: their rows one after the other, or by groups of heads that share a key (its
# queries, its key, its value; then the next group).
_ONE_AFTER_THE_OTHER = ("c_attn", "Wqkv", "qkv_proj", "qkv")
_BY_GROUPS = ("query_key_value", "in_proj")
# Attention whose fused weight has an order of its own.
_OTHER_ORDER = ("CodeGenAttention", "MiniMaxLightningAttention")
# The output is looked for in the attention module first, then beside it (BERT keeps it in attention.output.dense).
_OUTPUTS = ("o_proj", "out_proj", "out_lin", "output.dense", "dense", "c_proj", "Wo", "proj", "o")
_HEADS = ("heads", "num_attention_heads", "num_heads", "n_heads", "n_head")
_HEAD_DIMS = ("head_dim", "head_size", "attention_head_size")
_HINT = "use an encoder or a decoder of transformers, or this project's GPT."

# Submodules that a peer method or an extra brings along; never part of the network proper.
ADDED = {"lora_A", "lora_B", "adapter", "extras"}


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's attention. `query.weight`: `[heads * head_dim, d_model]`; `key.weight` has key_heads instead."""

    index: int
    """Counted from 0 at the input."""
    query: Projection
    key: Projection
    value: Projection
    output: nn.Module | None
    heads: int
    key_heads: int
    """Fewer than heads in grouped-query attention."""
    head_dim: int
    module: nn.Module
    """The module that owns query, key and value."""
    block: nn.Module
    """The whole layer: attention, feed-forward and norms."""
    ffn: tuple[nn.Module, ...]
    """Feed-forward projections, in order of use: up, then down."""

    @property
    def fused(self) -> bool:
        """Whether query, key and value are rows of one weight."""
        return self.query.rows is not None

    def projections(self) -> dict[str, Projection]:
        """What the method acts on."""
        return {"query": self.query, "key": self.key}


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """The self-attention layers of a model, from the input upwards; a refusal when none can be found."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise BadInput(
            f"{type(model).__name__}: it has an encoder and a decoder, and not all of its attention is self-attention; "
            f"take its encoder alone, or {_HINT}"
        )
    modules = dict(model.named_modules())
    found = [(name, module) for name, module in modules.items() if not ADDED & set(name.split("."))]
    layers = [(name, parts) for name, module in found if (parts := _parts(name, module, modules))]
    if not layers:
        raise BadInput(f"{type(model).__name__}: no attention with query, key and value projections was found; {_HINT}")
    return [_describe(index, name, parts, modules) for index, (name, parts) in enumerate(layers)]


def head_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What turns features into answers: pooler, classifier, language-model head. They must always train."""
    names = {"pooler", "classifier", "score", "lm_head", "pre_classifier", "cls", "qa_outputs"}
    for name, module in model.named_modules():
        parts = name.split(".")
        if parts[-1] in names and not names & set(parts[:-1]) and any(True for _ in module.parameters()):
            yield name, module


@dataclass(frozen=True)
class _Parts:
    """Modules of one attention: query, key and value, or the one that is all three."""

    modules: tuple[nn.Module, ...]
    by_groups: bool = False


def _parts(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> _Parts | None:
    """Where an attention module has its projections; None for any other module."""
    for names in _SEPARATE:
        found = [one for part in names if (one := _projection(modules, name, part)) is not None]
        if len(found) == len(names):
            return _Parts(tuple(found))
    for part in (*_ONE_AFTER_THE_OTHER, *_BY_GROUPS):
        one = _projection(modules, name, part)
        if one is not None and "ttention" in type(module).__name__:
            # GPTBigCode lays `c_attn` out by groups unless all heads share one key.
            return _Parts((one,), by_groups=part in _BY_GROUPS or getattr(module, "multi_query", None) is False)
    return None


def _projection(modules: dict[str, nn.Module], name: str, path: str) -> nn.Module | None:
    """The projection at a path below a module, or inside the adapter that peft has wrapped around it."""
    found = modules.get(f"{name}.{path}".lstrip("."))
    inner = getattr(found, "base_layer", found)
    return inner if isinstance(inner, PROJECTIONS) else None


def _describe(index: int, name: str, parts: _Parts, modules: dict[str, nn.Module]) -> AttentionLayer:
    module, where = modules[name], f"layer {index} ({name})"
    heads = _number(module, _HEADS)
    if not heads:
        raise BadInput(f"{where}: it does not say how many heads share its query.")
    query, key, value = (
        _fused(module, parts, heads, where) if len(parts.modules) == 1 else _separate(parts, heads, where)
    )
    block_name = _block_name(name, modules)
    beside = name.rpartition(".")[0]
    outputs = (_projection(modules, place, path) for path in _OUTPUTS for place in (name, beside))
    return AttentionLayer(
        index=index,
        query=query,
        key=key,
        value=value,
        output=next((one for one in outputs if one is not None), None),
        heads=heads,
        key_heads=key.heads,
        head_dim=query.out_features // heads,
        module=module,
        block=modules[block_name],
        ffn=_feed_forward(modules[block_name], name[len(block_name) :].strip(".").split(".")[0]),
    )


def _separate(parts: _Parts, heads: int, where: str) -> tuple[Projection, ...]:
    query, key, value = (Projection(module, heads) for module in parts.modules)
    if query.out_features % heads:
        raise BadInput(f"{where}: {heads} heads do not divide its query's width of {query.out_features}.")
    head_dim = query.out_features // heads
    if key.out_features % head_dim:
        raise BadInput(f"{where}: heads of {head_dim} do not divide its key's {key.out_features} rows.")
    shared = key.out_features // head_dim
    return query, Projection(key.owner, shared), Projection(value.owner, shared)


def _fused(module: nn.Module, parts: _Parts, heads: int, where: str) -> tuple[Projection, ...]:
    (owner,) = parts.modules
    width = Projection(owner, heads).out_features
    if type(module).__name__ in _OTHER_ORDER:
        raise BadInput(
            f"{where}: {type(module).__name__} keeps query, key and value in an order that is not known here."
        )
    head_dim = _number(module, _HEAD_DIMS, own=True) or width // (3 * heads)
    shared = (width // head_dim - heads) // 2  # keys, and as many values, are what the queries leave
    if shared < 1 or heads % shared or width != (heads + 2 * shared) * head_dim:
        raise BadInput(f"{where}: {heads} heads of {head_dim} with their keys and values do not make its {width} rows.")
    each = heads // shared
    if parts.by_groups:
        order = [(group * (each + 2), each) for group in range(shared)]
        queries = [first + i for first, count in order for i in range(count)]
        keys, values = ([first + count + i for first, count in order] for i in (0, 1))
    else:
        queries, keys = list(range(heads)), list(range(heads, heads + shared))
        values = list(range(heads + shared, heads + 2 * shared))
    q, k, v = (tuple(h * head_dim + i for h in part for i in range(head_dim)) for part in (queries, keys, values))
    bias = getattr(module, "q_bias", None)  # DeBERTa's first version: its key has none
    apart = (bias,) if isinstance(bias, nn.Parameter) else ()
    return Projection(owner, heads, q, apart), Projection(owner, shared, k), Projection(owner, shared, v)


def _number(module: nn.Module, names: tuple[str, ...], *, own: bool = False) -> int | None:
    """The first of these that the module or its configuration says."""
    owners = (module,) if own else (module, getattr(module, "config", None))
    numbers = (getattr(owner, name, None) for owner in owners for name in names)
    return next((number for number in numbers if isinstance(number, int) and not isinstance(number, bool)), None)


def _block_name(name: str, modules: dict[str, nn.Module]) -> str:
    """The innermost list item around an attention module: `encoder.layer.3` for `encoder.layer.3.attention.self`."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if isinstance(modules.get(".".join(parts[: end - 1])), nn.ModuleList):
            return ".".join(parts[:end])
    return name.rpartition(".")[0]


def _feed_forward(block: nn.Module, attention_child: str) -> tuple[nn.Module, ...]:
    """Every projection of a block outside its attention and outside what a peer method has added."""
    found = []
    for name, module in block.named_modules():
        parts = name.split(".")
        if isinstance(module, PROJECTIONS) and parts[0] != attention_child and not ADDED & set(parts):
            found.append(module)
    return tuple(found)
