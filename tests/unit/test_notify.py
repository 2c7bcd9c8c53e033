"""A word when a run has ended: the user's command is told of the run, once, and its failure is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oelm_core import notify
from oelm_core.runs.folder import RunFolder
from oelm_core.settings import settings_file
from tests.run_factory import experiment, write_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "runs", experiment("a"), curve=[0.8, 0.9117]).folder


def settings(folder: RunFolder, text: str) -> None:
    settings_file(folder.path.parent.parent).write_text(text)


def test_the_command_hears_of_the_run_its_state_and_its_result_and_only_once(folder: RunFolder, tmp_path: Path) -> None:
    settings(folder, f'notify: echo "$OELM_RUN $OELM_STATE $OELM_RESULT" >> {tmp_path}/told\n')
    notice = notify.tell(folder)
    assert notice is not None
    assert notice.problem is None
    assert notify.tell(folder) is None
    assert (tmp_path / "told").read_text() == f"{folder.id} finished acc 91.17\n"
    assert notify.notice_of(folder) == notice


def test_without_settings_nothing_is_run_or_written(folder: RunFolder) -> None:
    before = sorted(folder.path.iterdir())
    assert notify.tell(folder) is None
    assert sorted(folder.path.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("notify: echo no such address >&2; exit 3", "exit code 3: no such address"),
        ("notify: no-such-program-here", "exit code 127"),
        ("notify: sleep 5", "did not answer"),
        ("notify: [a, b]", "should be a command"),
        ("mail: me", "the keys it may have are notify and report_to"),
        ("notify: 'open", "settings.yaml"),
    ],
)
def test_what_goes_wrong_is_kept_in_a_sentence(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr(notify, "SECONDS", 0.2 if "sleep" in text else 10.0)
    settings(folder, text)
    notice = notify.tell(folder)
    assert notice is not None
    assert words in (notice.problem or "")
    assert notify.notice_of(folder) == notice


def test_each_line_of_the_template_can_be_taken_as_it_stands(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder.path.parent.parent
    settings(folder, notify.TEMPLATE)
    assert notify.command_of(home) is None
    lines = [line[2:] for line in notify.TEMPLATE.splitlines() if line.startswith("# notify:")]
    assert len(lines) == 3
    for line in lines:
        settings(folder, line)
        command = notify.command_of(home)
        assert command == line.removeprefix("notify: ")
        assert subprocess.run(["sh", "-n", "-c", command]).returncode == 0
    monkeypatch.setenv("HOME", str(tmp_path))
    settings(folder, lines[0])
    assert notify.tell(folder) is not None
    assert f"{folder.id} finished acc 91.17" in (tmp_path / "oelm-ended.txt").read_text()
