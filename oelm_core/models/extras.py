"""A little freedom for frozen attention: numbers, and an update of low rank, learned while Q/K stay fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Extras
from oelm_core.errors import BadInput
from oelm_core.models.structure import AttentionLayer, attention_layers

Start = Callable[..., Any]


class LowRank(nn.Module):
    """Updates of one layer's query and key weights: up @ down, in LoRA's form but beside weights that stay frozen.

    The downs are drawn so that they keep the size of their input, the ups start at zero.
    """

    def __init__(self, rank: int, width: int, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query_down = nn.Parameter(torch.empty(rank, width))
        self.query_up = nn.Parameter(torch.empty(query_width, rank))
        self.key_down = nn.Parameter(torch.empty(rank, width))
        self.key_up = nn.Parameter(torch.empty(key_width, rank))
        self.start(nn.init.normal_, nn.init.zeros_)

    def start(self, normal_: Start, zeros_: Start) -> None:
        """Drawn from a stream of its own, so that every other weight of the seed stays as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (1,), device="cpu")))
            for down in (self.query_down, self.key_down):
                normal_(down, std=down.shape[1] ** -0.5)
        for up in (self.query_up, self.key_up):
            zeros_(up)

    def query(self, x: Tensor) -> Tensor:
        """What x `[..., width]` adds to its queries."""
        return F.linear(F.linear(x, self.query_down), self.query_up)

    def key(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.key_down), self.key_up)


class AttentionExtras(nn.Module):
    """Learned additions to one layer's attention logits. All start where they change nothing.

    logits[h, i, j] = temperature[h] * sum_c gain[h, c] q[i, h, c] k[j, h, c] / sqrt(head_dim) + bias[h, i - j]
    where q and k are those of the weights and, with low_rank, of its update.
    """

    def __init__(
        self, extras: Extras, heads: int, head_dim: int, *, causal: bool, width: int = 0, key_heads: int = 0
    ) -> None:
        """width: of what enters query and key, all heads together unless said; key_heads: as many as heads."""
        super().__init__()
        self.heads, self.head_dim, self.causal = heads, head_dim, causal
        self.reach = extras.position_bias
        # A causal head looks back only: distances 0 .. reach; an encoder's looks both ways: -reach .. reach.
        distances = extras.position_bias + 1 if causal else 2 * extras.position_bias + 1
        self.position_bias = nn.Parameter(torch.zeros(heads, distances)) if extras.position_bias else None
        self.temperature = nn.Parameter(torch.ones(heads)) if extras.temperature else None
        self.gain = nn.Parameter(torch.ones(heads * head_dim)) if extras.gain else None
        out, key_out = heads * head_dim, (key_heads or heads) * head_dim
        self.low_rank = LowRank(extras.low_rank, width or out, out, key_out) if extras.low_rank else None

    def scale_query(self, query: Tensor) -> Tensor:
        """Queries `[..., heads * head_dim]` times gain and temperature; both act on logits only through them."""
        if self.gain is not None:
            query = query * self.gain.to(query.dtype)  # under autocast queries are half precision, parameters are not
        if self.temperature is not None:
            query = query * self.temperature.to(query.dtype).repeat_interleave(self.head_dim)
        return query

    def logit_bias(self, queries: int, keys: int, dtype: torch.dtype) -> Tensor | None:
        """The bias `[1, heads, queries, keys]` to add to logits, the last query facing the last key.

        Distances beyond the reach share the outermost number. With causal attention the future is -inf already.
        """
        if self.position_bias is None:
            return None
        table = self.position_bias.to(dtype)
        # One row per head holds the value of every distance that occurs; each query's row is a window of it, so
        # building the bias and its gradient are strided copies and sums instead of a scatter over queries x keys.
        distance = torch.arange(keys - 1, -queries, -1, device=table.device)  # [queries + keys - 1]
        clipped = distance.clamp(0 if self.causal else -self.reach, self.reach)
        line = table[:, clipped if self.causal else clipped + self.reach]
        if self.causal:
            line = line.masked_fill(distance < 0, float("-inf"))
        return line.unfold(1, keys, 1).flip(1).unsqueeze(0)


def wanted(extras: Extras) -> bool:
    """Whether any extra needs parameters of its own beside the biases."""
    return bool(extras.position_bias or extras.temperature or extras.gain or extras.low_rank)


def attach_extras(model: nn.Module, extras: Extras) -> None:
    """Gives every layer of an encoder its extras, through hooks, so that its own code and names stay as they are."""
    if not (wanted(extras) or extras.qk_bias):
        return
    for layer in attention_layers(model):
        if layer.fused:
            raise BadInput(f"{type(layer.module).__name__}: method.extras needs query and key in weights of their own.")
        for projection in (layer.query, layer.key):
            if extras.qk_bias and projection.bias is None:  # freezing leaves them trainable
                zeros = torch.zeros(projection.out_features, device=projection.weight.device)
                projection.owner.bias = nn.Parameter(zeros)
        if wanted(extras):
            _attach(layer, extras)


def _attach(layer: AttentionLayer, extras: Extras) -> None:
    attention = layer.module
    if not (hasattr(attention, "num_attention_heads") and hasattr(attention, "query")):
        raise BadInput(f"{type(attention).__name__}: method.extras works on BERT and RoBERTa attention and on our GPT.")
    with torch.device(layer.query.weight.device):
        width, key_heads = layer.query.in_features, layer.key_heads
        added = AttentionExtras(extras, layer.heads, layer.head_dim, causal=False, width=width, key_heads=key_heads)
    attention.extras = added
    query, key = attention.query, attention.key  # the outermost modules, so that a LoRA update is scaled too
    assert isinstance(query, nn.Module)
    assert isinstance(key, nn.Module)
    if (update := added.low_rank) is not None:
        query.register_forward_hook(lambda module, inputs, output: output + update.query(inputs[0]))
        key.register_forward_hook(lambda module, inputs, output: output + update.key(inputs[0]))
    if added.gain is not None or added.temperature is not None:
        query.register_forward_hook(lambda module, inputs, output: added.scale_query(output))
    if added.position_bias is not None:
        attention.register_forward_pre_hook(_add_bias_to_mask, with_kwargs=True)


def _add_bias_to_mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """SDPA adds a float mask to its logits, so the position bias travels in the mask."""
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    in_args = len(args) > 1
    mask = args[1] if in_args else kwargs.get("attention_mask")
    extras = module.extras
    assert isinstance(extras, AttentionExtras)
    bias = extras.logit_bias(hidden.shape[1], hidden.shape[1], hidden.dtype)
    merged = join_mask(mask, bias)
    if in_args:
        return (args[0], merged, *args[2:]), kwargs
    return args, {**kwargs, "attention_mask": merged}


def join_mask(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One additive mask out of a boolean (True = look) or additive mask `[batch, 1, queries, keys]` and a bias."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return mask + bias
