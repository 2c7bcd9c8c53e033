"""One optimiser step, as every variant of a comparison does it: gradients, clipping, AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

CLIP = 1.0


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def adamw(model: nn.Module, kind: str) -> torch.optim.AdamW:
    """kind: fused, or default (what torch takes when nothing is said)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    more: dict[str, Any] = {} if kind == "default" else {kind: True}
    return torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, **more)


class Step:
    """A training step on a fixed batch. Calling it runs one; `about` says what the variant is made of."""

    def __init__(
        self, model: nn.Module, loss: Callable[[], Tensor], optimiser: str | None, about: dict[str, Any] | None = None
    ) -> None:
        self.model, self.loss = model, loss
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = adamw(model, optimiser) if optimiser else None
        if self.optimiser:
            self._make_moments(self.optimiser)
        self.about = {"trained": sum(p.numel() for p in self.trained), **(about or {})}

    def _make_moments(self, optimiser: torch.optim.Optimizer) -> None:
        """A step of zero gradients, so that the first real one holds as much memory as any other."""
        for parameter in self.trained:
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def __call__(self) -> None:
        self.loss().backward()
        if self.optimiser is None:
            for parameter in self.trained:
                parameter.grad = None
            return
        nn.utils.clip_grad_norm_(self.trained, CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


class Calls:
    """A variant that makes `steps` calls of a function; `keep` lives as long as it does."""

    def __init__(self, call: Callable[[], Any], steps: int = 1, keep: Any = None) -> None:
        self.call, self.steps, self.keep = call, steps, keep
        self.about: dict[str, Any] = {}

    def __call__(self) -> None:
        for _ in range(self.steps):
            self.call()


def token_batch(vocab: int, batch: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and next tokens `[batch, length]`, drawn once."""
    drawn = torch.randint(0, vocab, (batch, length + 1), generator=torch.Generator().manual_seed(seed)).to(device())
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
