"""Logs: pages by position, harmless lines, truncation and rotation survived, search from the end."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oelm_tui.logs import reader as reader_module
from oelm_tui.logs import search as search_module
from oelm_tui.logs.clean import fold, pieces, plain
from oelm_tui.logs.reader import LogFile, tail_bytes
from oelm_tui.logs.search import Search, last_trouble


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "training.log"

    def write(content: bytes) -> LogFile:
        path.write_bytes(content)
        file = LogFile(path)
        file.refresh()
        return file

    return write


def shown(page) -> list[str]:
    return [line.shown.decode("utf-8", "replace") for line in page.lines]


def finish(search: Search) -> Search:
    while not search.done:
        search.step()
    return search


def test_a_log_opens_on_its_last_page(log):
    page = log(b"".join(b"line %d\n" % i for i in range(1000))).last_page(3)
    assert shown(page) == ["line 997", "line 998", "line 999"]
    assert page.at_end


def test_an_unfinished_last_line_is_shown_too(log):
    assert shown(log(b"one\ntwo").last_page(5)) == ["one", "two"]


def test_an_empty_and_a_missing_log_give_an_empty_page(log, tmp_path):
    assert log(b"").last_page(5).lines == ()
    missing = LogFile(tmp_path / "nowhere.log")
    assert missing.refresh() == "missing"
    assert missing.last_page(5).lines == ()


@settings(max_examples=80, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" ")), max_size=30), rows=st.integers(1, 9)
)
def test_paging_back_and_forth_shows_every_line_exactly_once(tmp_path_factory, lines, rows):
    path = tmp_path_factory.mktemp("log") / "log"
    lines = [line.replace(b"\n", b" ") for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    file = LogFile(path)
    original, reader_module.BLOCK = reader_module.BLOCK, 16  # lines cross blocks
    try:
        file.refresh()
        backwards: list[bytes] = []
        page = file.last_page(rows)
        while page.lines:
            backwards = [line.shown for line in page.lines] + backwards
            if page.top == 0:
                break
            page = reader_module.TextPage(tuple(file.lines_before(page.top, rows)), file.size, False)
        assert backwards == [fold(line) for line in lines]
        assert [line.shown for line in file.lines_from(0, 99)] == [fold(line) for line in lines]
    finally:
        reader_module.BLOCK = original


def test_scrolling_moves_by_lines_and_stops_at_both_ends(log):
    file = log(b"".join(b"%d\n" % i for i in range(100)))
    middle = file.page_from(file.last_page(5).top, 5, -10)
    assert shown(middle)[0] == "85"
    assert shown(file.page_from(middle.top, 5, 3))[0] == "88"
    assert shown(file.page_from(middle.top, 5, -1000))[0] == "0"
    assert shown(file.page_from(middle.top, 5, 1000))[-1] == "99"


def test_a_progress_bar_is_folded_to_its_last_state(log):
    bar = b"\r".join(b"%d%%|####" % i for i in range(101))
    assert shown(log(b"start\n" + bar + b"\nend\n").last_page(3)) == ["start", "100%|####", "end"]
    assert shown(log(bar + b"\r").last_page(3)) == ["100%|####"]


def test_a_line_of_many_megabytes_shows_its_beginning_and_says_how_much_is_missing(log):
    line = log(b"first\n" + b"x" * 3_000_000 + b"\nlast\n").last_page(3).lines[1]
    assert line.shown.startswith(b"xxx")
    assert line.left_out == 3_000_000 - reader_module.SHOWN


def test_growth_truncation_rotation_and_removal_are_noticed(log, tmp_path):
    file = log(b"a fairly long first line of the log\n")
    path = tmp_path / "training.log"
    with path.open("ab") as more:
        more.write(b"second\n")
    assert file.refresh() == "grown"
    assert shown(file.last_page(1)) == ["second"]
    assert file.refresh() == "same"
    path.write_bytes(b"cut\n")
    assert file.refresh() == "restarted"
    assert shown(file.last_page(9)) == ["cut"]
    os.rename(path, tmp_path / "training.log.1")
    path.write_bytes(b"rotated\n")
    assert file.refresh() == "restarted"
    assert shown(file.last_page(9)) == ["rotated"]
    path.unlink()
    assert file.refresh() == "restarted"
    assert file.last_page(9).lines == ()


def test_a_file_rewritten_to_the_same_length_is_noticed(log, tmp_path):
    file = log(b"aaaa\n")
    (tmp_path / "training.log").write_bytes(b"bbbb\n")
    assert file.refresh() == "restarted"
    assert shown(file.last_page(1)) == ["bbbb"]


def test_a_file_cut_while_a_page_is_read_gives_what_is_left(log, tmp_path):
    file = log(b"x\n" * 1000)
    os.truncate(tmp_path / "training.log", 4)
    assert len(file.last_page(5).lines) <= 5


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_control_character_ever_reaches_the_screen(line):
    text = "".join(part for part, _ in pieces(line))
    assert not [c for c in text if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or "\u202a" <= c <= "\u202e"]
    assert "".join(part for part, _ in pieces(line, ascii_only=True)).isascii()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[bold red]not markup[/]", "[bold red]not markup[/]"),
        (b"a\x00b", "a␀b"),
        (b"half \xe4\xbd", "half �"),
        (b"\x1b]0;title\x07after", "␛]0;title␇after"),
        (b"\x1b]52;c;aGVsbG8=\x07clipboard", "␛]52;c;aGVsbG8=␇clipboard"),
        (b"\x1b[2J\x1b[10;10Hmoved", "␛[2J␛[10;10Hmoved"),
        (b"secret failure\rok all good", "secret failure␍ok all good"),
        ("evil \u202etxt".encode(), "evil �txt"),
    ],
)
def test_hostile_lines_are_shown_and_not_obeyed(line, expected):
    assert plain(line) == expected


def test_colours_of_a_line_are_kept():
    assert pieces(b"\x1b[1;31mbad\x1b[0m fine \x1b[38;5;208mcolour\x1b[39m") == [
        ("bad", "bold red"),
        (" fine ", ""),
        ("colour", "color(208)"),
    ]


def test_search_counts_matching_lines_and_finds_the_nearest_either_way(log):
    file = log(b"".join(b"step %d %s\n" % (i, b"NaN loss" if i % 10 == 0 else b"ok") for i in range(100)))
    search = finish(Search(file, "nan"))
    assert search.count == 10
    assert file.lines_at([search.before(file.size)])[0].shown == b"step 90 NaN loss"
    assert file.lines_at([search.after(search.hits[0])])[0].shown == b"step 10 NaN loss"
    assert finish(Search(file, "nAn")).count == 0


def test_search_finds_the_same_lines_whatever_the_slices(log, monkeypatch):
    chance = random.Random(3)
    lines = [b"needle %d" % i if chance.random() < 0.2 else b"hay" * chance.randrange(9) for i in range(400)]
    file = log(b"\n".join(lines) + b"\n")
    whole = finish(Search(file, "needle")).hits
    monkeypatch.setattr(search_module, "SLICE", 64)
    assert finish(Search(file, "needle")).hits == whole
    assert len(whole) == sum(line.startswith(b"needle") for line in lines)


def test_search_goes_on_into_what_is_appended(log, tmp_path):
    file = log(b"hit\nno\n")
    search = finish(Search(file, "hit"))
    with (tmp_path / "training.log").open("ab") as more:
        more.write(b"another hit\n")
    file.refresh()
    assert finish(search).count == 2


def test_a_state_that_a_progress_bar_overwrote_is_no_hit_but_another_word_is(log):
    assert finish(Search(log(b"loss 2.0\rloss 1.0\n"), "2.0")).count == 0
    assert finish(Search(log(b"loss nan\rloss 1.0\n"), "nan")).count == 1


def test_trouble_is_found_at_the_traceback_and_not_at_a_later_mention(log):
    file = log(b"fine\nTraceback (most recent call last):\n  File x\nValueError: bad\nan Error again\n")
    assert last_trouble(file) == 5
    assert last_trouble(log(b"all is well\n")) is None


def test_a_log_is_written_byte_for_byte_where_that_is_asked_for(tmp_path):
    content = b"one\n\x1b]0;title\x07bar 1\rbar 2\n" + b"x" * (2 * reader_module.SHOWN) + b"\nno end"
    path = tmp_path / "training.log"
    path.write_bytes(content)
    assert b"".join(tail_bytes(path, 99, follow=False, ended=lambda: True)) == content
    assert b"".join(tail_bytes(path, 3, follow=False, ended=lambda: True)) == content[4:]
    assert b"".join(tail_bytes(path, 0, follow=False, ended=lambda: True)) == b""
    looks = iter([False, True])

    def ended() -> bool:
        with path.open("ab") as file:
            file.write(b", more")
        return next(looks, True)

    followed = b"".join(tail_bytes(path, 1, follow=True, ended=ended, pause=0))
    assert path.read_bytes().endswith(followed)
    assert followed.startswith(b"no end, more, more")
