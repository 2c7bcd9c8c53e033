"""The families and initialisers a preset can name, and what is known of each before torch is loaded.

A new family is an entry here and a module `oelm_core/models/<family>.py` with a function `build`. A new initialiser is
an entry here and its function in `oelm_core/method/initialisers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    name: str
    title: str
    """As people write it."""
    architectures: tuple[str, ...]
    """What `model.arch` can say; the first unless it does."""
    start: Literal["pretrained", "scratch"]
    """Where its weights come from unless `model.start` says."""
    language: bool
    """Models text unless `data.classes` makes it a classifier; other families always classify."""
    qk_bias: bool
    """Whether query and key have biases."""
    tokenizer: str | None = None
    """What a network without a tokenizer of its own reads text with."""


DECODERS = (
    *("gpt2", "llama", "qwen3", "qwen2", "mistral", "olmo2", "gemma"),
    *("gpt_neox", "opt", "gpt_bigcode", "phi", "phi3"),
)
"""Causal models as transformers names them, each tried; a folder may hold another."""

FAMILIES = {
    family.name: family
    for family in (
        Family("bert", "BERT", ("bert", "roberta"), start="pretrained", language=False, qk_bias=True),
        Family("gpt", "GPT", ("gpt",), start="scratch", language=True, qk_bias=False, tokenizer="gpt2"),
        Family("decoder", "Decoder", DECODERS, start="scratch", language=True, qk_bias=False, tokenizer="gpt2"),
    )
}


def architectures() -> list[str]:
    return [arch for family in FAMILIES.values() for arch in family.architectures]


def family_of(arch: str) -> Family:
    """The family that builds an architecture."""
    return next(family for family in FAMILIES.values() if arch in family.architectures)


def start_of(config: Mapping[str, Any]) -> str | None:
    """pretrained or scratch; None for a family we do not know."""
    family = FAMILIES.get(str(config.get("family")))
    return (config.get("model") or {}).get("start") or (family.start if family else None)


def models_language(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a language model rather than of a classifier."""
    family = FAMILIES.get(str(config.get("family")))
    return family is not None and family.language and (config.get("data") or {}).get("classes") is None


@dataclass(frozen=True)
class Initialiser:
    name: str
    orthonormal: bool = False
    """Its rows are orthonormal, so a numeric `scale` is their norm; else the standard deviation of an entry."""
    has_source: bool = False
    """Works on what `from` names, the weight it finds or a Gaussian; else on a Gaussian always."""
    per_head: bool = True
    """Head by head, or all rows of a weight at once."""


INITIALISERS = {
    initialiser.name: initialiser
    for initialiser in (
        Initialiser("none"),
        Initialiser("head-qr", orthonormal=True, has_source=True),
        Initialiser("polar", orthonormal=True, has_source=True),
        Initialiser("global-qr", orthonormal=True, has_source=True, per_head=False),
        Initialiser("gaussian"),
    )
}


def is_orthonormal(init: object) -> bool:
    """False too for what an imported run may hold instead of a name."""
    found = INITIALISERS.get(str(init))
    return found is not None and found.orthonormal


_METHODS = {"lora": "LoRA", "bitfit": "BitFit"}


def method_name(name: str) -> str:
    """A method as its author writes it.

    >>> method_name("oelm-freeze"), method_name("lora")
    ('OELM-Freeze', 'LoRA')
    """
    parts = ["OELM" if part == "oelm" else part.capitalize() for part in name.split("-")]
    return _METHODS.get(name) or "-".join(parts)
