"""What is not on this machine, and what is kept to this screen: runs on other nodes, Slurm's silence, preferences."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.launch.remote_devices import remote_card
from oelm_core.runs.folder import RunFolder, read_record
from oelm_core.runs.store import Run, read_run
from oelm_tui.settings import Settings
from oelm_tui.snapshots.cards import Machine, remote_cards
from oelm_tui.snapshots.sampler import LabSampler, slurm_silence
from oelm_tui.widgets.devices import DeviceStrip
from oelm_tui.widgets.log_view import LogPage
from tests.functional.tui_lab import change, drive, machine, make_app, press, run_id, settle, sources, text_of


def on_a_node(lab: Path) -> Run:
    """A running run that Slurm started on another node, with a sample of its card."""
    run = read_run(RunFolder(lab / "runs" / run_id("GPT-02", 2)))
    record = {"t": 1e9, "step": 61_200, "kind": "system", "util": 93.0, "memory_reserved": 4 * 2**30}
    with open(run.folder.metrics, "a") as file:
        file.write(json.dumps(record) + "\n")
    return replace(run, launcher="slurm", state="running", host="node7", devices=("GPU-1234abcd",))


def test_a_run_on_another_node_brings_its_card_into_the_device_line(lab):
    (card,) = remote_cards([on_a_node(lab)])
    assert (card.label, card.utilisation, card.memory_used) == ("node7:1234", 93.0, 4 * 2**30)
    strip = DeviceStrip()
    strip.set_reactive(DeviceStrip.machine, Machine(dataclasses.replace(machine().here, gpus=()), remote=(card,)))
    line = "".join(text for text, _ in strip.lines(120, 1)[0])
    for words in ("node7:1234", "93%", "4.0G", "GPT-02"):
        assert words in line
    assert "GPU " not in line  # there is none here


def test_the_devices_pane_says_when_another_machine_was_last_heard_of(lab):
    run = on_a_node(lab)
    app = make_app(lab)
    app.sampler.sources.remote = lambda runs: remote_cards([run])

    async def script(pilot):
        await settle(pilot)
        await press(pilot, "4")
        await press(pilot, "end")
        shown = text_of(app)
        assert "On other machines" in shown
        assert "node7:1234" in shown
        assert ":46:40" in shown

    _drive(app, script)


def test_a_run_without_a_sample_is_unknown_and_not_idle(lab):
    waiting = read_run(RunFolder(lab / "runs" / run_id("GPT-03", 3)))
    card = remote_card(replace(waiting, host="node7", devices=("cpu:0-3",)))
    assert card.label == "node7:cpu"
    assert card.utilisation is None
    assert card.measured is None


def test_without_slurm_nothing_of_it_is_asked(lab):
    local = read_run(RunFolder(lab / "runs" / run_id("GPT-01", 1)))
    assert remote_cards([local]) == ()
    assert slurm_silence([local]) == ""


def test_slurms_silence_is_said_in_the_header(lab, monkeypatch):
    monkeypatch.setattr("oelm_core.launch.slurm.job_states.problem", lambda: "timed out")
    app = make_app(lab)
    app.sampler.sources.trouble = lambda runs: slurm_silence([on_a_node(lab)])

    async def script(pilot):
        await settle(pilot)
        assert "Slurm does not answer" in text_of(app)

    _drive(app, script)


def test_in_readonly_a_mark_goes_on_this_screen_and_stays_in_the_lab(lab):
    failed = run_id("mnli-oelm", 6, 43)

    async def script(app, pilot):
        app.screen.runs_table.go_to(failed)
        assert app.snapshot.by_id[failed].needs_a_look
        await press(pilot, "a")
        assert not app.snapshot.by_id[failed].needs_a_look
        assert not (lab / "runs" / failed / "notes.json").exists()

    drive(lab, script, readonly=True)


def test_messages_and_bell_are_turned_off_apart_and_the_choice_is_kept(lab, monkeypatch):
    async def script(app, pilot):
        rung: list[int] = []
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        await press(pilot, "M")
        app.clear_notifications()
        await _fail(app, pilot, lab, run_id("GPT-02", 2))
        assert rung == [1]
        assert not [note for note in app._notifications if "GPT-02" in note.message]
        await press(pilot, "B", "M")
        await _fail(app, pilot, lab, run_id("GPT-01", 1))
        assert rung == [1]
        assert [note for note in app._notifications if "GPT-01" in note.message]

    drive(lab, script)
    assert Settings.read(lab) == Settings(bell=False)


async def _fail(app, pilot, lab: Path, name: str) -> None:
    run = read_run(RunFolder(lab / "runs" / name))
    change(run, state="failed", reason="error", message="boom", ended=app.sampler.sources.now())
    app.threads["lab"].ask(None)
    await settle(pilot)


def test_the_colours_of_a_log_can_be_stripped_and_come_back(lab):
    folder = RunFolder(lab / "runs" / run_id("GPT-02", 2))
    folder.log.write_bytes(b"\x1b[31mred alert\x1b[0m and calm\n")

    async def script(app, pilot):
        app.screen.runs_table.go_to(folder.id)
        await press(pilot, "f")
        page = app.screen.query_one(LogPage)

        def roles() -> list[str]:
            return [role for line in page._drawn for text, role in line if "red alert" in text]

        assert roles() == ["red"]
        await press(pilot, "C")
        assert roles() == [""]
        assert "C colours" in text_of(app)
        await press(pilot, "C")
        assert roles() == ["red"]

    drive(lab, script)
    assert read_record(lab / "tui.json", dict)["log_colours"] is True


def test_configurations_are_read_by_the_sampler_so_that_the_filter_reads_nothing(lab, monkeypatch):
    sampler = LabSampler(sources(lab))
    sampler.sample()
    runs = sampler.sample().runs
    monkeypatch.setattr(RunFolder, "read", lambda *_: pytest.fail("the screen read a file"))
    assert all(view.run.config for view in runs)


def _drive(app, script) -> None:
    async def main() -> None:
        async with app.run_test(size=(120, 36)) as pilot:
            await script(pilot)

    asyncio.run(main())
