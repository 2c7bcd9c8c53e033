"""Floating-point work of a training step by component: counted by torch, and by formula; both arms, and their ratio.

Counting runs on the meta device, where nothing is computed, so the full sizes cost nothing. Products are counted
dense (a causal half that a kernel skips is counted too), as every formula of this kind does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oelm_core.bench.sizes import Sizes

COMPONENTS = ("query", "key", "value", "output", "attention", "ffn", "head")
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


@dataclass(frozen=True)
class Work:
    """FLOPs of one step by component."""

    by_component: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.by_component.values())


def expected(sizes: Sizes, *, frozen: bool, classifier: bool = False) -> Work:
    """Forward once, backward twice: for the inputs, and for the weights unless they are frozen."""
    n, d, times = sizes.tokens, sizes.d_model, sizes.layers
    square = 2 * n * d * d * times
    qk = square * (2 if frozen else 3)
    products = 2 * (2 * n * sizes.length * d * times) * 3  # q k^T and p v; their backward has two products each
    # a classifier has pooler and two classes on one token of each sequence; a language model its vocabulary on all
    head = 3 * (2 * sizes.batch * d * (d + 2) if classifier else 2 * n * d * sizes.vocab)
    each = (qk, qk, square * 3, square * 3, products, 2 * 2 * n * d * sizes.d_ff * times * 3, head)
    return Work(dict(zip(COMPONENTS, each, strict=True)))


def ideal_ratio(sizes: Sizes, *, classifier: bool = False) -> float:
    """Work of the baseline over work with Q and K frozen: what freezing can bring at most, arithmetic only."""
    baseline, frozen = (expected(sizes, frozen=f, classifier=classifier).total for f in (False, True))
    return baseline / frozen


def layer_ratio(sizes: Sizes) -> float:
    """The same for one layer alone, without a head."""
    baseline, frozen = expected(sizes, frozen=False), expected(sizes, frozen=True)
    return (baseline.total - baseline.by_component["head"]) / (frozen.total - frozen.by_component["head"])


def counted(sizes: Sizes, *, frozen: bool, classifier: bool = False) -> Work:
    """What torch's counter sees in one step of our model."""
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    from oelm_core.bench.ours import freeze

    model, loss = _encoder(sizes) if classifier else _decoder(sizes)
    freeze(model, frozen)
    with FlopCounterMode(display=False) as counter:
        ledger = Ledger(counter.get_total_flops)
        for place, module in model.named_modules():
            component = _component(place)
            if isinstance(module, nn.Linear) and component is not None:
                ledger.watch(module, component)
        loss().backward()
        ledger.enter("attention")
    return Work(ledger.work)


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
        import torch

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


def _decoder(sizes: Sizes) -> tuple[Any, Any]:
    import torch

    from oelm_core.bench.ours import gpt_config
    from oelm_core.models.gpt import OelmGPTForCausalLM

    with torch.device("meta"):
        model = OelmGPTForCausalLM(gpt_config(sizes)).train()
        tokens = torch.zeros(sizes.batch, sizes.length, dtype=torch.int64)
    # Through the head itself: torch's counter does not look into its chunked loss, which does the same products.
    return model, lambda: model(input_ids=tokens).logits.mean()


def _encoder(sizes: Sizes) -> tuple[Any, Any]:
    import torch

    from oelm_core.bench.ours import bert_config
    from oelm_core.models.bert import from_config

    with torch.device("meta"):
        model = from_config(bert_config(sizes)).train()
        tokens = torch.zeros(sizes.batch, sizes.length, dtype=torch.int64)
        labels = torch.zeros(sizes.batch, dtype=torch.int64)
    return model, lambda: model(input_ids=tokens, labels=labels).loss


def count_both(sizes: dict[str, Any], classifier: bool) -> dict[str, dict[str, int]]:
    """Counted work of both arms by component."""
    return {
        name: counted(Sizes(**sizes), frozen=frozen, classifier=classifier).by_component
        for name, frozen in (("baseline", False), ("frozen", True))
    }


def saved_bytes(sizes: Sizes, *, biases: bool) -> dict[str, int]:
    """Bytes that frozen Q and K spare at every step in fp32: gradients, Adam's two moments, the all-reduce."""
    frozen = sizes.layers * 2 * (sizes.d_model**2 + (sizes.d_model if biases else 0))
    return {"gradients": 4 * frozen, "optimiser": 8 * frozen, "all-reduce": 4 * frozen}
