"""A language model scored on a text: the losses of its sequences, and of its documents, which cut it otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from oelm_core.config import Experiment
from oelm_core.data import language
from oelm_core.data.documents import Pieces, document_starts
from oelm_core.data.language import sequence_count, sequences
from oelm_core.runs.schema import DocumentLosses, Losses
from oelm_core.training import evaluation
from oelm_core.training.distributed import Ranks
from oelm_core.training.evaluation import Evaluation, LargestBatch, TestText
from oelm_core.training.precision import Precision
from oelm_core.training.schedule import in_batches
from oelm_core.training.supervision import StopRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

DECIMALS = 5  # of the losses that are kept: as precise as the float32 they are sums of, in half the characters


@dataclass(frozen=True)
class ScoredText:
    """Tokens that are predicted one after the other, and how sequences and documents cut them."""

    tokens: np.ndarray
    pieces: Pieces | None
    """None where the text does not say where its documents end."""


class TextScorer:
    """Scores texts in sequences of one length, at the largest batch that fits."""

    def __init__(self, experiment: Experiment) -> None:
        train = experiment.train
        self.length, self.batch = experiment.data.max_length, train.eval_batch_size or train.batch_size
        self.largest = LargestBatch(most=1 if train.eval_batch_size else None)

    def text(self, tokens: np.ndarray, end_token: int, tokenizer: PreTrainedTokenizerFast | None) -> ScoredText:
        starts = document_starts(tokens, end_token, tokenizer)
        return ScoredText(tokens, None if starts is None else Pieces.of(starts, len(tokens) - 1, self.length))

    def test_text(
        self, tokens: np.ndarray, end_token: int, tokenizer: PreTrainedTokenizerFast | None, source: str
    ) -> TestText:
        scored = self.text(tokens, end_token, tokenizer)
        sequences = math.ceil((len(tokens) - 1) / self.length)
        return TestText(source, sequences, language.fingerprint(tokens, end_token), partial(self.score, scored))

    @torch.no_grad()
    def score(
        self, scored: ScoredText, model: Any, ranks: Ranks, precision: Precision, stop: StopRequest
    ) -> Evaluation:
        """Every token but the first is predicted once; the last sequence may be short."""
        text, length, pieces = scored.tokens, self.length, scored.pieces
        whole = sequence_count(text, length)

        def forward(chosen: np.ndarray) -> Tensor:
            inputs, targets = map(torch.from_numpy, sequences(text, chosen, length))
            return _losses(model, inputs, targets, chosen, pieces, ranks.device, precision)

        batches = in_batches(np.arange(whole), self.batch)
        found = evaluation.forward_all(self.largest, batches, forward, ranks, stop)
        tokens = np.full(whole, length)
        rest = np.asarray(text[whole * length :], np.int64)
        if len(rest) > 1:
            inputs, targets = torch.from_numpy(rest[None, :-1]), torch.from_numpy(rest[None, 1:])
            last = _losses(model, inputs, targets, np.array([whole]), pieces, ranks.device, precision)
            found.append((np.array([whole]), last.cpu().numpy()))
            tokens = np.append(tokens, len(rest) - 1)
        sums, of_pieces = np.zeros(len(tokens)), np.zeros(len(pieces.starts) if pieces else 0)
        for chosen, losses in found:
            sums[chosen] = losses[: len(chosen)]
            if pieces:
                of_pieces[pieces.numbers(chosen)] = pieces.sums(chosen, losses[len(chosen) :])
        documents = None
        if pieces:
            of_documents, counts = pieces.by_document(of_pieces)
            documents = DocumentLosses(np.round(of_documents, DECIMALS).tolist(), counts.tolist())
        kept = Losses(np.round(sums, DECIMALS).tolist(), tokens.tolist(), documents=documents)
        return Evaluation(evaluation.language(sums, tokens), kept)


def _losses(
    model: Any,
    inputs: Tensor,
    targets: Tensor,
    chosen: np.ndarray,
    pieces: Pieces | None,
    device: torch.device,
    precision: Precision,
) -> Tensor:
    """Summed loss of each sequence `[B]`, then the running total of its row at the end of each of its pieces; float64.

    Where those ends are is known on the host, so nobody waits for the device.
    """
    with precision.autocast():
        losses: Tensor = model.token_losses(inputs.to(device), targets.to(device))
    losses = losses.double()
    sums = losses.sum(-1)
    if pieces is None:
        return sums
    rows, places = pieces.last_places(chosen)
    ends = torch.from_numpy(rows * losses.shape[1] + places)
    if device.type == "cuda":
        ends = ends.pin_memory().to(device, non_blocking=True)
    return torch.cat([sums, losses.cumsum(-1).take(ends)])
