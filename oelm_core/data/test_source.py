"""What `data.test` may say: a split, `held-out 0.1` of the training examples, or a path. Presets are read by it."""

from __future__ import annotations

import re
from pathlib import PurePath

SPLITS = ("test", "validation", "mismatched")
"""Splits that can be scored once training has ended."""
_HELD_OUT = re.compile(r"held-out[ :]+(\d*\.?\d+)")
_FILES = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet")


def held_out_share(test: str | None) -> float | None:
    """The share of the training examples that is kept for the test; None where it is something else.

    >>> held_out_share("held-out 0.1"), held_out_share("test")
    (0.1, None)
    """
    match = _HELD_OUT.fullmatch(test or "")
    return float(match[1]) if match else None


def is_path(test: str) -> bool:
    """A file or folder, told from a misspelt split by a slash, a dot at its start, or an ending we can read."""
    return "/" in test or test.startswith(("~", ".")) or PurePath(test).suffix.lower() in _FILES


def checked(test: str) -> str:
    """As it is kept, or a ValueError with one sentence."""
    test = test.strip()
    share = held_out_share(test)
    if share is not None:
        if not 0 < share < 1:
            raise ValueError(f"'{test}' keeps {share:g} of the training examples; the share lies between 0 and 1")
        return f"held-out {share:g}"
    if test in SPLITS or is_path(test):
        return test
    raise ValueError(
        f"'{test}' is neither a split ({', '.join(SPLITS)}) nor 'held-out 0.1' nor the path of a file or folder"
        " (./NAME for one that lies here)"
    )
