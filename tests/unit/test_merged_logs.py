"""Several logs as one by time, numbers of lines counted beside the reading, errors anywhere in a file, emphasis."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oelm_tui.logs import line_numbers, search
from oelm_tui.logs.emphasis import emphasised
from oelm_tui.logs.line_numbers import LineNumbers
from oelm_tui.logs.merged import MergedLogs, MergedPage
from oelm_tui.logs.pager import LogAnswer, LogRequest, Pager
from oelm_tui.logs.reader import LogFile
from oelm_tui.text import windowed


def merged(folder: Path, *contents: str) -> MergedLogs:
    paths = [folder / f"{number}.log" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content)
    logs = MergedLogs(paths)
    logs.refresh()
    return logs


def shown(page: MergedPage) -> list[tuple[int, str]]:
    return [(line.source, line.shown.decode()) for line in page.lines]


def at(second: int, words: str) -> str:
    return f"2026-11-18 01:00:{second:02d} {words}\n"


ONE = at(1, "a") + at(3, "b") + "Traceback (most recent call last):\n  File x\nValueError: y\n" + at(9, "c")
TWO = at(2, "d") + at(3, "e") + at(5, "f")
IN_ORDER = [
    (0, "2026-11-18 01:00:01 a"),
    (1, "2026-11-18 01:00:02 d"),
    (0, "2026-11-18 01:00:03 b"),
    (0, "Traceback (most recent call last):"),
    (0, "  File x"),
    (0, "ValueError: y"),
    (1, "2026-11-18 01:00:03 e"),
    (1, "2026-11-18 01:00:05 f"),
    (0, "2026-11-18 01:00:09 c"),
]


def test_lines_of_several_logs_come_by_time_and_a_traceback_stays_with_its_line(tmp_path):
    logs = merged(tmp_path, ONE, TWO)
    assert shown(logs.page_from((), 99)) == IN_ORDER
    last = logs.last_page(4)
    assert shown(last) == IN_ORDER[-4:]
    assert last.at_end
    assert shown(logs.page_from(last.top, 4, -2)) == IN_ORDER[3:7]
    assert shown(logs.page_from((), 4, 3)) == IN_ORDER[3:7]
    assert not logs.page_from((), 4, 3).at_end


def test_a_line_of_one_log_is_found_among_the_others(tmp_path):
    logs = merged(tmp_path, ONE, TWO)
    for number, (source, text) in enumerate(IN_ORDER):
        start = (ONE, TWO)[source].index(text)
        assert shown(logs.page_from(logs.place_of(source, start), 1))[0] == IN_ORDER[number]


def test_a_log_without_times_stands_where_it_was_last_written(tmp_path):
    logs = merged(tmp_path, at(1, "a") + at(59, "b"), "no\ntimes\n")
    written = time.mktime((2026, 11, 18, 1, 0, 30, 0, 0, -1))
    os.utime(logs.paths[1], (written, written))
    logs.refresh()
    assert [source for source, _ in shown(logs.page_from((), 9))] == [0, 1, 1, 0]


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.lists(st.integers(0, 12), max_size=9).map(sorted), min_size=1, max_size=4),
    rows=st.integers(1, 5),
)
def test_going_back_shows_what_going_on_showed(tmp_path_factory, seconds, rows):
    folder = tmp_path_factory.mktemp("logs")
    contents = ["".join(at(second, f"{n} {i}") for i, second in enumerate(of)) for n, of in enumerate(seconds)]
    logs = merged(folder, *contents)
    total = sum(map(len, seconds))
    on = shown(logs.page_from((), total)) if total else []
    assert [text[:19] for _, text in on] == sorted(text[:19] for _, text in on)
    assert len(set(on)) == total
    back: list[tuple[int, str]] = []
    page = logs.last_page(rows)
    while page.lines:
        back = shown(page)[: total - len(back)] + back
        if not any(page.top):
            break
        page = logs.page_from(page.top, rows, -rows)
    assert back == on


def test_lines_are_numbered_when_somebody_has_counted_that_far(tmp_path, monkeypatch):
    monkeypatch.setattr(line_numbers, "SLICE", 32)
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1, 50)))
    log = LogFile(path)
    log.refresh()
    numbers = LineNumbers(log)
    assert numbers.at(0) == 1
    assert numbers.at(log.size - 8) is None
    while not numbers.done:
        numbers.step()
    assert all(numbers.at(line.start) == int(line.shown.split()[1]) for line in log.lines_from(0, 99))
    with path.open("ab") as more:
        more.write(b"line 50\n" * 9)
    log.refresh()
    while not numbers.done:
        numbers.step()
    assert numbers.at(log.size - 8) == 58


def answered(pager: Pager, request: LogRequest) -> LogAnswer:
    """The answer when there is no more to find out."""
    last = pager.answer(request)
    while (more := pager.answer(request)) is not None:
        last = more
    assert last is not None
    return last


def test_the_first_page_of_a_large_log_does_not_wait_for_the_count(tmp_path, monkeypatch):
    monkeypatch.setattr(line_numbers, "SLICE", 64)
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1, 1001)))
    pager, request = Pager(), LogRequest((path,), rows=2)
    first = pager.answer(request)
    assert first is not None
    assert first.numbers == (None, None)
    assert first.unfinished
    last = answered(pager, request)
    assert last.numbers == (999, 1000)
    assert not last.unfinished


def test_an_error_is_found_anywhere_in_the_file_and_then_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "WINDOW", 256)
    path = tmp_path / "log"
    lines = [f"step {n}" for n in range(500)]
    lines[3], lines[200] = "RuntimeError: old", "Traceback (most recent call last):"
    lines[201] = "ValueError: x"
    path.write_text("\n".join(lines) + "\n")
    pager, request = Pager(), LogRequest((path,), rows=5, goal="error", follow=False)
    newest = answered(pager, request)
    assert newest.focus == (0, "\n".join(lines).index("Traceback"))
    assert 201 in newest.numbers
    older = answered(pager, replace(request, origin=newest.focus))
    assert older.focus == (0, "\n".join(lines).index("RuntimeError"))
    none = answered(pager, replace(request, origin=older.focus))
    assert none.note == "no older error, looked at all of it"
    assert none.focus == older.focus


def test_a_traceback_that_begins_above_the_window_is_found_at_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "WINDOW", 64)
    path = tmp_path / "log"
    path.write_text("fine\nTraceback (most recent call last):\n" + "  File somewhere\n" * 20 + "ValueError: x\n")
    assert answered(Pager(), LogRequest((path,), goal="error", follow=False)).focus == (0, 5)


def test_hits_and_errors_of_several_logs_come_in_the_order_of_time(tmp_path):
    logs = merged(tmp_path, ONE, TWO + at(7, "Error: late"))
    pager = Pager()
    request = LogRequest(logs.paths, rows=3, goal="error", follow=False)
    newest = answered(pager, request)
    assert newest.focus == (1, len(TWO))
    assert answered(pager, replace(request, origin=newest.focus)).focus == (0, ONE.index("Traceback"))
    found = LogRequest(logs.paths, rows=9, text="01:00:0", only=True)
    assert [text[-1] for _, text in shown(answered(pager, found).page)] == ["a", "d", "b", "e", "f", "e", "c"]
    first = answered(pager, LogRequest(logs.paths, rows=3, text="01:00:03", goal="next", follow=False))
    assert first.focus == (0, ONE.index("2026-11-18 01:00:03"))
    second = answered(pager, replace(first.request, origin=first.focus))
    assert second.focus == (1, TWO.index("2026-11-18 01:00:03"))
    assert answered(pager, replace(first.request, origin=second.focus, goal="previous")).focus == first.focus


@pytest.mark.parametrize(
    ("line", "part", "role"),
    [
        ("2026-11-18 01:29:05 step 10/1000  loss 5.1560", "2026-11-18 01:29:05", "faint"),
        ("2026-11-18 01:29:05 step 10/1000  loss 5.1560", "10/1000", "arm0"),
        ("lr 5.4e-04", "5.4e-04", "arm0"),
        ("115,968 parameters", "115,968", "arm0"),
        ("ERROR it broke", "ERROR", "bad"),
        ("torch.OutOfMemoryError: CUDA", "OutOfMemoryError", "bad"),
        ("loss nan", "nan", "bad"),
        ("UserWarning: slow", "UserWarning", "wait"),
        ("INFO fine", "INFO", "key"),
        ("DEBUG x", "DEBUG", "other"),
    ],
)
def test_levels_numbers_and_times_stand_out(line, part, role):
    found = emphasised([(line, "")])
    assert (part, role) in found
    assert "".join(text for text, _ in found) == line


@pytest.mark.parametrize("line", ["layer4.weight sha256 abc123 v1.2.3", "a Terror of nanometres in Infiniband"])
def test_names_with_digits_or_words_inside_are_no_numbers_and_no_levels(line):
    assert {role for _, role in emphasised([(line, "")])} == {""}


def test_colours_of_the_logs_own_are_left_alone():
    assert emphasised([("ERROR 1", "bold red")]) == [("ERROR 1", "bold red")]


def test_a_window_on_a_line_counts_columns_and_cuts_no_wide_character():
    line = [("abc", "x"), ("中文字", "y"), ("def", "")]
    assert windowed(line, 1, 4) == [("bc", "x"), ("中", "y")]
    assert windowed(line, 4, 6) == [(" 文字", "y"), ("d", "")]
    assert windowed(line, 20, 5) == []
