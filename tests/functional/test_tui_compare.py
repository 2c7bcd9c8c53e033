"""Compare: the table, its pages and parts, the audit, export, copy and samples."""

from __future__ import annotations

import dataclasses
import json
import threading
from types import SimpleNamespace

import pytest

from oelm_tui.render.comparison import fairness_lines, result_lines
from oelm_tui.render.seed_curves import arm_curves, curve_caption
from oelm_tui.screens import compare as compare_screen
from oelm_tui.screens.compare import Compare
from oelm_tui.snapshots import comparing
from oelm_tui.widgets.lines import ScrollLines
from tests.functional.tui_lab import drive, press, run_id, said, settle, text_of, wait_until
from tests.golden.demo import demo_comparison
from tests.run_factory import experiment, write_run


async def compared(app, pilot) -> Compare:
    screen = app.screen
    assert isinstance(screen, Compare)
    await wait_until(pilot, lambda: screen.compared is not None)
    await settle(pilot)
    return screen


async def compare(app, pilot, preset: str = "sst2-oelm", number: int = 5) -> Compare:
    """Opens the comparison of a run with its baseline."""
    app.screen.runs_table.go_to(run_id(preset, number))
    await press(pilot, "c")
    return await compared(app, pilot)


def test_draws_of_a_tuning_are_compared_only_where_they_are_marked(tmp_path):
    tuning = {"tuning": {"id": "t-1", "role": "draw", "point": 1, "settings": []}}
    arm = experiment("arm")
    counted, draw = write_run(tmp_path, arm), write_run(tmp_path, arm, seed=41, number=1, run=tuning)
    views = [SimpleNamespace(id=run.id, run=run, is_live=False) for run in (counted, draw)]
    snapshot = SimpleNamespace(runs=views, catalogue=None)
    assert [page.runs for page in comparing.pages(snapshot, [], [])] == [(counted.id,)]
    assert [page.runs for page in comparing.pages(snapshot, ["arm"], [])] == [(counted.id,)]
    assert [page.runs for page in comparing.pages(snapshot, [], [draw.id])] == [(draw.id,)]


def test_the_selected_run_is_compared_with_its_baseline(lab):
    async def script(app, pilot):
        screen = await compare(app, pilot)
        text = text_of(app)
        assert "sst2-baseline" in text
        assert "91.17 %" in text
        assert "-1.72 pp" in text
        assert "worse" in text
        assert "unknown (one seed)" in text
        assert "? not decided" in text
        assert "To decide, or to learn how many seeds it takes: oelm run sst2-baseline" in text
        assert "confounds" in text
        assert "learning rate" in text.lower()
        await press(pilot, "right")
        await compared(app, pilot)
        assert "perplexity" in text_of(app)
        assert screen.group.dataset == "tinystories"
        await press(pilot, "v")
        assert "validation loss" in text_of(app)
        await press(pilot, "q")
        assert not isinstance(app.screen, Compare)

    drive(lab, script)


def test_the_answer_stands_on_top_in_the_colour_of_its_outcome(lab):
    async def script(app, pilot):
        screen = await compare(app, pilot)
        (text, role), *_ = screen.query_one("#results", ScrollLines).shown[0]
        assert text.startswith("? sst2-oelm: accuracy -1.72 pp with one seed, interval unknown; target not decided; ")
        assert role == "wait|bold"

    drive(lab, script, (200, 50))


def test_a_number_of_fewer_runs_than_its_column_says_so(tmp_path):
    comparison = demo_comparison(tmp_path)
    group = comparison.groups[0]
    arms = []
    for arm in group.arms:
        less = dataclasses.replace(arm.measures["memory"], n=1)
        arms.append(dataclasses.replace(arm, measures={**arm.measures, "memory": less}))
    lines = ["".join(text for text, _ in line) for line in result_lines(group, arms, 160)]
    memory = next(line for line in lines if line.startswith("peak memory"))
    assert memory.count("(1 of 2 runs)") == 3
    trainable = next(line for line in lines if line.startswith("trainable"))
    assert "runs)" not in trainable
    assert "±" not in trainable


