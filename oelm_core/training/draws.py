"""Every random draw of a step follows from (seed, step, rank), so a resumed step draws what the first one drew."""

from __future__ import annotations

import numpy as np
import torch


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """What a step's draws are seeded with."""
    return int(np.random.SeedSequence([seed & (2**63 - 1), step, rank, 0x0E1A]).generate_state(1, np.uint64)[0] >> 1)


def seed_draws(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for one device; its care for those not in use takes a millisecond of every step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
