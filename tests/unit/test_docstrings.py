"""Examples in docstrings do what they say, and the pages name files that are there."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    f
    for room in ("oelm_core", "oelm_tui", "benchmarks")
    for f in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in f.read_text()
]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
EXAMPLES = {"oelm_core/models/toy.py"}  # what a page tells the reader to write


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_hold(file: Path) -> None:
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_files_that_are_there(page: Path) -> None:
    named = set(re.findall(r"\b(?:oelm_core|oelm_tui|benchmarks|tests)/[\w/]+\.py\b", page.read_text()))
    assert [path for path in sorted(named - EXAMPLES) if not (ROOT / path).is_file()] == []
