"""The made-up lab that the screen's tests share: written once a module, copied for each test that may change it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.functional.tui_lab import write_lab  # imports the screen, which tests of commands do without

    return write_lab(tmp_path_factory.mktemp("lab") / ".oelm")


@pytest.fixture
def lab(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """OELM_HOME of one test, which also runs beside it. Questions may be answered as soon as they are drawn."""
    from oelm_tui.screens import considered

    monkeypatch.setattr(considered, "GRACE", 0.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OELM_HOME", str(tmp_path / ".oelm"))
    return Path(shutil.copytree(template, tmp_path / ".oelm"))
