"""How long processes of one run wait for each other: each wait with its default and the variable that changes it."""

from __future__ import annotations

import math
import os
from typing import NamedTuple


class Wait(NamedTuple):
    """Seconds, unless the variable says otherwise."""

    variable: str
    default: float

    def seconds(self) -> float:
        """What the variable says; the default where it says nothing that can be waited for."""
        try:
            said = float(os.environ.get(self.variable) or self.default)
        except ValueError:
            return self.default
        return said if math.isfinite(said) and said >= 0 else self.default


GRACE = Wait("OELM_GRACE", 120.0)
"""For a worker that was told to end, to save."""
RANK_GRACE = Wait("OELM_RANK_GRACE", 20.0)
"""For the other ranks, to leave once one has failed."""
RANK_SILENCE = Wait("OELM_RANK_TIMEOUT", 600.0)
"""For a rank that is silent, at its checkpoints too."""
