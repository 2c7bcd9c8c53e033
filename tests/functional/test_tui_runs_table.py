"""The runs table: what tells runs apart, chosen columns, names, tags of several, and many runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.screen import Screen

from oelm_core.config import override
from oelm_core.runs.schema import Notes
from oelm_tui.render.run_rows import COLUMNS, loss_curve
from oelm_tui.settings import Settings
from oelm_tui.snapshots.columns import shape_of_loss
from oelm_tui.snapshots.sampler import LabSampler
from oelm_tui.text import LazyRows, Row
from oelm_tui.widgets.row_table import lay_out
from oelm_tui.widgets.runs_table import RunsTable
from tests.functional.tui_lab import catalogue, drive, press, run_id, sources, text_of, wait_until
from tests.run_factory import write_run


def notes_of(lab: Path, run: str) -> Notes:
    return msgspec.json.decode((lab / "runs" / run / Notes.FILE).read_bytes(), type=Notes)


@pytest.fixture
def swept(lab: Path) -> Path:
    """Two more runs of one preset that differ in a setting each, one of them perfect."""
    for number, (setting, score) in enumerate([("train.lr=3e-3", 1.0), ("method.scale=keep", 0.91)]):
        arm = override(catalogue().experiments["sst2-oelm"], [setting])
        write_run(lab / "runs", arm, number=20 + number, seed=50 + number, curve=[0.8, score])
    return lab


def test_what_a_run_changed_from_its_preset_is_a_column_and_can_be_searched(swept):
    async def script(app, pilot):
        await wait_until(pilot, lambda: "lr 3e-3" in text_of(app) and "scale keep" in text_of(app))
        await press(pilot, "slash", *"changed:3e-3", "enter")
        assert app.screen.runs_table.keys == [run_id("sst2-oelm", 20, 50)]

    drive(swept, script)


def test_at_200_columns_every_column_is_there_and_nothing_is_cut(swept):
    async def script(app, pilot):
        table = app.screen.runs_table
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: app.sampler.wants_losses and "▁" in text_of(app))
        shown = {column.key: width for column, width in table._layout}
        assert {"changed", "seed", "rate", "loss", "tags", "age"} <= set(shown)
        assert "acc 100.00 ↑" in text_of(app)
        for row in table.rows:
            cut = [key for key, width in row.widths.items() if key != "remark" and width > shown.get(key, width)]
            assert cut == [], row.key

    drive(swept, script, size=(200, 50))


def test_columns_take_what_they_need_before_the_rest_is_given_away():
    widths = {column.key: width for column, width in lay_out(COLUMNS, 140, {"preset": 9, "dev": 8, "metric": 13})}
    assert (widths["dev"], widths["metric"]) == (8, 13)
    assert not {"changed", "tags", "loss", "rate"} & set(widths)  # nothing in them


def test_chosen_columns_are_remembered(lab):
    async def script(app, pilot):
        await press(pilot, "O", "down", "space", "escape")
        assert "OELM-Freeze  " not in text_of(app).split("╭─ ▶")[0]

    drive(lab, script)
    kept = Settings.read(lab).columns
    assert kept is not None
    assert "method" not in kept
    assert "seed" in kept

    async def again(app, pilot):
        assert "method" not in [column.key for column in app.screen.runs_table.columns]

    drive(lab, again)


def test_a_run_gets_a_name_and_its_folder_keeps_its_own(lab):
    target = run_id("sst2-oelm", 5)

    async def script(app, pilot):
        app.screen.runs_table.go_to(target)
        await press(pilot, "n", *"best so far", "enter")
        await wait_until(pilot, lambda: "best so far sst2-oelm" in text_of(app))
        await press(pilot, "slash", *"so far", "enter")
        assert app.screen.runs_table.keys == [target]

    drive(lab, script, size=(200, 40))
    assert (lab / "runs" / target).is_dir()
    assert notes_of(lab, target).name == "best so far"


def test_marked_runs_are_tagged_together_and_keep_their_other_tags(lab):
    first, second = run_id("XNLI-02", 7), run_id("sst2-oelm", 5)

    async def script(app, pilot):
        table = app.screen.runs_table
        for key in (first, second):
            table.go_to(key)
            await press(pilot, "space")
        await press(pilot, "t", *"keep -paper", "enter")
        await wait_until(pilot, lambda: (lab / "runs" / second / Notes.FILE).exists())
        await wait_until(pilot, lambda: notes_of(lab, first).tags == ["keep"])

    drive(lab, script)
    assert notes_of(lab, second).tags == ["keep"]
    assert notes_of(lab, first).note == "go on after the deadline"


def test_the_filter_reads_no_file_on_the_screens_thread(lab):
    """A setting that the sampling thread has not read yet is unknown, not waited for."""
    view = LabSampler(sources(lab)).sample().runs[0]
    assert "config" not in view.run.__dict__
    assert view.get("lr") is None
    assert view.run.preset.lower() in view.text
    assert "config" not in view.run.__dict__


def test_rows_are_made_when_they_are_looked_at():
    made: list[int] = []

    def make(number: int) -> Row:
        made.append(number)
        return Row(str(number), {"a": str(number)})

    rows = LazyRows([str(number) for number in range(10_000)], make)
    assert len(rows) == 10_000
    assert [row.key for row in rows[9_998:]] == ["9998", "9999"]
    assert rows[-1].key == "9999"
    assert made == [9_998, 9_999, 9_999]


def test_a_loss_is_drawn_from_its_first_record_to_its_last(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"t":{n},"step":{n},"kind":"train","loss":{10 - n / 1000}}}\n' for n in range(5000)]
    path.write_text("".join(lines) + '{"t":1,"step":5001,"kind":"train","loss":NaN}\n')
    shape = shape_of_loss(path)
    assert len(shape) == 16
    assert shape[0] > 9.5
    assert shape[-1] < 5.5
    assert loss_curve(shape)[0] == "█"
    assert loss_curve(shape)[-1] == "▁"
    assert loss_curve(()) == ""
    assert shape_of_loss(tmp_path / "none") == ()


def test_a_letter_that_finds_the_same_runs_draws_none_of_them_and_lays_out_nothing(lab, monkeypatch):
    drawn, laid_out = [], []
    draw, arrange = RunsTable.render_line, Screen._refresh_layout
    monkeypatch.setattr(RunsTable, "render_line", lambda table, y: drawn.append(y) or draw(table, y))
    monkeypatch.setattr(Screen, "_refresh_layout", lambda *a, **k: laid_out.append(a) or arrange(*a, **k))

    async def script(app, pilot):
        await press(pilot, "slash", *"seed:4")
        assert len(app.screen.runs_table.keys) == 0
        drawn.clear()
        laid_out.clear()
        await press(pilot, *"999")
        assert app.screen.runs_table.query_text == "seed:4999"
        assert not drawn
        assert not laid_out

    drive(lab, script)
