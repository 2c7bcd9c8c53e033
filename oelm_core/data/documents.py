"""Where the documents of a packed text begin, and a language model's losses summed over each of them.

Sequences are cut from the packed stream, so one can hold several documents and a document can span several. Tokens of
one document are not independent, so tests of a difference must count documents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TITLE = re.compile(r"= [^=](.*[^=])? =")  # WikiText's heading of an article; those of its sections have more signs
_LONGEST_TITLE = 64  # tokens


@dataclass(frozen=True)
class Pieces:
    """A text cut wherever a sequence or a document begins. Its places are those of predicted tokens: 0 is token 1."""

    starts: np.ndarray  # int64 [pieces], ascending
    ends: np.ndarray  # int64 [pieces]
    of_document: np.ndarray  # int64 [pieces]
    first: np.ndarray  # int64 [sequences + 1]; the pieces of sequence i are first[i]:first[i + 1]
    length: int

    @classmethod
    def of(cls, documents: np.ndarray, predicted: int, length: int) -> Pieces:
        """documents: the place each begins at, 0 first. predicted: places in all, the last sequence may be short."""
        sequences = np.arange(0, predicted, length)
        starts = np.union1d(documents, sequences)
        return cls(
            starts,
            np.append(starts[1:], predicted),
            np.searchsorted(documents, starts, side="right") - 1,
            np.append(np.searchsorted(starts, sequences), len(starts)),
            length,
        )

    def last_places(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the chosen sequences' pieces, in order: its row among the chosen, and its last place in that row."""
        pieces = self.numbers(chosen)
        rows = np.repeat(np.arange(len(chosen)), self.first[chosen + 1] - self.first[chosen])
        return rows, (self.ends[pieces] - 1) - chosen[rows] * self.length

    def numbers(self, chosen: np.ndarray) -> np.ndarray:
        """The pieces of the chosen sequences, in order."""
        return np.concatenate([np.arange(self.first[i], self.first[i + 1]) for i in chosen])

    def sums(self, chosen: np.ndarray, running: np.ndarray) -> np.ndarray:
        """Losses of the chosen sequences' pieces from the running totals of their rows at `last_places`."""
        begins = np.isin(self.numbers(chosen), self.first[chosen])  # a row's first piece
        before = np.where(begins, 0.0, np.append(0.0, running[:-1]))
        return running - before

    def by_document(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(summed loss, predicted tokens) of each document, from the losses of all pieces."""
        tokens = np.bincount(self.of_document, weights=self.ends - self.starts)
        return np.bincount(self.of_document, weights=sums), tokens.astype(np.int64)


def document_starts(
    text: np.ndarray, end_token: int, tokenizer: PreTrainedTokenizerFast | None = None
) -> np.ndarray | None:
    """The places (of predicted tokens) at which documents begin, 0 first; None for a text that marks fewer than two.

    A document ends with its end token. Rows of WikiText are lines, so there its articles begin at their headings.
    """
    ends = np.flatnonzero(text == end_token)
    begins = np.append(0, ends + 1)
    begins = begins[begins < len(text)]
    titles = _titles(text, begins, ends, tokenizer) if tokenizer is not None else []
    if len(titles) > 1:
        begins = np.append(0, titles)
    # The first token of a text is never predicted; a document of that token alone has nothing to count.
    starts = np.unique(np.maximum(begins - 1, 0))
    starts = starts[starts < len(text) - 1]
    return starts if len(starts) > 1 else None


def _titles(text: np.ndarray, begins: np.ndarray, ends: np.ndarray, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Where lines begin that are the heading of an article. Only what starts with an equals sign is decoded."""
    firsts = np.asarray(text[begins])
    signs = [token for token in np.unique(firsts).tolist() if str(tokenizer.decode([token])).strip().startswith("=")]
    if not signs:
        return []
    found = []
    stops = np.append(ends, len(text))
    for begin in begins[np.isin(firsts, signs)].tolist():
        line = text[begin : stops[np.searchsorted(stops, begin)]]
        if len(line) <= _LONGEST_TITLE and _TITLE.fullmatch(str(tokenizer.decode(line.tolist())).strip()):
            found.append(begin)
    return found
