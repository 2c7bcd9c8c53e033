"""Where the lab lives: a name that no folder can have, or that the machine keeps us out of, is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oelm_core.doctor import examine
from oelm_core.errors import BadInput, LabError, Refused
from oelm_core.home import home
from oelm_tui import cli
from tests.in_process import oelm


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("a" * 300, "the name is too long"),
        ("/tmp/" + "a/" * 3000, "the name is too long"),
        ("~nobody-of-that-name/x", "the home of ~nobody-of-that-name is not known"),
        (__file__, "is not a folder"),
        (f"{__file__}/x", "a part of it is a file"),
    ],
)
def test_a_home_that_cannot_be_a_folder_is_bad_input(monkeypatch, capsys, named, sentence):
    monkeypatch.setenv("OELM_HOME", named)
    with pytest.raises(BadInput, match=sentence):
        home()
    for command in (["runs"], ["presets"], ["compare", "--all"]):
        monkeypatch.setattr("sys.argv", ["oelm", *command])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr().err
        assert (end.value.code, len(said.splitlines())) == (2, 1)
        assert len(said) < 300


def test_a_circle_of_links_is_refused(tmp_path, monkeypatch):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "circle"))
    with pytest.raises(Refused, match="cannot be used: Too many levels"):
        home()


def test_a_home_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and real(path, mode))  # root may all
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    with pytest.raises(Refused, match="you may not read it"):
        home()


def test_a_home_that_can_never_be_there_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o555)
    for named in ("/proc/1/nope", str(tmp_path / "a" / "b")):
        monkeypatch.setenv("OELM_HOME", named)
        with pytest.raises(Refused, match="cannot be made: you may not write in /"):
            home()


def test_doctor_says_of_a_bad_home_what_is_wrong_with_it(monkeypatch):
    monkeypatch.setenv("OELM_HOME", __file__)
    monkeypatch.setattr("oelm_core.doctor._torch", lambda: ())
    home_check = next(one for one in examine() if one.name == "home")
    assert (home_check.grade, home_check.found) == ("bad", f"OELM_HOME {__file__} is not a folder.")


def test_an_empty_list_names_the_home_and_the_state(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    assert oelm("runs").err.startswith(f"oelm: no runs in {tmp_path} yet. Start one with")
    assert oelm("runs", "--state", "failed").err == f"oelm: no run in {tmp_path} is failed.\n"


def test_a_home_that_is_not_there_yet_is_fine(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "later"))
    assert home() == tmp_path / "later"


def test_a_sentence_is_one_line_whatever_is_quoted_in_it():
    error = LabError("no preset 'a\nb\r\x1b[31m\u2028\ud800'.")
    assert str(error) == "no preset 'a\\nb\\r\\x1b[31m\\u2028\\ud800'."
    assert len(str(LabError("x" * 10**6))) < 2_100


def test_ctrl_c_exits_130(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oelm_core.launch.launcher.list_runs", interrupted)
    monkeypatch.setattr("sys.argv", ["oelm", "runs"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130


def test_ctrl_c_ends_watching_with_130_too(tmp_path, monkeypatch, capsys):
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr("oelm_tui.console.time.sleep", interrupted)
    monkeypatch.setattr("sys.argv", ["oelm", "runs", "--watch", "--json"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().out) == (130, "[]\n")
