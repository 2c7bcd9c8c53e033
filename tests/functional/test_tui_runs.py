"""Actions on runs: confirmed with what will happen, done in a thread, off in --readonly; the log view under attack."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest

from oelm_core.launch import local
from oelm_core.launch.slurm import cancel
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.store import read_run
from oelm_tui.app import write_crash
from oelm_tui.screens.run_commands import perform
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.widgets.log_view import LogView
from tests.functional.tui_lab import drive, press, run_id, said, settle, text_of, wait_until


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    made: list[tuple] = []
    monkeypatch.setattr(local, "stop", lambda run, now=False: made.append(("stop", run.id, now)))
    monkeypatch.setattr(local, "resume", lambda run, force=False, per_run=None: made.append(("resume", run.id)))
    monkeypatch.setattr(local, "delete", lambda run: made.append(("delete", run.id)))
    return made


def test_a_run_of_slurms_is_stopped_through_slurm(lab, calls, monkeypatch):
    monkeypatch.setattr(cancel, "stop", lambda run, now=False: calls.append(("scancel", run.id, now)))
    run = read_run(RunFolder(lab / "runs" / run_id("GPT-02", 2)))
    perform("stop", [RunView(msgspec.structs.replace(run, launcher="slurm"))], lambda words, bad: None)
    assert calls == [("scancel", run.id, False)]


@pytest.mark.parametrize(
    ("key", "letter", "run", "expected"),
    [
        ("s", "y", run_id("GPT-02", 2), ("stop", run_id("GPT-02", 2), False)),
        ("K", "K", run_id("GPT-02", 2), ("stop", run_id("GPT-02", 2), True)),
        ("r", "y", run_id("XNLI-02", 7), ("resume", run_id("XNLI-02", 7))),
        ("delete", "D", run_id("XNLI-02", 7), ("delete", run_id("XNLI-02", 7))),
    ],
)
def test_each_action_says_what_will_happen_and_waits_for_a_yes(lab, calls, key, letter, run, expected):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run)
        await press(pilot, key)
        assert run in text_of(app)
        await press(pilot, "escape")
        assert calls == []
        await press(pilot, key)
        await press(pilot, letter)
        await wait_until(pilot, lambda: calls == [expected])

    drive(lab, script)


@pytest.mark.parametrize(
    ("key", "run", "words"),
    [
        ("s", run_id("sst2-oelm", 5), "only live runs can be stopped"),
        ("r", run_id("GPT-02", 2), "cannot be resumed"),
        ("delete", run_id("GPT-02", 2), "stop it first"),
    ],
)
def test_an_action_that_does_not_apply_says_why(lab, calls, key, run, words):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run)
        await press(pilot, key)
        assert words in said(app)
        assert calls == []

    drive(lab, script)


def test_stop_applies_to_all_marked_runs_that_live(lab, calls):
    async def script(app, pilot):
        for row in list(app.screen.runs_table.rows):
            app.screen.runs_table.marked.add(row.key)
        await press(pilot, "s")
        assert "left alone" in text_of(app)
        await press(pilot, "y")
        await wait_until(pilot, lambda: len(calls) == 3)
        assert {call[1].split("-s")[0] for call in calls} == {"GPT-01", "GPT-02", "GPT-03"}

    drive(lab, script)


def test_readonly_changes_nothing(lab, calls):
    async def script(app, pilot):
        assert "read-only" in text_of(app)
        await press(pilot, "s", "r", "K", "t", "l", "a")
        assert len(app.screen_stack) == 2
        assert calls == []

    drive(lab, script, readonly=True)


def test_tags_and_note_are_written_beside_the_run(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("XNLI-02", 7))
        await press(pilot, "t", *" new", "tab", "end", "!", "enter")
        notes = lab / "runs" / run_id("XNLI-02", 7) / "notes.json"
        await wait_until(pilot, lambda: json.loads(notes.read_text())["tags"] == ["paper", "new"])
        assert json.loads(notes.read_text())["note"] == "go on after the deadline!"

    drive(lab, script)


def test_the_id_and_the_folder_are_copied_through_the_terminal(lab):
    async def script(app, pilot):
        await press(pilot, "y")
        assert app.clipboard == app.screen.runs_table.key
        await press(pilot, "p")
        assert app.clipboard == str(lab / "runs" / app.screen.runs_table.key)

    drive(lab, script)


HOSTILE = (
    b"[bold red]markup[/] stays text\n"
    b"\x1b[31mred\x1b[0m and \x1b[2Jno clearing \x1b]0;title\x07\n"
    b"half \xe4\xbd and NUL \x00 and a bar\nbar 10%\rbar 100%\n"
    b"Traceback (most recent call last):\nValueError: [link=x]bad[/link]\n"
    + "中文对齐\n".encode()
    + b"x" * 300_000
    + b"\nlast line\n"
)


def test_a_hostile_log_is_shown_and_not_obeyed(lab):
    (lab / "runs" / run_id("GPT-02", 2) / "training.log").write_bytes(HOSTILE)

    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, "f")
        text = text_of(app)
        assert "[bold red]markup[/] stays text" in text
        assert "red and ␛[2Jno clearing ␛]0;title␇" in text
        assert "bar 100%" in text
        assert "bar 10%" not in text
        assert "[link=x]bad[/link]" in text
        assert "中文对齐" in text
        assert "(293K in one line, its beginning) xxx" in text
        assert "last line" in text
        await press(pilot, "w")
        assert "last line" in text_of(app)

    drive(lab, script)


def test_the_log_searches_filters_and_finds_the_error(lab):
    log = lab / "runs" / run_id("GPT-02", 2) / "training.log"
    lines = [f"step {n} loss {'NaN' if n % 100 == 0 else '1.0'}" for n in range(1, 1001)]
    log.write_text(
        "\n".join([*lines[:500], "Traceback (most recent call last):", "ValueError: x", *lines[500:]]) + "\n"
    )

    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, "f", "slash", *"nan", "enter")
        assert "10 lines" in text_of(app)
        assert "step 1000 loss NaN" in text_of(app)
        await press(pilot, "N")
        assert "step 900 loss NaN" in text_of(app)
        await press(pilot, "n")
        assert "step 1000 loss NaN" in text_of(app)
        await press(pilot, "F")
        assert "step 100 loss NaN" in text_of(app)
        assert "loss 1.0" not in text_of(app)
        await press(pilot, "F", "E")
        assert "Traceback" in text_of(app)
        await press(pilot, "home")
        assert "step 1 loss" in text_of(app)
        await press(pilot, "pagedown", "up", "end")
        assert "following" in text_of(app)

    drive(lab, script)


def test_long_lines_say_that_there_is_more_and_scroll_sideways(lab):
    log = lab / "runs" / run_id("GPT-02", 2) / "training.log"
    log.write_text("short\n" + "".join(f"<{n}>" for n in range(100)) + "\n")

    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, "f")
        first = next(line for line in text_of(app).splitlines() if "<0>" in line)
        assert first.startswith(" 2 <0><1>")
        assert first.endswith("›")
        assert "columns 1-77 of 390 ›" in text_of(app)
        await press(pilot, "right")
        assert "‹" in next(line for line in text_of(app).splitlines() if "<15>" in line)
        assert " 1 ‹" in text_of(app)
        assert "columns 39-115 of 390 ‹›" in text_of(app)
        await press(pilot, *["right"] * 10)
        assert "<99>" in text_of(app)
        await press(pilot, *["left"] * 11)
        assert "<0>" in text_of(app)
        await press(pilot, "w")
        assert "<99>" in text_of(app)
        assert "columns" not in text_of(app)

    drive(lab, script, (80, 24))


def test_the_logs_of_marked_runs_are_one_by_time(lab):
    for name, number, seconds in (("GPT-01", 1, (1, 5)), ("GPT-02", 2, (3, 7))):
        log = lab / "runs" / run_id(name, number) / "training.log"
        log.write_text("".join(f"2026-02-02 10:00:0{second} step {second}\n" for second in seconds))

    async def script(app, pilot):
        for name, number in (("GPT-01", 1), ("GPT-02", 2)):
            app.screen.runs_table.go_to(run_id(name, number))
            await press(pilot, "space")
        await press(pilot, "f")
        text = text_of(app)
        assert "2 logs by time" in text
        lines = [line.split() for line in text.splitlines() if " step " in line]
        assert [(line[2], line[-1]) for line in lines] == [
            ("GPT-01", "1"),
            ("GPT-02", "3"),
            ("GPT-01", "5"),
            ("GPT-02", "7"),
        ]
        assert [line[0] for line in lines] == ["1", "1", "2", "2"]
        with (lab / "runs" / run_id("GPT-01", 1) / "training.log").open("a") as file:
            file.write("2026-02-02 10:00:09 a new line\n")
        await wait_until(pilot, lambda: "a new line" in text_of(app))

    drive(lab, script)


def test_a_log_that_grows_is_followed_and_a_cut_one_is_noticed(lab):
    log = lab / "runs" / run_id("GPT-02", 2) / "training.log"

    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, "f")
        with log.open("a") as file:
            file.write("a new line\n")
        await wait_until(pilot, lambda: "a new line" in text_of(app))
        log.write_text("cut\n")
        await wait_until(pilot, lambda: "the file was cut or replaced" in text_of(app))
        assert "a new line" not in text_of(app)
        log.unlink()
        await wait_until(pilot, lambda: "no log yet" in text_of(app))

    drive(lab, script)


def test_a_folder_that_vanishes_while_its_log_is_shown_breaks_nothing(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, "right_square_bracket")
        shutil.rmtree(lab / "runs" / run_id("GPT-02", 2))
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert app.screen.runs_table.key != run_id("GPT-02", 2)
        assert not app.screen.query_one(LogView).thread._last_error

    drive(lab, script)


def test_a_disk_that_hangs_stalls_the_sampler_and_not_the_screen(lab):
    import threading

    gate = threading.Event()

    async def script(app, pilot):
        real = app.sampler.sources.runs
        app.sampler.sources.runs = lambda: (gate.wait(20), real())[1]
        app.threads["lab"].ask(None)
        app._sampled_at -= 60
        app._watch_the_sampler()
        await pilot.press("down", "1", "down")
        await pilot.pause()
        assert app.screen.pane == "presets"
        assert "no update for 6" in text_of(app)
        gate.set()
        await settle(pilot)
        assert "no update" not in text_of(app)

    drive(lab, script)


def test_a_crash_leaves_its_traceback_in_a_file(lab):
    try:
        raise RuntimeError("a made-up crash")
    except RuntimeError as error:
        path = write_crash(error)
    assert path is not None
    assert "a made-up crash" in path.read_text()
