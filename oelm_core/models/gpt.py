"""Our GPT as a transformers model: saved, loaded and sampled like any other.

Pre-LayerNorm, no bias in q/k/v/o, GELU, learned positions, the head tied to the token embedding; dropout on attention,
residuals and feed-forward. Shapes: B batch, T tokens, H heads, c head_dim.
"""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DynamicCache,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import normal_, ones_, zeros_  # unlike torch's they leave loaded weights alone
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)

from oelm_core.config import Experiment, Extras
from oelm_core.errors import BadInput, NotFound, first_line
from oelm_core.models.dropout import Dropout, dropout_attention, dropout_attention_usable
from oelm_core.models.extras import AttentionExtras, LowRank, join_mask, wanted
from oelm_core.models.loss import IGNORED, linear_cross_entropy


class OelmGPTConfig(PretrainedConfig):
    """Sizes of a GPT and the extras its attention has. The defaults are Medium-512."""

    model_type = "oelm-gpt"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "key_heads",
        "max_position_embeddings": "positions",
        "intermediate_size": "d_ff",
    }

    vocab_size: int = 50257
    positions: int = 512
    d_model: int = 512
    layers: int = 6
    heads: int = 8
    key_heads: int = 0
    """Fewer than heads in grouped-query attention; 0 means as many."""
    d_ff: int = 2048
    dropout: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    extras: dict[str, Any] = field(default_factory=dict)
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self.key_heads = self.key_heads or self.heads
        if self.d_model % self.heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.heads} equal heads")
        if self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.key_heads} key heads equally")
        super().__post_init__(**kwargs)


