"""Floating-point work of a training step by arithmetic: both arms by component, and what freezing can save at most.

Products are counted dense (a causal half that a kernel skips is counted too), as every formula of this kind does.
No torch in here: the launch form's estimate uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

COMPONENTS = ("query", "key", "value", "output", "attention", "ffn", "head")


@dataclass(frozen=True)
class StepSizes:
    """A decoder or encoder and its batch. The defaults are GPT Medium-512 under its recipe."""

    vocab: int = 50257
    d_model: int = 512
    layers: int = 6
    heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    batch: int = 8
    length: int = 512

    def but(self, **changes: Any) -> StepSizes:
        return replace(self, **changes)

    @property
    def tokens(self) -> int:
        return self.batch * self.length


def expected(sizes: StepSizes, *, frozen: bool, classifier: bool = False) -> dict[str, int]:
    """FLOPs by component: forward once, backward twice, for the inputs and for the weights unless they are frozen."""
    n, d, times = sizes.tokens, sizes.d_model, sizes.layers
    square = 2 * n * d * d * times
    qk = square * (2 if frozen else 3)
    products = 2 * (2 * n * sizes.length * d * times) * 3  # q k^T and p v; their backward has two products each
    # a classifier has pooler and two classes on one token of each sequence; a language model its vocabulary on all
    head = 3 * (2 * sizes.batch * d * (d + 2) if classifier else 2 * n * d * sizes.vocab)
    each = (qk, qk, square * 3, square * 3, products, 2 * 2 * n * d * sizes.d_ff * times * 3, head)
    return dict(zip(COMPONENTS, each, strict=True))


def ideal_ratio(sizes: StepSizes, *, classifier: bool = False) -> float:
    """Work of the baseline over work with Q and K frozen: what freezing can bring at most, arithmetic only."""
    baseline, frozen = (sum(expected(sizes, frozen=f, classifier=classifier).values()) for f in (False, True))
    return baseline / frozen
