"""What heads look at, on a fixed batch: entropy, distance, and how far two arms' attention patterns are apart."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from oelm_core.errors import BadInput
from oelm_core.models.gpt import Attention
from oelm_core.models.structure import AttentionLayer, attention_layers


def attention_patterns(model: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """Attention probabilities `[layers, batch, heads, queries, keys]` (fp32, CPU) of one forward pass, no dropout.

    Read off queries, keys and mask as they enter the attention, extras included, so SDPA stays switched on. Meant for
    a small batch: 12 layers x 12 heads x 4 texts of 64 tokens are 9 MB. BadInput where an encoder's attention turns out
    to be something else (rotated or relative positions), for then the patterns would be wrong.
    """
    seen: dict[int, Tensor] = {}
    was_training = model.training
    model.eval()
    try:
        with contextlib.ExitStack() as hooks, torch.no_grad():
            network = getattr(model, "network", None)
            if network is not None:
                hooks.enter_context(_watching(network, seen))
            else:
                for layer in attention_layers(model):
                    watch = _watch_ours if isinstance(layer.module, Attention) else _watch_encoder
                    for handle in watch(layer, seen):
                        hooks.enter_context(handle)
            model(**inputs)
    finally:
        model.train(was_training)
    return torch.stack([seen[index] for index in sorted(seen)])


def summarise(patterns: Tensor, real: Tensor | None = None) -> dict[str, list[list[float]]]:
    """Per layer and head, averaged over queries: entropy in nats, and mean distance |i - j| in tokens.

    real: `[batch, tokens]`, 1 for tokens that count; padding is left out.
    """
    tokens = patterns.shape[-1]
    places = torch.arange(tokens, dtype=torch.float32)
    far = (places[:, None] - places[None, :]).abs()
    entropy = -(patterns * patterns.clamp(min=1e-30).log()).sum(-1)  # [layers, batch, heads, queries]
    return {
        "entropy": _over_queries(entropy, real).tolist(),
        "distance": _over_queries((patterns * far).sum(-1), real).tolist(),
    }


def pattern_distance(one: Tensor, other: Tensor, real: Tensor | None = None) -> list[list[float]]:
    """Total variation between two arms' patterns on the same batch, per layer and head: 0 same, 1 disjoint."""
    if one.shape != other.shape:
        raise ValueError(f"patterns of shapes {list(one.shape)} and {list(other.shape)} are not of one batch and model")
    distance: list[list[float]] = _over_queries((one - other).abs().sum(-1) / 2, real).tolist()
    return distance


def save_patterns(path: Path, patterns: Tensor, real: Tensor | None = None, tokens: Tensor | None = None) -> None:
    """Half precision, compressed; for comparing arms after they have run. tokens: the batch they were made on."""
    kept = {"patterns": patterns.half(), "tokens": tokens, "real": real}
    arrays = {name: tensor.cpu().numpy() for name, tensor in kept.items() if tensor is not None}
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    atomically(path, packed.getvalue())


def load_patterns(path: Path) -> tuple[Tensor, Tensor | None]:
    with np.load(path, allow_pickle=False) as arrays:
        patterns = torch.from_numpy(arrays["patterns"].astype(np.float32))
        real = torch.from_numpy(arrays["real"]) if "real" in arrays else None
    return patterns, real


def is_of_batch(path: Path, tokens: Tensor) -> bool:
    """Whether a file holds patterns made on exactly these tokens."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return "tokens" in arrays and np.array_equal(arrays["tokens"], tokens.cpu().numpy())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def record(
    folder: Path, step: int, model: nn.Module, inputs: Mapping[str, Tensor], real: Tensor | None = None
) -> dict[str, float]:
    """One look at a run's attention: `step-N.json` with every head, patterns of the first and the latest look.

    Returns flat figures for a metrics line: entropy, distance, how far the patterns are from the first look's, and,
    where `baseline.npz` holds the baseline arm's pattern on the same batch, how far from that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    patterns = attention_patterns(model, inputs)
    for name in ("start.npz", "latest.npz"):
        if name == "latest.npz" or not (folder / name).exists():
            save_patterns(folder / name, patterns, real, inputs.get("input_ids"))
    table = summarise(patterns, real)
    for figure, other in (("moved", "start.npz"), ("from_baseline", "baseline.npz")):
        kept = load_patterns(folder / other)[0] if (folder / other).exists() else None
        if kept is not None and kept.shape == patterns.shape:  # a baseline of other sizes has nothing to compare
            table[figure] = pattern_distance(patterns, kept, real)
    atomically(folder / f"step-{step}.json", json.dumps({"step": step, **table}).encode())
    return {f"attention_{name}": float(np.mean(values)) for name, values in table.items()}


