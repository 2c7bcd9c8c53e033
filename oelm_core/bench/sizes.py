"""Sizes that variants of one comparison share: the network, the batch, dropout, threads."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """A decoder or encoder and its batch. The defaults are GPT Medium-512 under its recipe."""

    vocab: int = 50257
    d_model: int = 512
    layers: int = 6
    heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    batch: int = 8
    length: int = 512

    def but(self, **changes: Any) -> Sizes:
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shape(self, positions: int) -> dict[str, int]:
        """The network alone, as presets write it."""
        return {
            "layers": self.layers,
            "d_model": self.d_model,
            "heads": self.heads,
            "d_ff": self.d_ff,
            "vocab": self.vocab,
            "positions": positions,
        }

    @property
    def tokens(self) -> int:
        return self.batch * self.length


MEDIUM = Sizes()
SMALL = Sizes(vocab=202, d_model=128, layers=4, heads=4, d_ff=512, batch=16, length=128)  # about the demo's
TINY = Sizes(vocab=512, d_model=64, layers=2, heads=2, d_ff=128, batch=2, length=32)
BERT_BASE = Sizes(vocab=30522, d_model=768, layers=12, heads=12, d_ff=3072, batch=32, length=128)
TINY_BERT = Sizes(vocab=512, d_model=64, layers=2, heads=2, d_ff=128, batch=8, length=128)
