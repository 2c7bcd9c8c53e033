"""Any causal model of transformers: from scratch by its configuration, or pretrained by name or folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

from oelm_core.config import Experiment
from oelm_core.errors import BadInput, NotFound, first_line, one_line
from oelm_core.models.extras import attach_extras
from oelm_core.models.loss import linear_cross_entropy

_FEED_FORWARD = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
# How configurations of transformers call the share that dropout sets to zero.
_DROPOUT = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout", "dropout")


class Decoder(nn.Module):
    """A causal model as training asks for it (`LanguageModel`): the loss a chunk of logits at a time."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    @property
    def config(self) -> PretrainedConfig:
        found: PretrainedConfig = self.network.config
        return found

    def forward(
        self, input_ids: Tensor, shift_labels: Tensor | None = None, num_items_in_batch: int | None = None, **more: Any
    ) -> CausalLMOutputWithPast:
        """Loss of shift_labels `[B, T]`, the next tokens, summed and divided by num_items_in_batch; else logits."""
        if shift_labels is None:
            found: CausalLMOutputWithPast = self.network(input_ids=input_ids, **more)
            return found
        total: Any = self._losses(input_ids, shift_labels, "mean" if num_items_in_batch is None else "sum")
        return CausalLMOutputWithPast(loss=total if num_items_in_batch is None else total / num_items_in_batch)

    def token_losses(self, input_ids: Tensor, targets: Tensor) -> Tensor:
        return self._losses(input_ids, targets, "none").view_as(targets)

    def generate(self, inputs: Tensor, **settings: Any) -> Tensor:
        found: Tensor = self.network.generate(inputs, **settings)
        return found

    def _losses(self, input_ids: Tensor, targets: Tensor, reduction: str) -> Tensor:
        hidden = self.network.base_model(input_ids=input_ids, use_cache=False).last_hidden_state.flatten(0, 1)
        head = self.network.get_output_embeddings()
        weight = head.weight
        if head.bias is not None:  # as one more column, which a constant meets
            hidden, weight = F.pad(hidden, (0, 1), value=1.0), torch.cat([weight, head.bias.unsqueeze(1)], 1)
        return linear_cross_entropy(hidden, weight, targets.flatten(), reduction)


def build(experiment: Experiment, *, meta: bool) -> nn.Module:
    """The language model of an experiment; on the meta device from its sizes alone, without weights or network."""
    if experiment.data.classes is not None:
        raise BadInput(f"{experiment.id}: family decoder models text; for classes take family bert or gpt.")
    config = _config(experiment, meta=meta)
    if experiment.start == "scratch" or meta:
        network = AutoModelForCausalLM.from_config(config)
    else:
        network = _pretrained(experiment, config)
    network.float()  # a folder may ask for a half type; train.precision decides that here
    model = Decoder(network)
    attach_extras(network, experiment.method.extras)
    if not meta:
        _prove(model, experiment)
    return model


def _config(experiment: Experiment, *, meta: bool) -> PretrainedConfig:
    """That of the weights to be loaded, or of the folder model.path; else model.arch with the sizes of model.shape."""
    model = experiment.model
    folder = Path(model.path).expanduser() if model.path else None
    if (folder is not None and folder.is_dir()) or (experiment.start == "pretrained" and not meta):
        config = _found(lambda: AutoConfig.from_pretrained(model.path or model.name), experiment)
    elif model.shape is None:
        raise BadInput(f"{experiment.id}: model.shape is missing; {model.name} cannot be counted without it.")
    else:
        config = _sized(experiment)
    for name in _DROPOUT:
        if isinstance(getattr(config, name, None), float):
            setattr(config, name, model.dropout)
    return config


def _sized(experiment: Experiment) -> PretrainedConfig:
    shape = experiment.model.shape
    assert shape is not None
    sizes: dict[str, Any] = {
        "hidden_size": shape.d_model,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.d_model // shape.heads,
        **dict.fromkeys(_FEED_FORWARD, shape.d_ff),
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "tie_word_embeddings": True,
        **(experiment.model.config or {}),
    }
    try:
        config: PretrainedConfig = AutoConfig.for_model(experiment.arch, **sizes)
    except (StrictDataclassError, ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{experiment.id}: model.config: {one_line(' '.join(str(error).split()))}") from error
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):  # an architecture's own may lie past our vocabulary
        token = getattr(config, name, None)
        if isinstance(token, int) and token >= shape.vocab:
            setattr(config, name, None)
    return config


def _pretrained(experiment: Experiment, config: PretrainedConfig) -> Any:
    source = experiment.model.path or experiment.model.name
    return _found(lambda: AutoModelForCausalLM.from_pretrained(source, config=config), experiment)


def _found(load: Any, experiment: Experiment) -> Any:
    source = experiment.model.path or experiment.model.name
    try:
        return load()
    except (OSError, ValueError) as error:
        raise NotFound(
            f"{experiment.id}: model {source} could not be loaded ({first_line(error)}); "
            "write a hub name or a folder with config.json and weights as model.path."
        ) from error


@torch.no_grad()
def _prove(model: Decoder, experiment: Experiment) -> None:
    """Refuses a network whose logits are more than features times head (capped, scaled): our loss would be wrong."""
    was = model.training
    model.eval()
    tokens = torch.arange(1, 9).unsqueeze(0)
    logits = model.network(input_ids=tokens).logits.float()
    own = F.cross_entropy(logits[0, :-1], tokens[0, 1:], reduction="none")
    ours = model.token_losses(tokens[:, :-1], tokens[:, 1:])[0]
    model.train(was)
    capped = getattr(model.config, "final_logit_softcapping", None)  # small logits would not show it
    if capped or not torch.allclose(own, ours.float(), atol=1e-4, rtol=1e-4):
        kind = type(model.network).__name__
        raise BadInput(
            f"{experiment.id}: {kind} changes its logits after its head (caps or scales them); not supported."
        )