def test_curves_are_the_mean_over_seeds_with_their_band(tmp_path):
    arm = demo_comparison(tmp_path).groups[0].arms[0]
    panel = arm_curves([arm], "accuracy")
    (curve,) = panel.curves
    one, other = (dict(found.points) for found in arm.curves["accuracy"])
    assert list(curve.ys) == pytest.approx([(one[step] + other[step]) / 2 for step in curve.xs])
    assert [list(side) for side in curve.band] == [[pick(one[s], other[s]) for s in curve.xs] for pick in (min, max)]
    assert curve_caption([arm], "accuracy", ["accuracy", "loss"], False).startswith("2 seeds: mean, least to greatest")


def test_an_error_of_ours_while_comparing_is_said_and_does_not_compute_for_ever(lab, monkeypatch):
    def explode(*_, **__):
        raise RuntimeError("made up")

    monkeypatch.setattr("oelm_core.compare.compare_runs", explode)

    async def script(app, pilot):
        await compare(app, pilot)
        assert "could not be computed: RuntimeError: made up" in text_of(app)

    drive(lab, script)


def test_export_writes_the_format_of_the_ending_and_copy_gives_markdown(lab, tmp_path):
    async def script(app, pilot):
        await compare(app, pilot)
        await press(pilot, "y")
        await wait_until(pilot, lambda: "Markdown copied" in said(app))
        assert "| sst2-oelm" in app.clipboard or "sst2-oelm" in app.clipboard
        await press(pilot, "e")
        app.screen.query_one("#file").value = str(tmp_path / "out.md")
        await press(pilot, "enter")
        await wait_until(pilot, lambda: (tmp_path / "out.md").exists())
        assert "sst2-oelm" in (tmp_path / "out.md").read_text()
        await press(pilot, "e")
        app.screen.query_one("#file").value = str(tmp_path / "out.json")
        await press(pilot, "enter")
        await wait_until(pilot, lambda: (tmp_path / "out.json").exists())
        assert json.loads((tmp_path / "out.json").read_text())["groups"]
        await press(pilot, "e")
        await pilot.click("#as-tex")
        assert app.screen.query_one("#file").value.endswith(".tex")
        app.screen.query_one("#file").value = "out.docx"
        await press(pilot, "enter")
        await wait_until(pilot, lambda: "end the name with one of" in said(app))
        assert app.screen.query_one("#file").value == "out.docx"  # still there, to be fixed

    drive(lab, script)


def test_one_page_of_comparison_has_nothing_to_turn_and_several_say_how(lab):
    async def script(app, pilot):
        await compare(app, pilot)
        assert "1/2" in text_of(app)
        for bar in (text_of(app).splitlines()[0], text_of(app).splitlines()[-1]):
            assert "← Previous" in bar
            assert "→ Next" in bar
        await press(pilot, "escape", "space", "up", "up", "space", "c")
        await compared(app, pilot)
        assert "Previous" not in text_of(app)

    drive(lab, script)


def test_a_finding_that_begins_with_a_run_keeps_its_id_as_it_is():
    finding = SimpleNamespace(grade="breaks", what="arm", why="demo-gpt-oelm-s42 is running", settle_with=None)
    group = SimpleNamespace(audit=[finding], pairs=[1], same=())
    assert [("  demo-gpt-oelm-s42 is running", "")] in fairness_lines(group, 80)


def test_samples_of_two_arms_stand_side_by_side(lab):
    async def script(app, pilot):
        await compare(app, pilot, "GPT-02", 2)
        await press(pilot, "t")
        await wait_until(pilot, lambda: text_of(app).count("named Lily") >= 2)
        await press(pilot, "escape")
        assert isinstance(app.screen, Compare)

    drive(lab, script)


def test_at_80x24_the_parts_of_a_comparison_become_tabs(lab):
    async def script(app, pilot):
        await compare(app, pilot)
        assert "[Result]" in text_of(app)
        await press(pilot, "tab")
        assert "validation accuracy" in text_of(app)
        await press(pilot, "tab")
        assert "confounds" in text_of(app)

    drive(lab, script, (80, 24))


def reached_by_keys(screen: Compare, part: str) -> bool:
    shown = screen.query_one(f"#{part}", ScrollLines)
    return shown.has_focus and shown.scroll_y + shown.size.height >= len(shown.shown)


