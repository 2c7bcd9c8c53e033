"""What a family adds to the loop: the batches of a step, their loss, evaluation, samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from oelm_core.training.batches import Plan
from oelm_core.training.distributed import Ranks
from oelm_core.training.evaluation import Evaluation
from oelm_core.training.precision import Precision
from oelm_core.training.signals import StopRequest


@dataclass(frozen=True)
class StepBatch:
    """One optimiser step's data on one rank."""

    parts: list[Any]
    """One per forward pass; what they are is the task's business."""
    units: int
    """Examples or predicted tokens of the whole step, over all forward passes and ranks: the loss's denominator."""
    examples: int
    tokens: int
    """Real tokens of the whole step, padding not counted."""


class Task(Protocol):
    """One for classification, one for language modelling."""

    plan: Plan
    note: str | None
    """Something the reader of the log should know, such as packing that could not be used."""

    def load(self, step: int, ranks: Ranks) -> StepBatch:
        """The step's data in host memory: a pure function of the step. Runs in a background thread."""

    def loss(self, model: nn.Module, part: Any, units: int) -> Tensor:
        """Summed loss of a forward pass divided by the step's units."""

    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        """Figures over the whole validation set. Raises Interrupted when a stop is asked for."""

    def samples(self, model: nn.Module, step: int, precision: Precision) -> list[dict[str, str]]:
        """Generated texts `{prompt, text}`; empty for classifiers."""

    def probe(self, model: nn.Module) -> tuple[dict[str, Tensor], Tensor | None]:
        """A few validation texts, always the same, as the model's inputs; and which of their tokens are real."""

    def describe(self) -> dict[str, Any]:
        """`{name, fingerprint, train_examples, eval_examples, ...}` for result.json."""
