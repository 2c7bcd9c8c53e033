"""The Curves tab: four charts at once, marked runs beside the selected one, checkpoints and let-go layers marked."""

from __future__ import annotations

import json

from oelm_core.runs.schema import UNFROZEN
from oelm_tui.widgets.curve_chart import CurveChart
from tests.functional.tui_lab import drive, press, run_id, settle, text_of, wait_until


def names(app) -> list[str]:
    return [curve.name for curve in app.screen.query_one(CurveChart).panels[0].curves]


def titles(app) -> list[str]:
    return [panel.y_name for panel in app.screen.query_one(CurveChart).panels]


async def select(app, pilot, run: str) -> None:
    app.screen.runs_table.go_to(run)
    await wait_until(pilot, lambda: app.screen.panel.detail is not None and app.screen.panel.detail.view.id == run)
    await settle(pilot)


def test_a_wide_terminal_shows_four_charts_and_v_goes_through_them_one_by_one(lab):
    four = ["training loss", "validation perplexity", "learning rate", "validation loss"]  # no gradient norm was kept

    async def script(app, pilot):
        await select(app, pilot, run_id("GPT-02", 2))
        assert titles(app) == four
        assert "v overview" in text_of(app)
        shown = []
        for _ in range(6):
            await press(pilot, "v")
            shown.append(titles(app))
        once = ["validation perplexity", "training loss", "validation loss", "learning rate", "step time (s)"]
        assert shown == [*([name] for name in once), four]
        await pilot.resize_terminal(80, 24)
        await press(pilot, "3")
        await settle(pilot)
        assert titles(app) == ["validation perplexity"]  # no room: the first

    drive(lab, script, (120, 40))


def test_curves_of_marked_runs_are_drawn_beside_and_go_with_their_marks(lab):
    async def script(app, pilot):
        await select(app, pilot, run_id("GPT-01", 1))
        await press(pilot, "space")
        await select(app, pilot, run_id("XNLI-02", 7))
        await press(pilot, "space")
        await select(app, pilot, run_id("GPT-02", 2))
        await wait_until(pilot, lambda: len(app.screen.panel.detail.others) == 2)
        await settle(pilot)
        assert names(app) == ["GPT-02", "GPT-01 (baseline)", "XNLI-02 (oelm-freeze)"]
        looks = [(curve.role, curve.mark) for curve in app.screen.query_one(CurveChart).panels[0].curves]
        assert len({mark for _, mark in looks}) == len({role for role, _ in looks}) == 3
        await press(pilot, "b")  # the baseline is marked too, so it stays
        assert names(app) == ["GPT-02", "GPT-01 (baseline)", "XNLI-02 (oelm-freeze)"]
        await press(pilot, "escape")
        await wait_until(pilot, lambda: len(app.screen.panel.detail.others) == 1)
        await settle(pilot)
        assert names(app) == ["GPT-02"]

    drive(lab, script, (120, 40))


def test_checkpoints_and_let_go_layers_stand_on_the_axis(lab):
    folder = lab / "runs" / run_id("sst2-oelm", 5)
    (folder / "checkpoints" / "step-300").mkdir()
    event = {"t": 0.0, "step": 200, "kind": "event", "what": UNFROZEN, "message": "layer 1 begins to train"}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")

    async def script(app, pilot):
        await select(app, pilot, run_id("sst2-oelm", 5))
        await press(pilot, "v")
        marks = [(mark.x, mark.sign, mark.through) for mark in app.screen.query_one(CurveChart).panels[0].marks]
        assert marks == [(300, "◇", False), (200, "┊", True)]
        assert "┊ layers let go  ◇ checkpoint" in text_of(app)

    drive(lab, script, (120, 40))
