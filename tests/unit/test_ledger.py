"""The ledger: what it remembers, several writers at once, torn lines, and a chain that shows what was removed."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
from pathlib import Path

import pytest

from oelm_core import doctor
from oelm_core.runs import ledger
from oelm_core.runs.ledger import LedgerEnd, LedgerEvent, about_run, append, ledger_path, read_ledger
from oelm_core.runs.schema import RunRecord
from tests.run_factory import experiment, write_run


def write(root: Path, *runs: str) -> None:
    for run in runs:
        append(LedgerEvent(event="launched", run=run, preset="tiny"), root)


def names(root: Path) -> list[str | None]:
    return [event.run for event in read_ledger(root).events]


def test_lines_are_kept_in_order_with_when_and_by_whom(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c")
    found = read_ledger(tmp_path)
    assert [event.run for event in found.events] == ["a", "b", "c"]
    assert found.breaks == []
    assert all(event.when > 1e9 and "@" in event.who for event in found.events)
    assert [event.before == "" for event in found.events] == [True, False, False]


def test_it_stands_beside_the_folder_of_runs(tmp_path: Path) -> None:
    assert ledger_path(tmp_path / "runs") == tmp_path / "ledger.jsonl"
    assert read_ledger(tmp_path / "runs") == (tmp_path / "ledger.jsonl", [], [], [])


def _write_many(root: Path, name: str) -> None:
    write(root, *(f"{name}{number}" for number in range(12)))


def test_several_processes_write_at_once_and_the_chain_holds(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write_many, args=(tmp_path, name)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_ledger(tmp_path)
    assert sorted(event.run or "" for event in found.events) == sorted(f"{a}{n}" for a in "abcd" for n in range(12))
    assert found.breaks == []
    assert len({event.before for event in found.events}) == 48  # no two after the same line


def test_a_torn_last_line_is_left_and_the_next_stands_on_its_own(tmp_path: Path) -> None:
    write(tmp_path, "a")
    with open(tmp_path / "ledger.jsonl", "ab") as file:
        file.write(b'{"event": "launched", "ru')
    assert read_ledger(tmp_path).breaks == []
    write(tmp_path, "b")
    assert names(tmp_path) == ["a", "b"]
    assert read_ledger(tmp_path).breaks == []


def test_a_line_that_is_no_event_is_named_by_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    write(tmp_path / "runs", "a")
    with open(tmp_path / "ledger.jsonl", "ab") as file:
        file.write(b'{"event": [1]}\n{\n')
    (said, chain) = doctor._ledger()
    assert said.found.startswith("unreadable: ledger.jsonl, line 2, event: expected `str`, got `array`")
    assert said.found.endswith(", and 1 line more")
    assert chain.found.startswith("1 events")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda lines: lines[1:], "lines before line 1 were removed"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 2 was changed, or lines between it and line 3 were removed"),
        (lambda lines: [lines[0].replace(b"tiny", b"huge"), *lines[1:]], "line 1 was changed"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "line 1 was changed, or lines between it and line 2"),
        (lambda lines: lines[:-1], "line 3 was changed, or lines after it removed"),
        (lambda lines: [*lines[:3], lines[3].replace(b"tiny", b"huge")], "line 4 was changed, or lines after it"),
        (lambda lines: [], "the last line that was written is gone"),
    ],
)
def test_a_line_removed_or_changed_is_seen_and_where(tmp_path: Path, damage, sentence: str) -> None:
    write(tmp_path, "a", "b", "c", "d")
    path = tmp_path / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(damage(lines)))
    assert sentence in read_ledger(tmp_path).breaks[0]
    write(tmp_path, "e")  # writing on does not heal it
    assert read_ledger(tmp_path).breaks


def test_two_machines_without_locks_make_a_fork_and_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a", "b")
    path = tmp_path / "ledger.jsonl"
    before = path.read_bytes()
    write(tmp_path, "c")
    ours = path.read_bytes()[len(before) :]
    path.write_bytes(before)
    (tmp_path / "ledger.head").unlink()
    write(tmp_path, "d")
    path.write_bytes(path.read_bytes() + ours)
    assert names(tmp_path) == ["a", "b", "d", "c"]
    assert read_ledger(tmp_path).breaks == []


def test_a_lock_that_is_never_given_back_does_not_stop_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PATIENCE", 0.0)
    write(tmp_path, "a")
    with open(tmp_path / "ledger.jsonl") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(tmp_path, "b")
    assert names(tmp_path) == ["a", "b"]


def test_what_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ledger.os, "write", full)
    write(tmp_path, "a", "b")
    path = tmp_path / "ledger.jsonl"
    expected = f"oelm: {path} cannot be written (No space left on device): what is launched or deleted now is"
    assert capsys.readouterr().err == f"{expected} not counted.\n"


def test_an_event_of_a_run_keeps_what_is_needed_once_its_folder_is_gone(tmp_path: Path) -> None:
    run = write_run(tmp_path, experiment("tiny"), seed=7)
    record = run.folder.read(RunRecord)
    assert record is not None
    append(about_run("deleted", run.id, record, LedgerEnd("failed", "nonfinite", "accuracy", 0.9)), tmp_path)
    [event] = read_ledger(tmp_path).events
    assert (event.run, event.preset, event.seed, event.config_hash) == (run.id, "tiny", 7, run.config_hash)
    assert (event.state, event.reason, event.metric, event.value) == ("failed", "nonfinite", "accuracy", 0.9)