@pytest.mark.parametrize(("size", "key"), [((80, 24), "pagedown"), ((100, 26), "end")])
def test_every_line_of_a_comparison_is_reached_by_keys(lab, size, key):
    async def script(app, pilot):
        screen = await compare(app, pilot)
        await press(pilot, *[key] * 4)
        assert reached_by_keys(screen, "results")
        await press(pilot, "tab", "tab", *[key] * 6)
        assert reached_by_keys(screen, "fairness")
        await press(pilot, "tab", *[key] * 4)
        assert reached_by_keys(screen, "results")

    drive(lab, script, size)


def test_keys_scroll_the_part_that_was_clicked_or_is_left_when_the_terminal_shrinks(lab):
    async def script(app, pilot):
        screen = await compare(app, pilot)
        await press(pilot, "tab", "tab")  # wide: Fairness has the focus, all parts are seen
        screen.query_one("#results").focus()
        await pilot.resize_terminal(80, 16)
        await settle(pilot)
        await press(pilot, "end")
        assert reached_by_keys(screen, screen._part)
        for place, part in ((2, "results"), (19, "fairness"), (2, "results")):
            await pilot.click("#compare-parts", offset=(place, 0))
            await settle(pilot)
            await press(pilot, "end")
            assert reached_by_keys(screen, part), part

    drive(lab, script)


def test_a_result_that_fits_is_shown_whole_and_leaves_the_rest_to_the_panes_below(lab):
    async def script(app, pilot):
        screen = await compare(app, pilot)
        results = screen.query_one("#results", ScrollLines)
        assert 0 <= results.size.height - len(results.shown) <= 1
        assert screen.query_one("#below").size.height == 50 - 2 - results.outer_size.height

    drive(lab, script, (200, 50))


def test_nothing_to_compare_is_said_in_words(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-03", 3))
        await press(pilot, "space", "c")
        await compared(app, pilot)
        assert "nothing to compare" in text_of(app)

    drive(lab, script)


def test_a_comparison_asked_for_before_the_presets_are_read_opens_when_they_are(lab):
    async def script(app, pilot):
        loaded = app.snapshot.catalogue
        app.sampler.catalogue = None
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: app.snapshot.catalogue is None)
        await pilot.press("c")
        await pilot.pause()
        assert not isinstance(app.screen, Compare)
        app.sampler.catalogue = loaded
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: isinstance(app.screen, Compare))

    drive(lab, script)


def test_a_mistake_of_ours_while_exporting_is_said(lab, monkeypatch):
    def broken(*_: object) -> str:
        raise RuntimeError("made up")

    monkeypatch.setattr("oelm_tui.screens.compare.render", broken)

    async def script(app, pilot):
        await compare(app, pilot)
        await press(pilot, "e", "enter")
        await wait_until(pilot, lambda: "this did not work: RuntimeError: made up" in said(app))

    drive(lab, script)


def test_while_it_is_computed_the_title_is_the_one_that_stays_and_no_curve_is_missed(lab, monkeypatch):
    asked = threading.Event()
    monkeypatch.setattr(compare_screen, "compare", lambda request: asked.wait(20) and comparing.compare(request))

    async def script(app, pilot):
        await pilot.press("c")
        await wait_until(pilot, lambda: text_of(app).count("computing") == 2)  # result and curves
        title = text_of(app).splitlines()[0].partition(" 2/2")[0]
        asked.set()
        await compared(app, pilot)
        assert text_of(app).splitlines()[0].startswith(title)
        await press(pilot, "e")
        assert app.screen.query_one("#file").value == "compare-TinyStories-gpt-medium-512.md"

    drive(lab, script)


def test_a_preset_that_never_ran_says_so_in_full_on_sixty_columns(lab):
    async def script(app, pilot):
        await press(pilot, "1")
        app.screen.turn_to_preset("arm/mnli-baseline")
        await press(pilot, "c")
        await wait_until(pilot, lambda: "none of it has run yet." in " ".join(text_of(app).split()))

    drive(lab, script, size=(60, 20))


def test_the_line_under_the_curves_says_what_is_shown_not_what_the_key_would_bring(lab):
    async def script(app, pilot):
        await compare(app, pilot)
        assert "v validation accuracy 1/" in text_of(app)
        assert "g linear" in text_of(app)

    drive(lab, script)
