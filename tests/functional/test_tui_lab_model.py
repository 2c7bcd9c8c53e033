"""What the screen knows: snapshots, pace, stalls, columns that grow, details, the thread whose work never piles up."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from oelm_core.changes import differences
from oelm_core.config import override
from oelm_core.devices.card import Card, CardProcess, short_devices
from oelm_core.registry import method_name
from oelm_core.runs.folder import RunFolder, write_record
from oelm_core.runs.metrics_file import MetricsWriter
from oelm_core.runs.schema import MetricLine, Notes
from oelm_core.runs.store import read_run
from oelm_tui.actions import ACTIONS
from oelm_tui.glyphs import ASCII, bar, sparkline
from oelm_tui.render.device_strip import strip_lines
from oelm_tui.render.devices import device_text
from oelm_tui.render.preset_rows import recipes_of, tallies, tree_rows
from oelm_tui.render.reason import reason_lines
from oelm_tui.render.run_rows import COLUMNS, row_of
from oelm_tui.screens.explained import help_lines
from oelm_tui.settings import Settings
from oelm_tui.snapshots import columns as columns_module
from oelm_tui.snapshots.background import BackgroundThread
from oelm_tui.snapshots.cards import DeviceHistory, Machine, owner_of
from oelm_tui.snapshots.columns import Columns, ColumnsReader, MetricsTail
from oelm_tui.snapshots.detail import Detail, DetailReader, DetailRequest
from oelm_tui.snapshots.run_view import alarm_of, pace_of, view_of
from oelm_tui.snapshots.sampler import LabSampler, newest_runs, read_notes, write_notes
from oelm_tui.text import Column, Row, fit, width_of
from oelm_tui.widgets.row_table import lay_out, placed
from tests.functional.tui_lab import NOW, catalogue, change, run_id, sources, write_lab
from tests.functional.tui_lab import machine as lab_machine
from tests.run_factory import write_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lab(tmp_path_factory.mktemp("lab") / ".oelm")


def train(step: int, t: float, **values: float) -> MetricLine:
    return MetricLine(step, "train", t, {"loss": 1.0, **values})


@pytest.fixture
def running(lab):
    return next(run for run in sources(lab).runs() if run.preset == "GPT-02")


def test_the_pace_includes_evaluations_and_falls_back_to_the_step_time():
    assert pace_of([train(0, 100.0), train(50, 110.0), train(100, 120.0)]) == 5.0
    assert pace_of([train(10, 1.0, step_time=0.5)]) == 2.0
    assert pace_of([]) is None


def test_the_pause_before_a_resume_is_no_work():
    before = [train(10, 100.0), train(20, 101.0)]
    after = [train(30, 9000.0, step_time=0.1), train(40, 9001.0), train(50, 9002.0)]
    assert pace_of(before + after, since=8999.0) == 10.0
    assert pace_of(before + after[:1], since=8999.0) == 10.0  # by its own step time
    assert pace_of(before, since=8999.0) is None


def test_time_left_after_a_resume_is_that_of_the_present_attempt(running):
    resumed = msgspec.structs.replace(running, started=NOW - 5)
    lines = [train(10, NOW - 9000), train(61_100, NOW - 4), train(61_140, NOW)]
    assert view_of(resumed, lines, Notes(), NOW, NOW).left == pytest.approx((100_000 - 61_200) / 10)


def test_a_run_that_is_over_has_no_time_left_but_one_it_took(lab):
    views = {view.run.preset: view for view in LabSampler(sources(lab)).sample().runs}
    over, live = row_of(views["XNLI-02"], NOW), row_of(views["GPT-01"], NOW)
    assert over.cells["left"] == ""
    assert live.cells["left"] != ""
    assert live.cells["took"][0] == ""


def test_the_reason_speaks_of_a_traceback_only_where_one_is(lab):
    failed = next(v for v in LabSampler(sources(lab)).sample().runs if v.run.state == "failed")
    failed = replace(failed, run=msgspec.structs.replace(failed.run, reason="error"))

    def shown(*log: bytes) -> str:
        detail = Detail(failed, Columns(), trouble=log)
        return " ".join(text for line in reason_lines(detail, 70) for text, _ in line)

    assert "traceback" not in shown(b"step 10", b"died").lower()
    assert "After fixing the cause, resume." in shown(b"died")
    assert "The traceback below" in shown(b"Traceback (most recent call last):", b"ValueError")


def test_time_left_is_the_steps_left_at_the_present_pace(running):
    view = view_of(running, [train(60_200, NOW - 100), train(61_200, NOW)], Notes(), NOW, NOW)
    assert view.left == pytest.approx((100_000 - 61_200) / 10)


def test_a_run_stalls_after_five_times_its_usual_time_but_an_evaluation_is_no_stall(running):
    records = [train(step, NOW - 1000 + step) for step in range(0, 100, 10)]  # a record every 10 s
    assert alarm_of(running, records, NOW - 45, NOW) is None
    stalled = alarm_of(running, records, NOW - 51, NOW)
    assert stalled is not None
    assert stalled.kind == "stalled"
    quick = [train(step, NOW - 10 + step / 10) for step in range(0, 100, 10)]  # a record every second
    assert alarm_of(running, quick, NOW - 20, NOW) is None


def test_a_non_finite_loss_raises_an_alarm_with_its_step(running):
    alarm = alarm_of(running, [train(5, NOW, loss=math.nan)], NOW, NOW)
    assert alarm is not None
    assert alarm.words == "loss is nan at step 5"


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_non_finite_loss_in_the_file_raises_the_alarm_and_leaves_a_gap_in_the_curve(running, tmp_path, loss):
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    for step, value in ((4, 1.0), (5, loss), (6, 2.0)):
        writer.write("train", step, loss=value)
    writer.close()
    alarm = alarm_of(running, MetricsTail(path).read(), NOW, NOW)
    assert alarm is not None
    assert (alarm.kind, alarm.words) == ("nonfinite", "loss is nan at step 5")
    reader = ColumnsReader(path)
    reader.advance()
    assert list(reader.columns["train"].column("loss")) == pytest.approx([1.0, math.nan, 2.0], nan_ok=True)


def test_a_mark_stays_until_it_was_seen_and_comes_back_for_a_new_failure(lab):
    failed = next(run for run in sources(lab).runs() if run.state == "failed")
    view = view_of(failed, [], Notes(), 0, NOW)
    assert view.needs_a_look
    assert not replace(view, notes=Notes(seen=NOW)).needs_a_look
    again = view_of(msgspec.structs.replace(failed, ended=NOW + 10), [], Notes(seen=NOW), 0, NOW)
    assert again.needs_a_look


def test_a_trouble_that_passed_keeps_its_mark_until_seen(running):
    """A run that stalled over night and went on by itself still says so in the morning."""
    records = [train(step, NOW - 1000 + step) for step in range(0, 100, 10)]
    stalled = view_of(running, records, Notes(), NOW - 60, NOW)
    moving = view_of(running, records, Notes(), NOW, NOW, before=stalled.alarm)
    later = view_of(running, records, Notes(), NOW, NOW, before=moving.alarm)
    assert later.needs_a_look
    assert later.alarm is not None
    assert later.alarm.words == "earlier: no step for 60 s, usually 10.0 s"
    assert view_of(running, records, Notes(seen=NOW), NOW, NOW, before=later.alarm).alarm is None


def test_a_loss_that_stays_non_finite_is_one_trouble_and_not_a_new_one_with_each_record(running):
    first = view_of(running, [train(5, NOW, loss=math.nan)], Notes(), NOW, NOW)
    seen = Notes(seen=NOW + 1)
    next_one = view_of(running, [train(6, NOW + 5, loss=math.nan)], seen, NOW, NOW + 5, before=first.alarm)
    assert next_one.alarm is not None
    assert not next_one.needs_a_look


def test_notes_of_others_survive_ours(lab, running):
    write_record(running.folder.path / "notes.json", {"tags": ["a"], "someone_elses": 1})
    write_notes(running, note="ours")
    assert read_notes(running) == Notes(tags=["a"], note="ours", seen=0.0)
    assert json.loads((running.folder.path / "notes.json").read_text())["someone_elses"] == 1
    (running.folder.path / "notes.json").unlink()


def test_a_snapshot_survives_runs_that_cannot_be_listed(lab):
    def broken():
        raise OSError("the network is down")

    found = sources(lab)
    found.runs = broken
    snapshot = LabSampler(found).sample()
    assert snapshot.runs == ()
    assert snapshot.problem == "the network is down"


def test_finished_runs_are_not_read_again(lab, monkeypatch):
    sampler = LabSampler(sources(lab))
    first = sampler.sample()
    second = sampler.sample()
    over = run_id("sst2-oelm", 5)
    assert second.by_id[over] is first.by_id[over]


def test_the_baseline_beside_a_run_has_its_seed_if_there_is_one(lab):
    snapshot = LabSampler(sources(lab)).sample()
    beside = snapshot.baseline_of(snapshot.by_id[run_id("GPT-02", 2)])
    assert beside is not None
    assert beside.run.preset == "GPT-01"
    assert snapshot.baseline_of(beside) is None


# Columns


def write_metrics(path: Path, steps: range, mode: str = "w") -> None:
    with open(path, mode) as file:
        for step in steps:
            file.write(json.dumps({"t": step, "step": step, "kind": "train", "loss": step / 2}) + "\n")


def test_columns_grow_with_the_file_and_start_over_when_it_was_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_metrics(path, range(10))
    reader = ColumnsReader(path)
    assert reader.advance()
    write_metrics(path, range(10, 15), "a")
    assert reader.advance()
    assert list(reader.columns["train"].column("loss")) == [step / 2 for step in range(15)]
    assert not reader.advance()
    write_metrics(path, range(3))
    assert reader.advance()
    assert len(reader.columns["train"]) == 3


def test_a_large_file_is_skimmed_first_and_then_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(columns_module, "SKIM_FROM", 10_000)
    monkeypatch.setattr(columns_module, "SKIM_PIECES", 8)
    monkeypatch.setattr(columns_module, "SKIM_PIECE", 500)
    path = tmp_path / "metrics.jsonl"
    write_metrics(path, range(5000))
    reader = ColumnsReader(path)
    reader.advance()
    skimmed = list(reader.columns["train"].column("step"))
    assert 8 < len(skimmed) < 200
    assert skimmed[0] == 0
    assert skimmed[-1] > 4900
    assert reader.behind
    while reader.behind:
        reader.advance()
    assert list(reader.columns["train"].column("step")) == list(range(5000))
    assert reader.columns.share == 1


def test_a_key_that_appears_late_is_not_a_number_before(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"t":1,"step":1,"kind":"train"}\n{"t":2,"step":2,"kind":"train","lr":0.5}\nnot json\n{"x":1}\n')
    reader = ColumnsReader(path)
    reader.advance()
    first, second = reader.columns["train"].column("lr")
    assert math.isnan(first)
    assert second == 0.5


def test_tokens_of_an_evaluation_are_those_of_the_training_step_before_it(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = [
        {"t": 0, "step": 1, "kind": "train", "tokens": 100},
        {"t": 1, "step": 2, "kind": "train", "tokens": 200},
        {"t": 2, "step": 2, "kind": "eval", "loss": 1.0},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    reader = ColumnsReader(path)
    reader.advance()
    assert list(reader.columns.xs("eval", "tokens")) == [200]
    assert list(reader.columns.xs("eval", "time")) == [2]


def test_the_tail_keeps_the_newest_records_and_reads_only_what_is_new(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_metrics(path, range(2000))
    tail = MetricsTail(path, kept=10)
    assert [line.step for line in tail.read()] == list(range(1990, 2000))
    write_metrics(path, range(2000, 2003), "a")
    assert [line.step for line in tail.read()][-3:] == [2000, 2001, 2002]
    write_metrics(path, range(2))
    assert [line.step for line in tail.read()] == [0, 1]


def test_a_detail_is_told_once_and_again_when_a_file_changed(lab, running):
    reader = DetailReader()
    request = DetailRequest(view_of(running, [], Notes(), NOW, NOW))
    first = reader.read(request)
    assert first is not None
    assert len(first.samples) == 2
    assert reader.read(request) is None
    change(running, step=61_201)
    assert (
        reader.read(DetailRequest(view_of(read_run(RunFolder(running.folder.path)), [], Notes(), NOW, NOW))) is not None
    )


# Threads in the background


def test_a_thread_does_only_the_newest_of_what_was_asked_meanwhile():
    gate, began, done = threading.Event(), threading.Event(), threading.Event()
    worked: list[int] = []

    def work(number: int) -> int:
        worked.append(number)
        began.set()
        gate.wait(5)
        return number

    thread = BackgroundThread("test", work, lambda answer: done.set() if answer == 3 else None)
    thread.ask(1)
    assert began.wait(5)
    thread.ask(2)
    thread.ask(3)
    gate.set()
    assert done.wait(5)
    thread.close()
    assert worked == [1, 3]


def test_a_thread_continues_after_an_error_and_tells_it_once():
    told: list[str] = []
    answered = threading.Event()
    work = {0: 1 / 3}

    def divide(number: int) -> float | None:
        if number == 9:
            answered.set()
        return 1 / number if number != 9 else work[0]

    thread = BackgroundThread("test", divide, lambda _: None, 0.01, lambda error: told.append(str(error)))
    thread.ask(0)
    for _ in range(200):
        if told:
            break
        threading.Event().wait(0.01)
    threading.Event().wait(0.05)  # several rounds with the same error
    thread.ask(9)
    assert answered.wait(5)
    thread.close()
    assert told == ["division by zero"]


# Rows, cells, signs


def test_columns_are_dropped_in_their_order_and_the_rest_is_shared_out():
    columns = [Column("a", "", 5, keep=9), Column("b", "", 5, keep=1), Column("c", "", 5, keep=5, grow=True)]
    assert [(c.key, w) for c, w in lay_out(columns, 40, {"c": 8})] == [("a", 5), ("b", 5), ("c", 27)]
    assert [c.key for c, _ in lay_out(columns, 13, {"c": 8})] == ["a", "c"]
    assert [c.key for c, _ in lay_out(columns, 6, {"c": 8})] == ["a"]
    empty = lay_out(columns, 13, {})
    assert [(c.key, w) for c, w in empty] == [("a", 5), ("b", 5), ("c", 0)]  # nothing in c: it drives nobody out


def test_a_long_remark_that_finds_no_room_does_not_cost_seed_device_and_age_theirs():
    """At 120x36 the runs have 76 columns: with a preset of 18 letters and a remark, seeds must still be told apart."""
    natural = {"preset": 18, "remark": 40, "left": 6}
    shown = {column.key for column, _ in lay_out(COLUMNS, 74, natural)}
    assert {"state", "preset", "method", "seed", "step", "left", "metric", "flag"} <= shown
    short = {column.key for column, _ in lay_out(COLUMNS, 74, natural | {"preset": 9})}
    assert {"seed", "dev", "age"} <= short


def test_a_remark_without_a_column_goes_over_the_empty_cells_of_its_row():
    layout = [(Column("a", "", 4), 4), (Column("b", "", 6), 6), (Column("c", "", 8), 8), (Column("d", "", 1), 1)]
    empty = Row("x", {"a": "run", "why": "waits for card 2", "d": "!"}, spill="why")
    assert placed(empty, layout) == [("run", 4, False), ("waits for card 2", 15, False), ("!", 1, False)]
    full = Row("x", {"a": "run", "c": "acc 91.2", "why": "paper"}, spill="why")
    assert [cell for cell, _, _ in placed(full, layout)] == ["run", "", "acc 91.2", ""]
    own = [*layout, (Column("why", "", 5), 5)]
    assert len(placed(empty, own)) == len(own)


def test_chinese_text_is_cut_and_padded_by_what_it_takes_on_the_screen():
    assert sum(width_of(run) for run in fit("中文对齐测试", 7)) == 7
    assert sum(width_of(run) for run in fit("中文", 7)) == 7
    assert "".join(text for text, _ in fit("中文", 7, right=True)) == "   中文"


def test_a_preset_counts_with_the_mean_over_its_seeds_as_it_is_written(tmp_path):
    lab = write_lab(tmp_path)
    arm = catalogue().experiments["sst2-oelm"]
    write_run(lab / "runs", arm, seed=43, number=20, curve=[0.89])
    write_run(lab / "runs", arm, seed=43, number=21, curve=[0.93])  # newer: this is what seed 43 makes
    write_run(lab / "runs", override(arm, ["train.lr=0.5"]), seed=44, number=22, curve=[0.99])  # another recipe
    views = LabSampler(sources(lab)).sample().runs
    counted = tallies(views, recipes_of(catalogue()))
    assert counted["sst2-oelm"].by_seed == {42: pytest.approx(0.9117), 43: 0.93}
    assert counted["gpt-01"].live == 1
    rows = tree_rows(catalogue(), views, {"family/bert", "data/bert/sst2", "studies"})
    names = {row.key: row for row in rows}
    assert names["arm/sst2-oelm"].cells["mean"] == "92.08"
    assert names["arm/sst2-oelm"].cells["published"][0] == "91.28"


def test_differences_of_two_configurations_leave_out_stories():
    here = {"id": "a", "title": "x", "train": {"lr": 1, "clip": None}, "seed": 1}
    there = {"id": "b", "title": "y", "train": {"lr": 2, "clip": None}, "seed": 2}
    assert differences(here, there) == {"train.lr": (1, 2)}


def test_names_are_shown_as_the_author_writes_them():
    assert method_name("oelm-freeze") == "OELM-Freeze"
    assert method_name("lora") == "LoRA"
    assert short_devices(["cuda:2", "GPU-abcdef12"]) == "2,abcd"


def test_every_action_has_words_and_a_key_of_its_own_where_it_works():
    for where in {action.where for action in ACTIONS}:
        keys = [key for action in ACTIONS if action.where == where for key in action.keys.split(",")]
        assert len(keys) == len(set(keys)), f"two actions of {where} share a key"
    text = "\n".join("".join(part for part, _ in line) for line in help_lines(200))
    assert all(action.help in text for action in ACTIONS)


def test_bars_and_sparklines_are_as_wide_as_asked_even_for_the_unknown():
    assert bar(0.5, 8) == "████    "
    assert bar(None, 4) == "...."
    assert sparkline([0, 50, 100, math.nan], 6) == "   ▄█ "
    assert ASCII.state("running").isascii()


def test_a_suspect_card_is_shown_as_such_with_what_was_said_of_it():
    suspect = Card(index=0, uuid="GPU-0", memory_total=2**34, memory_used=0, suspect="GPT-01-s42: ECC error")
    assert owner_of(suspect) == ("suspect", "suspect")
    machine = Machine(replace(lab_machine().here, gpus=(suspect,)))
    shown = device_text(machine, DeviceHistory(), {}, 80).lines
    assert "suspect: GPT-01-s42: ECC error" in "\n".join("".join(part for part, _ in line) for line in shown)
    strip = strip_lines(machine, None, {}, 100, 1)
    assert "suspect" in "".join(part for part, _ in strip[0])


def test_a_lost_card_stays_in_the_list_with_its_error():
    lost = Card(index=0, error="GPU is lost")
    theirs = Card(index=1, processes=(CardProcess(7, 2**30, "user4", "python"),))
    ours = Card(index=2, lease="GPT-01-s42")
    assert [owner_of(card).kind for card in (lost, theirs, ours, Card(index=3))] == ["lost", "other", "ours", "free"]
    history = DeviceHistory()
    machine = Machine(replace(lab_machine().here, gpus=(lost, theirs, ours)))
    history.add(machine)
    text = "\n".join("".join(part for part, _ in line) for line in device_text(machine, history, {}, 80).lines)
    assert "GPU is lost" in text
    assert "user4" in text


def test_broken_settings_give_the_defaults(tmp_path):
    (tmp_path / "tui.json").write_text('{"theme": 3, "bell": "yes"}')
    assert Settings.read(tmp_path) == Settings()
    Settings("ansi-dark", False).write(tmp_path)
    assert Settings.read(tmp_path) == Settings("ansi-dark", False)


def test_of_many_runs_the_newest_come_first_and_the_rest_at_once_after(lab):
    found = sources(lab)
    everything = found.runs()
    found.newest = lambda: everything[:2]
    sampler = LabSampler(found)
    first, second = sampler.sample(), sampler.sample()
    assert (first.partial, len(first.runs)) == (True, 2)
    assert (second.partial, len(second.runs)) == (False, 7)
    assert newest_runs(lab / "runs") is None
    newest = newest_runs(lab / "runs", most=3, when_more_than=5)
    assert newest is not None
    assert [run.id for run in newest] == [run_id("XNLI-02", 7), run_id("mnli-oelm", 6, 43), run_id("sst2-oelm", 5)]
