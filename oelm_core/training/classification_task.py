"""Classification as the loop sees it: batches of sentences, cross-entropy over classes, accuracy and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Experiment
from oelm_core.data import packing
from oelm_core.data.classification import ClassificationData, Examples
from oelm_core.training import evaluation
from oelm_core.training.batches import Plan, share
from oelm_core.training.distributed import Ranks
from oelm_core.training.eval_batching import LargestBatch
from oelm_core.training.evaluation import Evaluation
from oelm_core.training.precision import Precision
from oelm_core.training.signals import Interrupted, StopRequest
from oelm_core.training.tasks import StepBatch

PROBED = 4  # texts whose attention is looked at
JOINED_TO_PAD = 8  # batches evaluated at once at the utmost when they are padded to their longest


class ClassificationTask:
    """Batches are packed, padded to their longest, or padded to data.max_length, as train.batching says."""

    def __init__(self, experiment: Experiment, data: ClassificationData, model: nn.Module, padding: int) -> None:
        self.experiment, self.data, self.padding = experiment, data, padding
        train = experiment.train
        self.plan = Plan(len(data.train), train.batch_size, train.accumulate, experiment.seed)
        self.batching = train.batching
        self.note: str | None = None
        self.first_position = packing.first_position(model)
        if self.batching == "packed":
            why_not = packing.can_pack(model, data.train, padding)
            if why_not:
                self.batching = "dynamic"
                self.note = f"train.batching packed: {why_not}; padding to each batch's longest instead"
        self.eval_batch = train.eval_batch_size or max(train.batch_size, 32)
        # Padded to the longest, a few neighbours in length may be joined, but not all of the set.
        most = JOINED_TO_PAD if self.batching == "dynamic" else None
        self.largest = LargestBatch(most=1 if train.eval_batch_size else most)

    def _batch(self, examples: Examples, chosen: np.ndarray) -> packing.Batch:
        if self.batching == "packed":
            return packing.pack(examples, chosen, self.padding, self.first_position)
        length = self.experiment.data.max_length if self.batching == "padded" else None
        return packing.pad(examples, chosen, self.padding, length)

    def load(self, step: int, ranks: Ranks) -> StepBatch:
        parts = []
        whole = self.plan.step(step)
        for chosen in self.plan.micro_batches(step):
            mine = share(chosen, ranks.rank, ranks.world)
            # A rank without examples still runs one, at no weight, so that every rank does the same collectives.
            batch = self._batch(self.data.train, mine if len(mine) else chosen[:1])
            weight = 1.0 if len(mine) else 0.0
            parts.append((batch.pin() if ranks.device.type == "cuda" else batch, weight))
        return StepBatch(parts, len(whole), len(whole), int(self.data.train.lengths[whole].sum()))

    def loss(self, model: nn.Module, part: Any, units: int) -> Tensor:
        batch, weight = part
        batch = batch.to(next(model.parameters()).device)
        scores = packing.logits(model, batch)
        return F.cross_entropy(scores.float(), batch.labels, reduction="sum") * (weight / units)

    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        values: dict[str, float] = {}
        details: dict[str, Any] = {}
        for number, (split, examples) in enumerate(self.data.validation.items()):
            predictions, losses = self._predict(model, examples, ranks, precision, stop)
            figures = evaluation.classification(examples.labels, predictions, losses, self.data.classes)
            pairs = {"labels": examples.labels.tolist(), "predictions": predictions.tolist()}
            if number == 0:
                values.update(figures)
                details.update(pairs)
            else:
                values.update({f"{split}_{name}": value for name, value in figures.items()})
                details[split] = pairs
        return Evaluation(values, "predictions", details)

    @torch.no_grad()
    def _predict(
        self, model: nn.Module, examples: Examples, ranks: Ranks, precision: Precision, stop: StopRequest
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predicted class and loss of every example, in the order of the file. Ranks share the batches out."""
        by_length = np.argsort(-examples.lengths, kind="stable")  # alike lengths together: less padding
        batches = [by_length[start : start + self.eval_batch] for start in range(0, len(by_length), self.eval_batch)]
        mine = batches[ranks.rank :: ranks.world]

        def forward(chosen: np.ndarray) -> Tensor:
            if stop.number and ranks.world == 1:
                raise Interrupted
            batch = self._batch(examples, chosen).to(ranks.device)
            with precision.autocast():
                return packing.logits(model, batch).float()

        scores = list(self.largest.over(mine, forward))
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for chosen, logits in scores:
            labels = torch.from_numpy(examples.labels[chosen]).to(logits.device)
            losses = F.cross_entropy(logits, labels, reduction="none")
            found.append((chosen, logits.argmax(-1).cpu().numpy(), losses.cpu().numpy()))
        predictions = np.empty(len(examples), np.int64)
        losses_of = np.empty(len(examples), np.float64)
        for part in ranks.gather(found):
            for chosen, predicted, losses in part:
                predictions[chosen] = predicted
                losses_of[chosen] = losses
        return predictions, losses_of

    def samples(self, model: nn.Module, step: int, precision: Precision) -> list[dict[str, str]]:
        return []

    def probe(self, model: nn.Module) -> tuple[dict[str, Tensor], Tensor | None]:
        examples = next(iter(self.data.validation.values()))
        batch = packing.pad(examples, np.arange(min(PROBED, len(examples))), self.padding)
        batch = batch.to(next(model.parameters()).device)
        inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask}
        if packing.segment_count(model) > 1:
            inputs["token_type_ids"] = batch.segments
        return inputs, batch.mask

    def describe(self) -> dict[str, Any]:
        counts = {split: len(examples) for split, examples in self.data.validation.items()}
        lengths = self.data.train.lengths
        return {
            "name": self.data.name,
            "fingerprint": self.data.fingerprint,
            "train_examples": len(self.data.train),
            "eval_examples": next(iter(counts.values())),
            "eval_splits": counts,
            "classes": self.data.classes,
            "tokens_mean": float(lengths.mean()),
            "tokens_max": int(lengths.max()),
            "at_max_length": self.data.at_max_length,
            "batching": self.batching,
        }
