"""Terminals and pipes as they come: an encoding without our signs, closed streams, a reader that goes, a full disk."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

OELM = f"{shlex.quote(sys.executable)} -m oelm_tui"
ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def shell(lab: Path, line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    everything = {**os.environ, "OELM_HOME": str(lab), **environment}
    return subprocess.run(["bash", "-c", line], env=everything, capture_output=True, timeout=60)


@pytest.mark.parametrize("command", ["compare sst2", "presets", "gpus"])
def test_an_ascii_terminal_gets_ascii_and_no_error(lab, command):
    ended = shell(lab, f"{OELM} {command}", **ASCII)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(ended.stdout.decode("ascii").splitlines()) > 1
    if "compare" in command:
        assert b"accuracy ^" in ended.stdout


def test_what_others_read_keeps_every_sign_in_an_ascii_locale(lab):
    state = lab / "runs" / "mnli-oelm-s43-20260202-000006-0006" / "state.json"
    state.write_text(state.read_text().replace("asked for 2.1 GB", "要求 2.1 GB"))
    document = shell(lab, f"{OELM} export sst2 --lang zh", **ASCII)
    assert "判定" in document.stdout.decode("utf-8"), document.stderr
    listed = shell(lab, f"{OELM} runs --json", **ASCII)
    assert any("要求 2.1 GB" in (run["message"] or "") for run in json.loads(listed.stdout.decode("ascii")))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one(lab, closed):
    ended = shell(lab, f"{OELM} runs {closed}")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (b"XNLI-02" in ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_bare_command_without_any_stream_prints_help_to_nobody(lab):
    assert shell(lab, f"{OELM} <&- >&-").returncode == 0


@pytest.mark.parametrize("command", ["presets", "gpus"])
def test_a_reader_that_goes_away_ends_the_command_in_silence_as_it_ends_any_tool(lab, command):
    ended = shell(lab, f"{OELM} {command} | true; echo ${{PIPESTATUS[0]}}")
    assert ended.stderr == b""
    assert ended.stdout == b"141\n"


def test_a_reader_that_goes_away_leaves_no_run_unstarted(tmp_path):
    (tmp_path / ".oelm").mkdir()
    arms = "demo-gpt-baseline demo-gpt-oelm demo-gpt-random --device cpu --set train.max_steps=5"
    start = f"{OELM} run {arms} | true; echo ${{PIPESTATUS[0]}}"
    worker = str(Path(__file__).resolve().parents[1] / "stand_in_worker.py")
    ended = shell(tmp_path / ".oelm", start, OELM_WORKER=worker)
    assert (ended.stdout, ended.stderr) == (b"0\n", b"")
    assert len(list((tmp_path / ".oelm" / "runs").iterdir())) == 3


def test_output_that_finds_no_room_is_a_sentence(lab):
    ended = shell(lab, f"{OELM} runs >/dev/full")
    assert (ended.returncode, ended.stderr) == (4, b"oelm: cannot write: No space left on device.\n")


def test_a_question_nobody_can_answer_deletes_nothing(lab):
    ended = shell(lab, f"{OELM} delete XNLI-02 <&-")
    assert ended.returncode == 4
    assert (lab / "runs" / "XNLI-02-s42-20260202-000007-0007").is_dir()


def test_in_20_columns_a_table_still_has_its_figures(lab):
    ended = shell(lab, f"{OELM} compare sst2", COLUMNS="20", TERM="dumb")
    assert "92.89 %" in ended.stdout.decode()
    assert "\x1b" not in ended.stdout.decode()


def test_a_dumb_terminal_is_told_why_there_is_no_screen(lab):
    mine, theirs = pty.openpty()
    try:
        environment = {**os.environ, "OELM_HOME": str(lab), "TERM": "dumb"}
        command = [sys.executable, "-m", "oelm_tui"]
        ended = subprocess.run(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(theirs)
        os.close(mine)
    assert ended.returncode == 4
    assert b"TERM is 'dumb'" in ended.stderr
