"""A classifier scored on examples: how they are put into batches, what it predicts for each, and its figures."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Experiment
from oelm_core.data import classification, packing
from oelm_core.data.classification import Examples
from oelm_core.runs.schema import Predictions
from oelm_core.training import evaluation
from oelm_core.training.distributed import Ranks
from oelm_core.training.evaluation import Evaluation, LargestBatch, TestText
from oelm_core.training.precision import Precision
from oelm_core.training.schedule import in_batches
from oelm_core.training.supervision import StopRequest

JOINED_TO_PAD = 8  # batches evaluated at once at the utmost when they are padded to their longest


class SentenceScorer:
    """Batches as train.batching says, packed where the model takes it, and scores at the largest batch that fits."""

    def __init__(self, experiment: Experiment, examples: Examples, model: nn.Module, padding: int) -> None:
        """examples: a few of them show whether the model takes packed rows."""
        train = experiment.train
        self.padding, self.max_length, self.classes = padding, experiment.data.max_length, experiment.data.classes or 0
        self.batching = train.batching
        self.note: str | None = None
        self.first_position = packing.first_position(model)
        if self.batching == "packed":
            why_not = packing.can_pack(model, examples, padding)
            if why_not:
                self.batching = "dynamic"
                self.note = f"train.batching packed: {why_not}; padding to each batch's longest instead"
        self.eval_batch = train.eval_batch_size or max(train.batch_size, 32)
        # Padded to the longest, a few neighbours in length may be joined, but not all of the set.
        most = JOINED_TO_PAD if self.batching == "dynamic" else None
        self.largest = LargestBatch(most=1 if train.eval_batch_size else most)

    def batch(self, examples: Examples, chosen: np.ndarray) -> packing.Batch:
        if self.batching == "packed":
            return packing.pack(examples, chosen, self.padding, self.first_position)
        length = self.max_length if self.batching == "padded" else None
        return packing.pad(examples, chosen, self.padding, length)

    def score(
        self, examples: Examples, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest
    ) -> tuple[dict[str, float], Predictions]:
        """Figures, and the predicted class of every example in the order of the file."""

        def forward(chosen: np.ndarray) -> Tensor:
            batch = self.batch(examples, chosen).to(ranks.device)
            with precision.autocast():
                scores = packing.logits(model, batch).float()
            losses = F.cross_entropy(scores, batch.labels, reduction="none")
            return torch.stack([scores.argmax(-1).double(), losses.double()])

        by_length = np.argsort(-examples.lengths, kind="stable")  # alike lengths together: less padding
        batches = in_batches(by_length, self.eval_batch)
        found, losses = np.empty((2, len(examples)))
        for chosen, (classes, each) in evaluation.forward_all(self.largest, batches, forward, ranks, stop):
            found[chosen], losses[chosen] = classes, each
        predictions = found.astype(np.int64)
        figures = evaluation.classification(examples.labels, predictions, losses, self.classes)
        return figures, Predictions(examples.labels.tolist(), predictions.tolist())

    def test_text(self, examples: Examples, source: str) -> TestText:
        def score(model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
            return Evaluation(*self.score(examples, model, ranks, precision, stop))

        return TestText(source, len(examples), classification.fingerprint([examples]), score)
