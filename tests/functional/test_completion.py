"""Tab in a shell: commands, runs, presets and studies are offered by the `oelm` that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oelm_tui.commands import completion
from tests.run_factory import experiment, write_run


def offered(words: str, home: Path) -> list[str]:
    """What bash would offer for the last of these words."""
    asked = {"_OELM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    code = "import sys; sys.argv[0] = 'oelm'; from oelm_tui.cli import main; main()"
    environment = {**os.environ, **asked, "OELM_HOME": str(home)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_is_offered_commands_and_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", experiment("rev-baseline"))
    assert offered("oelm pub", tmp_path) == ["publish"]
    assert offered("oelm logs rev", tmp_path) == [run.id]


def test_presets_studies_and_runs_are_offered_where_they_are_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    assert completion.runs("") == []
    run = write_run(tmp_path / "runs", experiment("demonstration"))
    assert completion.runs("@") == [("@last", "the newest run")]
    assert "GPT-02" in dict(completion.presets("gpt-0"))
    assert "demo" not in dict(completion.presets("demo"))
    assert list(dict(completion.studies_and_runs("demo"))) == ["demo", run.id]
    assert {"demo", "demo-gpt-oelm"} <= set(dict(completion.presets_and_studies("demo")))


def test_a_home_that_cannot_be_read_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").write_text("")
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    assert completion.runs("") == []
