"""Sizes of our GPT, as a transformers configuration."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


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

    def __init__(
        self,
        vocab_size: int = 50257,
        positions: int = 512,
        d_model: int = 512,
        layers: int = 6,
        heads: int = 8,
        key_heads: int | None = None,
        d_ff: int = 2048,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        extras: dict[str, Any] | None = None,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ) -> None:
        if d_model % heads:
            raise ValueError(f"d_model {d_model} cannot be split into {heads} equal heads")
        if heads % (key_heads or heads):
            raise ValueError(f"{heads} heads cannot share {key_heads} key heads equally")
        self.vocab_size = vocab_size
        self.positions = positions
        self.d_model = d_model
        self.layers = layers
        self.heads = heads
        self.key_heads = key_heads or heads
        self.d_ff = d_ff
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.extras = extras or {}
        super().__init__(**{"tie_word_embeddings": tie_word_embeddings, **kwargs})