def atomically(path: Path, content: bytes) -> None:
    """Written beside and renamed, so that no reader sees half of it."""
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(content)
    beside.replace(path)


def _over_queries(values: Tensor, real: Tensor | None) -> Tensor:
    """`[layers, batch, heads, queries]` averaged to `[layers, heads]` over the queries that are real."""
    if real is None:
        return values.mean((1, 3))
    weight = real.cpu().float()[None, :, None, :]
    return (values * weight).sum((1, 3)) / weight.sum()


@contextlib.contextmanager
def _watching(network: Any, seen: dict[int, Tensor]) -> Iterator[None]:
    """A decoder of transformers: queries and keys as they enter its attention function, rotated and normalised."""
    place = {id(layer.module): layer.index for layer in attention_layers(network)}

    def look(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        scale = more.get("scaling") or query.shape[-1] ** -0.5
        seeing = mask
        if seeing is None:
            length = query.shape[2]
            seeing = torch.ones(length, key.shape[2], dtype=torch.bool, device=query.device).tril(key.shape[2] - length)
        seen[place[id(module)]] = _probabilities(query * (scale * query.shape[-1] ** 0.5), key, seeing)
        return sdpa_attention_forward(module, query, key, value, mask, **more)

    AttentionInterface.register("oelm-watch", look)
    AttentionMaskInterface.register("oelm-watch", sdpa_mask)
    usual = network.config._attn_implementation
    network.set_attn_implementation("oelm-watch")
    try:
        yield
    finally:
        network.set_attn_implementation(usual)


def _watch_ours(layer: AttentionLayer, seen: dict[int, Tensor]) -> list[RemovableHandle]:
    def look(module: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(module, Attention)
        query, key, _ = module.project(args[0])
        seen[layer.index] = _probabilities(query, key, module.visible(query, key, args[1]))

    return [layer.module.register_forward_pre_hook(look)]


def _watch_encoder(layer: AttentionLayer, seen: dict[int, Tensor]) -> list[RemovableHandle]:
    """Queries and keys as their modules give them; the mask as the attention gets it, position bias and all."""
    caught: dict[str, Any] = {}

    def keep(name: str) -> Any:
        return lambda module, args, output: caught.__setitem__(name, output)

    def keep_mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        caught["mask"] = args[1] if len(args) > 1 else kwargs.get("attention_mask")

    def look(*_: Any) -> None:
        query = caught["query"].unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        key = caught["key"].unflatten(-1, (layer.key_heads, -1)).transpose(1, 2)
        seen[layer.index] = _probabilities(query, key, caught["mask"])

    def prove(module: nn.Module, args: tuple[Any, ...]) -> None:
        """What the attention hands on must be these patterns times the values."""
        look()
        value = caught["value"].unflatten(-1, (layer.key_heads, -1)).transpose(1, 2).float().cpu()
        mixed = (seen[layer.index] @ repeat_kv(value, layer.heads // layer.key_heads)).transpose(1, 2).flatten(2)
        handed_on = args[0].float().cpu().view_as(mixed)
        if (mixed - handed_on).abs().max() > 0.01 * handed_on.abs().max():
            raise BadInput(
                f"{type(layer.module).__name__}: its attention is more than softmax of query times key; its patterns "
                "cannot be read off; write train.attention_stats: false."
            )

    outer = {name: _outermost(layer, getattr(layer, name).owner) for name in ("query", "key", "value")}
    handles = [module.register_forward_hook(keep(name)) for name, module in outer.items()]
    handles.append(layer.module.register_forward_pre_hook(keep_mask, with_kwargs=True))
    if layer.output is not None:
        return [*handles, layer.output.register_forward_pre_hook(prove)]
    return [*handles, layer.module.register_forward_hook(look)]


def _outermost(layer: AttentionLayer, linear: nn.Linear) -> nn.Module:
    """The child of the attention module that holds a Linear: itself, or the LoRA layer around it."""
    return next(child for child in layer.module.children() if any(m is linear for m in child.modules()))


def _probabilities(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(c) + mask) of q `[B, H, T, c]`, k `[B, key_heads, S, c]`."""
    key = repeat_kv(key, query.shape[1] // key.shape[1])
    logits = query.float() @ key.float().transpose(2, 3) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(-1).cpu()
