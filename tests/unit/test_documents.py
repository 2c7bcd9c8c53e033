"""Losses by document: whatever the cuts of sequences and documents, each token's loss is counted where it belongs."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oelm_core.data.documents import Pieces, document_starts
from oelm_core.data.tokenizers import word_tokenizer
from oelm_core.training import evaluation
from oelm_core.training.distributed import Ranks
from oelm_core.training.precision import Precision
from oelm_core.training.supervision import StopRequest
from oelm_core.training.text_scores import TextScorer
from tests.run_factory import GPT, experiment

END = 0
CPU = Ranks(0, 1, torch.device("cpu"))
PLAIN = Precision("fp32", CPU.device)


class TokenModel(torch.nn.Module):
    """A language model whose loss of a token depends on that token and the one before."""

    def token_losses(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (targets * 0.37 + inputs * 0.011 + 0.5).float()


def scorer_of(length: int, batch: int) -> TextScorer:
    settings = f"data.max_length={length}", f"train.eval_batch_size={batch}"
    return TextScorer(experiment("stories", GPT, *settings))


def by_hand(text: np.ndarray) -> tuple[list[float], list[int]]:
    """One token after the other: the end token belongs to the document it ends, the first token is never predicted."""
    losses, tokens = [0.0], [0]
    for before, token in pairwise(text.tolist()):
        if before == END and tokens[-1]:
            losses.append(0.0)
            tokens.append(0)
        losses[-1] += token * 0.37 + before * 0.011 + 0.5
        tokens[-1] += 1
    return losses, tokens


def score(text: np.ndarray, length: int, batch: int) -> evaluation.Evaluation:
    scorer = scorer_of(length, batch)
    return scorer.score(scorer.text(text, END, None), TokenModel(), CPU, PLAIN, StopRequest())


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(1, 17), st.integers(1, 4))
def test_documents_are_summed_as_a_plain_loop_over_tokens_sums_them(words: list[int], length: int, batch: int) -> None:
    text = np.array(words, np.uint16)
    kept = score(text, length, batch).details
    losses, tokens = by_hand(text)
    if len(tokens) < 2:
        assert kept.documents is None
        return
    assert kept.documents.tokens == tokens
    assert kept.documents.losses == pytest.approx(losses, abs=1e-4)
    assert sum(kept.documents.tokens) == sum(kept.tokens) == len(text) - 1
    assert sum(kept.documents.losses) == pytest.approx(sum(kept.losses), abs=1e-3)


def test_ranks_that_share_the_batches_find_the_same() -> None:
    text = np.random.default_rng(1).integers(0, 6, 400).astype(np.uint16)
    scorer = scorer_of(16, 2)
    scored = scorer.text(text, END, None)
    shares: list[list[object]] = []
    for rank in (0, 1):  # each does its half of the batches; then both have all
        one = SimpleNamespace(rank=rank, world=2, device=CPU.device, gather=lambda mine: shares.append(mine) or [mine])
        scorer.score(scored, TokenModel(), one, PLAIN, StopRequest())
    both = SimpleNamespace(rank=0, world=2, device=CPU.device, gather=lambda mine: shares)
    assert scorer.score(scored, TokenModel(), both, PLAIN, StopRequest()) == score(text, 16, 2)


def test_a_text_that_marks_no_end_has_no_documents() -> None:
    assert document_starts(np.array([3, 1, 2, 4]), END) is None
    assert document_starts(np.array([3, 1, 2, END]), END) is None  # one file, closed by the tokenizer
    assert document_starts(np.array([3, END, 2, 4]), END).tolist() == [0, 1]


def test_lines_of_wikitext_are_gathered_under_the_heading_of_their_article() -> None:
    lines = [
        "",
        "= first thing =",
        "",
        "it was a = b .",
        "= = part = =",
        "more",
        "= other =",
        "text",
        "= = = end = = =",
    ]
    tokenizer = word_tokenizer(" ".join(lines).split())
    end = tokenizer.eos_token_id
    encoded = [[*tokenizer(line, add_special_tokens=False).input_ids, end] for line in lines]
    text = np.array([token for line in encoded for token in line])
    starts = document_starts(text, end, tokenizer)
    second = sum(map(len, encoded[: lines.index("= other =")]))
    assert starts.tolist() == [0, second - 1]
    assert len(document_starts(text, end)) > 5  # without a tokenizer nobody knows what a heading is


def test_pieces_begin_with_every_sequence_and_every_document() -> None:
    pieces = Pieces.of(np.array([0, 3, 7]), predicted=10, length=4)
    assert pieces.starts.tolist() == [0, 3, 4, 7, 8]
    assert pieces.of_document.tolist() == [0, 1, 1, 2, 2]
    rows, places = pieces.last_places(np.array([1, 0]))
    assert (rows.tolist(), places.tolist()) == ([0, 0, 1, 1], [2, 3, 2, 3])