class Attention(nn.Module):
    """Causal self-attention that stores no attention map."""

    def __init__(self, config: OelmGPTConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.heads, self.key_heads = config.heads, config.key_heads
        self.head_dim = config.d_model // config.heads
        self.dropout = config.dropout
        key_width = self.key_heads * self.head_dim
        self.q_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k_proj = nn.Linear(config.d_model, key_width, bias=False)
        self.v_proj = nn.Linear(config.d_model, key_width, bias=False)
        self.o_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        extras = Extras(**config.extras)
        if extras.qk_bias:  # added after the fact: drawing nothing, it leaves every other weight of the seed as it was
            self.q_proj.bias = nn.Parameter(torch.zeros(config.d_model))
            self.k_proj.bias = nn.Parameter(torch.zeros(key_width))
        self.extras = None
        if wanted(extras):
            self.extras = AttentionExtras(extras, self.heads, self.head_dim, causal=True, key_heads=self.key_heads)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, H, T, c]`, keys and values `[B, key_heads, T, c]` of x `[B, T, d_model]`."""
        # Three products rather than one of joined weights: measured as fast, and a frozen one costs no weight gradient.
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.extras is not None:
            if self.extras.low_rank is not None:
                q, k = q + self.extras.low_rank.query(x), k + self.extras.low_rank.key(x)
            q = self.extras.scale_query(q)
        return _heads(q, self.heads), _heads(k, self.key_heads), _heads(v, self.key_heads)

    def forward(self, x: Tensor, mask: Tensor | None, cache: Any | None) -> Tensor:
        q, k, v = self.project(x)
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        out = self._attend(q, k, v, self._with_bias(mask, q, k), plain=mask is None and cache is None)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _with_bias(self, mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        bias = self.extras.logit_bias(q.shape[2], k.shape[2], q.dtype) if self.extras is not None else None
        return join_mask(mask, bias)

    def visible(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """The whole mask, for who wants to see the attention map: what forward leaves to `is_causal` written out."""
        joined = self._with_bias(mask, q, k)
        if joined is None:
            joined = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return joined

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, plain: bool) -> Tensor:
        """Weighted values `[B, H, T, c]`. plain: all T tokens look at one another, nothing padded, nothing cached."""
        k, v = repeat_kv(k, self.heads // self.key_heads), repeat_kv(v, self.heads // self.key_heads)
        dropout = self.dropout if self.training else 0.0
        if plain and dropout_attention_usable(q, mask, dropout):
            return dropout_attention(q, k, v, mask, dropout)
        is_causal = mask is None and q.shape[2] > 1
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(F.gelu(self.up(x)))))


class Block(nn.Module):
    def __init__(self, config: OelmGPTConfig, index: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.attention = Attention(config, index)
        self.ffn_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.ffn = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None, cache: Any | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, cache))
        return x + self.ffn(self.ffn_norm(x))


class OelmGPTPreTrainedModel(PreTrainedModel):
    config_class = OelmGPTConfig
    base_model_prefix = "model"
    _no_split_modules = ["Block"]
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LowRank):
            module.start(normal_, zeros_)
        elif isinstance(module, AttentionExtras):
            for parameter, start in ((module.position_bias, zeros_), (module.temperature, ones_), (module.gain, ones_)):
                if parameter is not None:
                    start(parameter)


class OelmGPTModel(OelmGPTPreTrainedModel):
    """Token ids `[B, T]` to features `[B, T, d_model]`."""

    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.embed_positions = nn.Embedding(config.positions, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(Block(config, index) for index in range(config.layers))
        self.final_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """attention_mask: None, `[B, keys]` with 1 for tokens that count, or boolean `[B, 1, T, keys]`, used as is."""
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        length = x.shape[1]
        if past + length > self.config.positions:
            raise ValueError(f"{past + length} tokens are more than the model's {self.config.positions} positions")
        if position_ids is None:
            position_ids = _positions(attention_mask, past, length, x.device)
        x = self.dropout(x + self.embed_positions(position_ids))
        mask = _causal_mask(attention_mask, past, length, x.device)
        for layer in self.layers:
            x = layer(x, mask, past_key_values)
        return BaseModelOutputWithPast(last_hidden_state=self.final_norm(x), past_key_values=past_key_values)


def _positions(attention_mask: Tensor | None, past: int, length: int, device: torch.device) -> Tensor:
    """Positions counted from each row's first real token, so that padding on the left does not shift a text."""
    if attention_mask is None or attention_mask.dim() != 2:
        return torch.arange(past, past + length, device=device).unsqueeze(0)
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]


def _causal_mask(attention_mask: Tensor | None, past: int, length: int, device: torch.device) -> Tensor | None:
    """Boolean `[B or 1, 1, T, keys]`, True where a query may look; None when plain causal attention does it."""
    if attention_mask is not None and attention_mask.dim() == 4:
        return attention_mask
    if attention_mask is None and (past == 0 or length == 1):
        return None
    queries = torch.arange(past, past + length, device=device).unsqueeze(1)
    keys = torch.arange(past + length, device=device)
    mask = (keys <= queries).view(1, 1, length, past + length)
    if attention_mask is not None:
        # A padded query may look at itself: a row that may look nowhere has no softmax.
        mask = mask & attention_mask.bool()[:, None, None, :] | (keys == queries)
    return mask


class OelmGPTForCausalLM(OelmGPTPreTrainedModel, GenerationMixin):
    """The language model; its head is the token embedding."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__(config)
        self.model = OelmGPTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """labels `[B, T]` are the inputs again (shifted inside); shift_labels `[B, T]` are the next tokens themselves.

        With labels the logits are not returned unless asked for: the loss does not need them all at once.
        num_items_in_batch divides the summed loss, for exact averages over accumulated batches.
        """
        out = self.model(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, **kwargs)
        hidden = out.last_hidden_state
        loss: Any = None
        if labels is not None and shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=IGNORED)[:, 1:]
        if shift_labels is not None:
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = linear_cross_entropy(hidden.flatten(0, 1), self.lm_head.weight, shift_labels.flatten(), reduction)
            if num_items_in_batch is not None:
                loss = loss / num_items_in_batch
        wants_logits = return_logits if return_logits is not None else shift_labels is None
        logits = self.lm_head(hidden[:, -logits_to_keep:]) if wants_logits else None
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values)

    def token_losses(self, input_ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """-log p of each next token: `[B, T - 1]`, or `[B, T]` when the next tokens are given as targets `[B, T]`."""
        inputs = input_ids if targets is not None else input_ids[:, :-1]
        targets = targets if targets is not None else input_ids[:, 1:]
        hidden = self.model(inputs).last_hidden_state
        losses = linear_cross_entropy(hidden.flatten(0, 1), self.lm_head.weight, targets.flatten(), "none")
        return losses.view_as(targets)


class OelmGPTForSequenceClassification(OelmGPTPreTrainedModel):
    """GPT as a classifier: the features of each text's last token decide."""

    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__(config)
        self.model = OelmGPTModel(config)
        self.score = nn.Linear(config.d_model, config.num_labels or 2, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        hidden = self.model(input_ids, attention_mask, position_ids, None, inputs_embeds).last_hidden_state
        last = torch.full((hidden.shape[0],), hidden.shape[1] - 1, device=hidden.device)
        if attention_mask is not None:
            places = torch.arange(hidden.shape[1], device=hidden.device)
            last = (attention_mask.bool() * places).argmax(-1)  # the last real token, padded left or right
        logits = self.score(hidden[torch.arange(hidden.shape[0], device=hidden.device), last])
        loss: Any = F.cross_entropy(logits, labels) if labels is not None else None
        return SequenceClassifierOutputWithPast(loss=loss, logits=logits)


AutoConfig.register(OelmGPTConfig.model_type, OelmGPTConfig, exist_ok=True)
AutoModel.register(OelmGPTConfig, OelmGPTModel, exist_ok=True)
AutoModelForCausalLM.register(OelmGPTConfig, OelmGPTForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(OelmGPTConfig, OelmGPTForSequenceClassification, exist_ok=True)


def build(experiment: Experiment, *, meta: bool) -> nn.Module:
    """A language model, or a classifier when the data has classes."""
    classes = experiment.data.classes
    kind: Any = OelmGPTForCausalLM if classes is None else OelmGPTForSequenceClassification
    config = _config(experiment)
    model: nn.Module
    if experiment.start == "scratch" or meta:
        model = kind(config)
        return model
    source = experiment.model.path or experiment.model.name
    try:
        model = kind.from_pretrained(source, config=config)
    except (OSError, ValueError) as error:
        raise NotFound(
            f"{experiment.id}: model {source} could not be loaded ({first_line(error)}); "
            "write as model.path a folder that our GPT was saved to."
        ) from error
    return model


def _config(experiment: Experiment) -> OelmGPTConfig:
    """Sizes from model.path when it is a folder, else from model.shape; extras always from the method."""
    model = experiment.model
    extras = experiment.method.extras.model_dump(exclude_defaults=True)
    settings: dict[str, Any] = {"dropout": model.dropout, "extras": extras}
    if experiment.data.classes is not None:
        settings["num_labels"] = experiment.data.classes
    folder = Path(model.path).expanduser() if model.path else None
    if folder is not None and (folder / "config.json").is_file():
        kind = json.loads((folder / "config.json").read_text()).get("model_type")
        if kind != OelmGPTConfig.model_type:
            raise BadInput(f"{experiment.id}: {folder} holds a {kind} model, not this project's GPT.")
        return OelmGPTConfig.from_pretrained(str(folder), **settings)
    if model.shape is None:
        raise BadInput(f"{experiment.id}: model.shape is missing and model.path is no folder with a config.json.")
    return OelmGPTConfig(**model.shape.model_dump(exclude={"vocab"}), vocab_size=model.shape.vocab, **settings)
