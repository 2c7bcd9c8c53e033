"""Floating-point work of a training step as torch counts it, by component: what the formulas are held against.

Counting runs on the meta device, where nothing is computed, so the full sizes cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oelm_core.bench.steps import network
from oelm_core.method.flops import COMPONENTS, StepSizes
from oelm_core.method.freezing import freeze_model_parameters

# A component by the module that holds it, as our GPT and transformers' encoders name them; looked up from the inside.
_PLACES = {
    "q_proj": "query",
    "query": "query",
    "k_proj": "key",
    "key": "key",
    "v_proj": "value",
    "value": "value",
    "o_proj": "output",
    "attention.output.dense": "output",
    "up": "ffn",
    "down": "ffn",
    "intermediate.dense": "ffn",
    "output.dense": "ffn",
    "pooler.dense": "head",
    "classifier": "head",
    "lm_head": "head",
}


def counted(sizes: StepSizes, *, frozen: bool, classifier: bool = False) -> dict[str, int]:
    """What torch's counter sees in one step of our model."""
    model, loss = _encoder(sizes) if classifier else _decoder(sizes)
    freeze_model_parameters(model, frozen)
    with FlopCounterMode(display=False) as counter:
        ledger = Ledger(counter.get_total_flops)
        for place, module in model.named_modules():
            component = _component(place)
            if isinstance(module, nn.Linear) and component is not None:
                ledger.watch(module, component)
        loss().backward()
        ledger.enter("attention")
    return ledger.work


class Ledger:
    """Writes a running total down to the component at work. Outside of every Linear these are attention's products.

    torch's own attribution by module goes wrong backwards where query, key and value share an input, so each Linear
    is set between two identities whose backward passes say when its own begins and ends.
    """

    def __init__(self, total: Callable[[], int]) -> None:
        self.work = dict.fromkeys(COMPONENTS, 0)
        self._total, self._seen, self._at = total, 0, "attention"

    def enter(self, component: str) -> None:
        now = self._total()
        self.work[self._at] += now - self._seen
        self._seen, self._at = now, component

    def watch(self, module: Any, component: str) -> None:
        ledger = self

        class Mark(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, here: str, back: str) -> Any:
                ctx.back = back
                ledger.enter(here)
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                ledger.enter(ctx.back)
                return grads[0], None, None

        module.register_forward_pre_hook(lambda _, args: (Mark.apply(args[0], component, "attention"),))
        module.register_forward_hook(lambda _, __, out: Mark.apply(out, "attention", component))


def _component(place: str) -> str | None:
    for count in (3, 2, 1):
        found = _PLACES.get(".".join(place.split(".")[-count:]))
        if found is not None:
            return found
    return None


def _decoder(sizes: StepSizes) -> tuple[Any, Callable[[], Tensor]]:
    with torch.device("meta"):
        model = network("gpt", sizes, "meta").train()
        tokens = torch.zeros(sizes.batch, sizes.length, dtype=torch.int64)
    # Through the head itself: torch's counter does not look into its chunked loss, which does the same products.
    return model, lambda: model(input_ids=tokens).logits.mean()


def _encoder(sizes: StepSizes) -> tuple[Any, Callable[[], Tensor]]:
    with torch.device("meta"):
        model = network("bert", sizes, "meta").train()
        tokens = torch.zeros(sizes.batch, sizes.length, dtype=torch.int64)
        labels = torch.zeros(sizes.batch, dtype=torch.int64)
    return model, lambda: model(input_ids=tokens, labels=labels).loss


def count_both(sizes: StepSizes, *, classifier: bool) -> dict[str, dict[str, int]]:
    """Counted work of both arms by component."""
    return {
        name: counted(sizes, frozen=frozen, classifier=classifier)
        for name, frozen in (("baseline", False), ("frozen", True))
    }
