"""Our GPT as transformers models: features, language model, classifier; saved, loaded and sampled like any other."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)

from oelm_core.models.cpu_dropout import Dropout
from oelm_core.models.extras import AttentionExtras
from oelm_core.models.gpt_config import OelmGPTConfig
from oelm_core.models.gpt_layers import Block
from oelm_core.models.initial import normal_, ones_, zeros_
from oelm_core.models.loss import IGNORED, linear_cross_entropy

# transformers 5 names the source of each tied weight; before, a list of the tied ones.
_FIVE = int(transformers_version.split(".")[0]) >= 5
_TIED: Any = {"lm_head.weight": "model.embed_tokens.weight"} if _FIVE else ["lm_head.weight"]


class OelmGPTPreTrainedModel(PreTrainedModel):
    config_class = OelmGPTConfig
    base_model_prefix = "model"
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_cache_class = True

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            normal_(module.weight, std=self.config.initializer_range)
            bias = getattr(module, "bias", None)
            if bias is not None:
                zeros_(bias)
        elif isinstance(module, nn.LayerNorm):
            ones_(module.weight)
            zeros_(module.bias)
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

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embed_tokens = value  # type: ignore[assignment]

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

    _tied_weights_keys = _TIED

    def __init__(self, config: OelmGPTConfig) -> None:
        super().__init__(config)
        self.model = OelmGPTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head = value

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
