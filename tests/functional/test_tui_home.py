"""The home screen: presets, runs, tabs, filter, marks, small terminals; everything by keyboard and by mouse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from oelm_tui.screens import home_panes
from tests.functional.tui_lab import NOW, change, drive, press, run_id, settle, text_of, wait_until

pytestmark = pytest.mark.usefixtures("_fixed_place")


@pytest.fixture
def lab(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / ".oelm"))


@pytest.fixture
def _fixed_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OELM_HOME", str(tmp_path / ".oelm"))


def test_the_lab_is_on_one_screen(lab):
    async def script(app, pilot):
        text = text_of(app)
        assert "2 running" in text
        assert "1 needs a look" in text
        assert "61.2k/100k" in text
        assert "ppl 5.041" in text
        assert "93.12" in text  # published beside our best
        assert "92.89" in text
        assert "validation perplexity" in text
        assert "GPT-01 (baseline)" in text
        assert "97%" in text
        assert "22.1/24G↑ 78°↑ user4" in text
        assert "l Launch" in text

    drive(lab, script)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (100, 24), (120, 26), (300, 100)])
def test_any_size_shows_runs_devices_and_keys(lab, size):
    async def script(app, pilot):
        text = text_of(app)
        assert "GPT-02" in text
        assert "97%" in text
        assert "? Help" in text

    drive(lab, script, size)


def test_resizing_at_any_moment_keeps_everything_alive(lab):
    async def script(app, pilot):
        for size in ((60, 20), (200, 50), (20, 5), (80, 24), (1, 1), (120, 36)):
            await pilot.resize_terminal(*size)
            await settle(pilot, 1)
        assert "GPT-02" in text_of(app)

    drive(lab, script)


def test_on_a_small_terminal_panes_become_tabs(lab):
    async def script(app, pilot):
        assert "[2 Runs]" in text_of(app)
        await press(pilot, "1")
        assert "[1 Presets]" in text_of(app)
        assert "SST-2" in text_of(app)
        await press(pilot, "3")
        assert "[Curves]" in text_of(app)
        assert "54m" in text_of(app)  # the headline stays
        await press(pilot, "4")
        assert "RTX A5000" in text_of(app)
        assert "free" in text_of(app)
        await press(pilot, "tab")
        assert "[1 Presets]" in text_of(app)

    drive(lab, script, (80, 24))


def test_a_run_started_elsewhere_appears_and_a_folder_that_vanishes_goes(lab):
    async def script(app, pilot):
        new = lab / "runs" / run_id("GPT-02", 99)
        shutil.copytree(lab / "runs" / run_id("GPT-02", 2), new)
        content = json.loads((new / "run.json").read_text())
        (new / "run.json").write_text(json.dumps({**content, "id": new.name, "created": NOW - 5}))
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert len(app.screen.runs_table.rows) == 8
        shutil.rmtree(new)
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert len(app.screen.runs_table.rows) == 7

    drive(lab, script)


def test_torn_json_gets_a_line_and_breaks_nothing(lab):
    (lab / "runs" / run_id("GPT-02", 2) / "state.json").write_text('{"state": "runn')
    (lab / "runs" / run_id("GPT-01", 1) / "run.json").write_text("{")

    async def script(app, pilot):
        assert len(app.screen.runs_table.rows) == 7
        assert "? GPT-01" in text_of(app)

    drive(lab, script)


def test_the_filter_narrows_as_one_types_and_escape_clears_it(lab):
    async def script(app, pilot):
        await press(pilot, "slash", *"state:running")
        assert {row.cells["preset"][0] for row in app.screen.runs_table.rows} == {"GPT-01", "GPT-02"}
        await press(pilot, "enter")
        assert "2 of 7" in text_of(app)
        await press(pilot, "escape")
        assert len(app.screen.runs_table.rows) == 7

    drive(lab, script)


def test_the_cursor_stays_with_its_run_when_the_order_changes(lab):
    async def script(app, pilot):
        table = app.screen.runs_table
        await press(pilot, "down", "down", "down")
        key = table.key
        await press(pilot, "o")
        await press(pilot, "o")
        assert table.key == key
        assert table.rows[table.cursor].key == key

    drive(lab, script)


def test_clicking_a_heading_sorts_and_clicking_a_row_selects(lab):
    async def script(app, pilot):
        table = app.screen.runs_table
        await pilot.click("#runs", offset=(6, 0))
        await settle(pilot)
        assert table.sorted_by == "preset"
        assert table.rows[0].cells["preset"][0] == "GPT-01"
        await pilot.click("#runs", offset=(6, 3))
        await settle(pilot)
        assert table.cursor == 2

    drive(lab, script)


def test_a_failed_run_opens_on_the_reason(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("mnli-oelm", 6, 43))
        await settle(pilot)
        text = text_of(app)
        assert "[Reason]" in text
        assert "failed: out of memory" in text
        assert "raise train.accumulate" in text
        await press(pilot, "3", "end")
        text = text_of(app)
        assert "CUDA out of memory. Tried to allocate" in text
        assert "markup]" in text  # no markup is obeyed

    drive(lab, script)


def test_every_tab_says_something(lab):
    async def script(app, pilot):
        seen = {}
        for _ in range(7):
            seen[app.screen.panel.tab] = text_of(app)
            await press(pilot, "right_square_bracket")
        assert "61199/100000" in seen["log"]
        assert "Different from baseline GPT-01" in seen["config"]
        assert "train.lr" in seen["config"]
        assert "ms" in seen["timing"]
        assert "named Lily" in seen["samples"]
        assert "device use" in seen["system"]
        assert "orthogonal heads" in seen["checks"]

    drive(lab, script, (120, 50))


def test_the_chart_keys_change_what_is_drawn(lab):
    async def script(app, pilot):
        assert "v overview" in text_of(app)
        await press(pilot, "v", "v")
        assert "v training loss" in text_of(app)
        await press(pilot, "x")
        assert "x time" in text_of(app)
        await press(pilot, "g")
        assert "g log" in text_of(app)
        assert "m smooth 0.97, raw pale" in text_of(app)  # what fits a thousand points
        await press(pilot, "m")
        assert "m raw" in text_of(app)
        await press(pilot, "m")
        assert "m smooth 0.6, raw pale" in text_of(app)
        await press(pilot, "b")
        assert "(baseline)" not in text_of(app)
        await press(pilot, "3", "left", "left", "plus")
        chart = app.screen.query_one("#chart")
        assert chart.view.window is not None
        assert chart.view.cursor is not None
        await press(pilot, "0")
        assert chart.view.window is None

    drive(lab, script)


def test_folding_the_tree_and_marking_several_presets(lab):
    async def script(app, pilot):
        tree = app.screen.tree_of_presets
        await press(pilot, "1", "home")
        before = len(tree.rows)
        await press(pilot, "left")
        assert len(tree.rows) < before
        await press(pilot, "right")
        assert len(tree.rows) == before
        assert tree.go_to("arm/sst2-baseline")
        await press(pilot, "space")
        tree.go_to("arm/sst2-oelm")
        await press(pilot, "space")
        assert tree.arms == ["sst2-baseline", "sst2-oelm"]

    drive(lab, script)


def test_with_no_runs_the_screen_opens_on_the_presets(tmp_path):
    async def script(app, pilot):
        assert app.screen.pane == "presets"
        assert "no runs yet" in text_of(app)

    drive(tmp_path / ".oelm", script)


def test_help_and_palette_come_from_the_registry(lab):
    async def script(app, pilot):
        await press(pilot, "question_mark")
        assert "Checkpoint and stop the run" in text_of(app)
        await press(pilot, "escape")
        await pilot.press("ctrl+p")
        await pilot.pause(0.1)
        await pilot.press(*"log scale")
        await pilot.pause(0.5)
        await pilot.press("enter", "enter")
        await settle(pilot)
        assert app.screen.query_one("#chart").view.log_y

    drive(lab, script)


def test_attention_is_raised_once_and_stays_until_seen(lab, monkeypatch):
    async def script(app, pilot):
        rung = []
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        run = next(view.run for view in app.snapshot.runs if view.run.preset == "GPT-01")
        change(run, state="failed", reason="nonfinite", message="non-finite loss at step 62100", ended=NOW - 1)
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert rung == [1]
        assert "2 need a look" in text_of(app)
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert rung == [1]
        app.screen.runs_table.go_to(run.id)
        await press(pilot, "a")
        for _ in range(100):
            if not app.snapshot.by_id[run.id].needs_a_look:
                break
            await pilot.pause(0.02)
        assert json.loads((run.folder.path / "notes.json").read_text())["seen"] == NOW
        change(run, state="failed", reason="oom", message="out of memory", ended=NOW + 60)  # resumed, failed again
        app.threads["lab"].ask(None)
        await settle(pilot)
        assert rung == [1, 1]

    drive(lab, script)


def test_a_run_that_fails_under_the_cursor_at_night_keeps_its_mark_until_somebody_turns_to_it(lab, monkeypatch):
    monkeypatch.setattr(home_panes, "DWELL", 0.05)

    async def script(app, pilot):
        run = app.screen.selected.run
        assert run.state == "running"
        change(run, state="failed", reason="oom", message="out of memory", ended=NOW - 1)
        app.threads["lab"].ask(None)
        await settle(pilot)  # it moves to another place in the table, and the cursor with it
        await pilot.pause(0.3)
        await settle(pilot)
        assert app.snapshot.by_id[run.id].needs_a_look
        assert not (run.folder.path / "notes.json").exists()
        assert "[Reason]" in text_of(app)
        await press(pilot, "3")
        for _ in range(100):
            if (run.folder.path / "notes.json").exists():
                break
            await pilot.pause(0.02)
        assert json.loads((run.folder.path / "notes.json").read_text())["seen"] == NOW

    drive(lab, script)


def test_a_theme_for_sixteen_colours_and_a_light_one_can_be_chosen(lab):
    async def script(app, pilot):
        names = []
        for _ in range(4):
            await press(pilot, "T")
            names.append(app.theme)
        assert names == ["oelm-light", "ansi-dark", "ansi-light", "oelm-dark"]

    drive(lab, script)


def test_two_thousand_runs_scroll_filter_and_keep_the_cursor(lab):
    from msgspec.structs import replace

    async def script(app, pilot):
        known = app.sampler.sources.runs()
        many = [replace(known[n % 7], id=f"{known[n % 7].preset}-{n}", seed=n) for n in range(2000)]
        app.sampler.sources.runs = lambda: many
        app.threads["lab"].ask(None)
        await settle(pilot)
        table = app.screen.runs_table
        assert len(table.rows) == 2000
        await press(pilot, "end")
        assert table.cursor == 1999
        await press(pilot, "pageup", "home")
        assert table.cursor == 0
        await press(pilot, "slash", *"seed>=1990")
        assert len(table.rows) == 10

    drive(lab, script)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)])
def test_no_word_of_the_tabs_config_and_devices_is_cut(lab, size):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("mnli-oelm", 6, 43))
        await press(pilot, "3")
        assert any(name in text_of(app) for name in (" Checks ", " Checks\n"))
        app.screen.panel.show_tab("config")
        await settle(pilot)
        folder = str(app.screen.selected.run.folder.path)
        assert "⚑ 1 needs a look" in text_of(app).splitlines()[0]
        rows = [line.split("│")[-2] if "│" in line else line for line in text_of(app).splitlines()]
        assert folder in "".join(row.strip() for row in rows).replace("folder", "").replace(" ", "")
        await press(pilot, "4")
        assert "22.1G of 24.0G" in text_of(app)

    drive(lab, script, size)


def test_only_a_baseline_is_faulted_for_weights_made_anew(lab):
    async def script(app, pilot):
        for arm, words in (("sst2-oelm", "Q/K at the start"), ("sst2-baseline", "untouched baseline")):
            number = {"sst2-oelm": 5, "sst2-baseline": 4}[arm]
            app.screen.runs_table.go_to(run_id(arm, number))
            await press(pilot, "3")
            app.screen.panel.show_tab("checks")
            await settle(pilot)
            assert words in text_of(app)
            assert "✗" not in "".join(line for line in text_of(app).splitlines() if "Q/K" in line)

    drive(lab, script)


def test_the_header_counts_every_run_whatever_its_state(lab):
    async def script(app, pilot):
        run = next(view.run for view in app.snapshot.runs if view.run.preset == "GPT-01")
        change(run, state="starting")
        app.threads["lab"].ask(None)
        await settle(pilot)
        first = text_of(app).splitlines()[0]
        counted = [int(number) for number in re.findall(r"(\d+) (?!need)[a-z]+", first.partition(" · ")[2])]
        assert "1 starting" in first
        assert "1 stopped" in first
        assert sum(counted) == len(app.snapshot.runs)

    drive(lab, script, (200, 50))


def test_without_colour_nothing_is_coloured_and_the_cursor_is_reversed(lab, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(app, pilot):
        styles = [segment.style for strip in app.screen._compositor.render_strips() for segment in strip]
        colours = [colour for style in styles if style for colour in (style.color, style.bgcolor) if colour]
        assert colours
        assert all(colour.is_default for colour in colours)
        assert any(style.reverse for style in styles if style)

    drive(lab, script)


def test_the_card_of_a_preset_is_shown_while_the_cursor_is_on_it(lab):
    async def script(app, pilot):
        home = app.screen
        await press(pilot, "1")
        home.tree_of_presets.go_to("arm/GPT-02")
        await settle(pilot)
        await wait_until(pilot, lambda: "82M; counted" in text_of(app))
        for words in ("What this arm is for", "3,145,728  7.0 %", "perplexity at most 1.05", "4.690"):
            assert words in text_of(app), words
        await press(pilot, "2")
        assert "What this arm is for" not in text_of(app)

    drive(lab, script, size=(160, 100))


@pytest.mark.parametrize("size", [(120, 36), (60, 20)])
def test_enter_opens_the_card_and_l_launches_from_it(lab, size):
    async def script(app, pilot):
        home = app.screen
        await press(pilot, "1")
        home.tree_of_presets.go_to("arm/sst2-oelm")
        await press(pilot, "enter")
        assert app.focused.id == "card"
        await press(pilot, "escape")
        assert app.focused.id == "presets"
        await press(pilot, "enter", "l")
        assert type(app.screen).__name__ == "Launch"
        assert app.screen.form().arms == ("sst2-oelm",)
        await press(pilot, "escape", "3")
        assert "Curves" in text_of(app)

    drive(lab, script, size=size)
