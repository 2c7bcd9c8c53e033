"""Where a run is: everything a checkpoint remembers beside weights and moments, as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

REACH = (0.8, 0.9)


@dataclass
class Progress:
    """Carried from attempt to attempt. Seconds are training time over all attempts, without waiting between them."""

    step: int = 0
    tokens: int = 0
    """Tokens seen so far."""
    window: list[float] = field(default_factory=list)
    """Losses since the last train record, so that a record after a resume is the same number."""
    best: dict[str, Any] | None = None
    """{step, seconds, loss, ...} of the best evaluation."""
    last: dict[str, Any] | None = None
    """The same of the latest evaluation."""
    reached: dict[str, dict[str, float] | None] = field(default_factory=lambda: {str(r): None for r in REACH})
    eval_due: bool = False
    """A stop came during this step's evaluation; it is done first after a resume."""
    seconds: float = 0.0
    validation_seconds: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    epoch_began: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Progress:
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        return cls(**known)

    def note_reached(self, accuracy: float, step: int, seconds: float) -> None:
        for level in REACH:
            if accuracy >= level and self.reached[str(level)] is None:
                self.reached[str(level)] = {"step": step, "seconds": seconds}
