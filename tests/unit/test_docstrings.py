"""Examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    f
    for room in ("oelm_core", "oelm_tui", "benchmarks")
    for f in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in f.read_text()
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_hold(file: Path) -> None:
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
