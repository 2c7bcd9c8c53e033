"""Every way in which a host waits for its card that we know of, done on purpose: what the counting must see."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.pretend_cuda.card import CARD, pretend_card
from tests.pretend_cuda.counting import Counting, HostMustKnow

WAYS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool((x > 0).all()),
    "float": lambda x: float(x[0, 0]),
    "tolist": lambda x: x[0].tolist(),
    "equal": lambda x: torch.equal(x, x),
    "cpu": lambda x: x.cpu(),
    "copy to the host": lambda x: torch.empty(4, 4).copy_(x),
    "blocking copy": lambda x: torch.ones(4, 4).pin_memory().to(CARD),
    "tensor on the card": lambda x: torch.tensor([1.0, 2.0], device=CARD),
    "copy that is not pinned": lambda x: torch.ones(4, 4).to(CARD, non_blocking=True),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "index by a mask": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "event": lambda x: torch.cuda.Event().synchronize(),
}
FREE: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x @ x + 1).softmax(-1).sum(),
    "pinned copy": lambda x: torch.ones(4, 4).pin_memory().to(CARD, non_blocking=True),
    "copy to the host behind the work": lambda x: x.to("cpu", non_blocking=True),
    "index by numbers": lambda x: x[torch.arange(2, device=CARD)],
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "backward": lambda x: (x.requires_grad_() * 2).sum().backward(),
    "record an event": lambda x: torch.cuda.Event(enable_timing=True).record(),
}
MIXED: dict[str, Callable[[Tensor], object]] = {
    "sum": lambda x: x + torch.ones(4, 4),
    "product": lambda x: x @ torch.ones(4, 4),
    "index": lambda x: torch.nn.functional.embedding(torch.zeros(2, dtype=torch.int64), x),
}


def seen(name: str) -> list[str]:
    """The host's waits in `free:...`, `wait:...` or `mixed:...`; of two devices in one function, torch's own words."""
    kind, _, what = name.partition(":")
    act = {"wait": WAYS, "free": FREE, "mixed": MIXED}[kind][what]
    counting = Counting()
    with pretend_card(waited=counting.waited), counting.fake:
        x = torch.empty(4, 4, device=CARD)
        with counting:
            try:
                act(x)
            except HostMustKnow:
                pass
            except RuntimeError as error:
                return [str(error)]
    return counting.host_waits
