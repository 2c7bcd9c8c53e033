"""Curves where the group looks: nothing twice and nothing lost, whatever becomes of the run or of the target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oelm_core.errors import BadInput, Refused
from oelm_core.launch.request import LaunchRequest
from oelm_core.mirror import bridge, targets
from oelm_core.mirror.bridge import Busy, Trouble, carry, follow
from oelm_core.mirror.card import RunCard, RunEnd
from oelm_core.mirror.points import Point
from oelm_core.runs.folder import RunFolder, read_record, write_record
from oelm_core.runs.metrics_file import MetricsWriter, cut_lines
from oelm_core.runs.schema import Mirrored, Notes, RunState, decode_metric
from tests.in_process import oelm
from tests.run_factory import FROZEN, experiment, write_run


class Notebook:
    """A target that remembers what it was given; `fails` counts the writes that it refuses."""

    keeps_at_close = False
    points: list[Point] = []
    cards: list[RunCard] = []
    ends: list[RunEnd] = []
    opened = closed = fails = 0
    there, deleted = True, False

    def __init__(self, folder: Path | None, home: Path) -> None:
        self.place = str(folder or home)

    def is_there(self, kept: Mirrored) -> bool:
        return Notebook.there

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        Notebook.opened += 1
        known, kept.run = bool(kept.run) and not Notebook.deleted, card.id
        return known

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        Notebook.cards.append(card)

    def write(self, points: Sequence[Point], kept: Mirrored) -> None:
        if Notebook.fails:
            Notebook.fails -= 1
            raise ConnectionError("the network is\ndown")
        Notebook.points += points

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        Notebook.ends.append(end)

    def close(self) -> None:
        Notebook.closed += 1


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> type[Notebook]:
    for name in ("points", "cards", "ends"):
        monkeypatch.setattr(Notebook, name, [])
    for name in ("opened", "closed", "fails"):
        monkeypatch.setattr(Notebook, name, 0)
    monkeypatch.setattr(Notebook, "there", True)
    monkeypatch.setattr(Notebook, "deleted", False)
    module = ModuleType("a_notebook")
    module.Notebook = Notebook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_notebook", module)
    monkeypatch.setitem(targets.TARGETS, "notebook", targets.TargetKind("A notebook", "json", "a_notebook:Notebook"))
    return Notebook


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    arm = experiment("b", method=FROZEN, baseline="a")
    return write_run(tmp_path / "runs", arm, curve=[0.8, 0.9117]).folder


def seen(points: list[Point]) -> list[tuple[int, str]]:
    return [(point.step, kind) for point in points for kind in {name.partition("/")[0] for name in point.values}]


def kept(folder: RunFolder) -> Mirrored:
    (file,) = (folder.path / "mirror").glob("*.json")
    found = read_record(file, Mirrored)
    assert found is not None
    return found


def is_running(folder: RunFolder) -> None:
    state = folder.read(RunState)
    assert state is not None
    state.state, state.host = "running", "elsewhere"
    state.heartbeat = 4e9
    folder.write(state)


def test_name_configuration_tags_frozen_share_and_result_travel_along(
    folder: RunFolder, notebook: type[Notebook]
) -> None:
    folder.write(Notes(tags=["look again"]))
    carried = carry(folder, "notebook")
    (card,), (end,) = notebook.cards, notebook.ends
    assert carried.points == len(notebook.points) == 42
    assert card.id == folder.id
    assert card.config["train.lr"] == 1e-3
    assert card.config["method.freeze"] == "query, key"
    assert {"oelm-freeze", "reviews", "look again"} <= set(card.tags)
    share = card.facts["parameters.frozen_share"]
    assert isinstance(share, float)
    assert 0 < share < 1
    assert (end.state, end.step) == ("finished", 400)
    assert end.figures["result/accuracy"] == 0.9117
    assert end.figures["result/frozen_share"] == share


def test_steps_are_the_optimisers_and_time_stamps_the_recorded_ones(
    folder: RunFolder, notebook: type[Notebook]
) -> None:
    carry(folder, "notebook")
    lines = [decode_metric(line) for line in folder.metrics.read_bytes().splitlines()]
    assert [(point.step, point.t) for point in notebook.points] == [(line.step, line.t) for line in lines if line]


def test_a_second_call_adds_only_what_is_new(folder: RunFolder, notebook: type[Notebook]) -> None:
    is_running(folder)
    carry(folder, "notebook")
    assert carry(folder, "notebook").points == 0
    assert notebook.opened == 1
    writer = MetricsWriter(folder.metrics)
    writer.write("train", 410, loss=0.3)
    writer.close()
    assert carry(folder, "notebook").points == 1
    assert seen(notebook.points)[-1] == (410, "train")
    assert len(notebook.cards) == 1


def test_after_a_resume_no_point_is_there_twice_and_none_is_missing(
    folder: RunFolder, notebook: type[Notebook]
) -> None:
    carry(folder, "notebook")
    before = seen(notebook.points)
    cut_lines(folder.metrics, lambda line: (decode_metric(line) or line).step <= 200)  # type: ignore[union-attr]
    writer = MetricsWriter(folder.metrics)
    writer.event(200, "resumed", "resumed from the checkpoint of step 200")
    for step in range(210, 501, 10):
        writer.write("train", step, loss=0.1)
    writer.write("eval", 300, accuracy=0.93)
    writer.close()
    carry(folder, "notebook")
    new = [(step, "train") for step in range(410, 501, 10)]
    assert seen(notebook.points) == [*before, *new, (300, "eval")]
    assert [point.what for point in notebook.points if point.what] == ["resumed"]
    assert carry(folder, "notebook").points == 0


def test_a_line_that_is_only_half_written_waits(folder: RunFolder, notebook: type[Notebook]) -> None:
    whole = folder.metrics.read_bytes()
    folder.metrics.write_bytes(whole + b'{"t": 1.0, "step": 999, "ki')
    assert carry(folder, "notebook").points == 42
    folder.metrics.write_bytes(whole + b'{"t": 1.0, "step": 999, "kind": "train", "loss": 0.5}\n')
    assert carry(folder, "notebook").points == 1


def test_bites_of_a_large_file_come_in_order(
    folder: RunFolder, notebook: type[Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oelm_core.mirror.points.BITE", 50)  # less than a line
    assert carry(folder, "notebook").points == 42
    assert [step for step, kind in seen(notebook.points) if kind == "train"] == list(range(10, 401, 10))


def test_a_dead_network_is_said_in_a_sentence_and_caught_up_with(folder: RunFolder, notebook: type[Notebook]) -> None:
    notebook.fails = 1
    with pytest.raises(Trouble, match=r"A notebook did not take it: ConnectionError: the network is\.$"):
        carry(folder, "notebook")
    assert kept(folder).offset == 0
    assert "the network is" in (kept(folder).problem or "")
    assert carry(folder, "notebook").points == 42
    assert kept(folder).problem is None


def test_a_bridge_that_follows_outlives_a_network_that_comes_and_goes(
    folder: RunFolder, notebook: type[Notebook]
) -> None:
    final = folder.read(RunState)
    assert final is not None
    is_running(folder)
    notebook.fails = 2
    pauses: list[float] = []

    def rest(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            folder.write(final)

    assert follow(folder, "notebook", rest=rest) is None
    assert pauses == [2.0, 4.0, 1.0, 1.0]
    assert len(notebook.points) == 42
    assert [end.state for end in notebook.ends] == ["finished"]
    assert notebook.opened == notebook.closed == 3  # after each failure once more


def test_a_bridge_whose_target_stays_away_gives_up_with_the_line_that_catches_up(
    folder: RunFolder, notebook: type[Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "PATIENCE", -1.0)
    notebook.fails = 9
    words = follow(folder, "notebook", rest=lambda seconds: None)
    assert words is not None
    assert words.endswith(f"oelm mirror {folder.id} --to notebook")


def test_a_run_that_goes_on_after_its_end_was_told_ends_again(folder: RunFolder, notebook: type[Notebook]) -> None:
    final = folder.read(RunState)
    assert final is not None
    stopped = folder.read(RunState)
    assert stopped is not None
    stopped.state, stopped.reason = "stopped", "user"
    folder.write(stopped)
    carry(folder, "notebook")
    folder.write(final)
    carry(folder, "notebook")
    assert [end.words for end in notebook.ends] == ["stopped (user)", "finished (completed)"]
    assert len(notebook.points) == 42


def test_what_was_thrown_away_there_is_brought_again(folder: RunFolder, notebook: type[Notebook]) -> None:
    carry(folder, "notebook")
    notebook.there = False
    assert carry(folder, "notebook").points == 42
    notebook.there, notebook.deleted = True, True  # only asking tells
    folder.write(Notes(tags=["new"]))  # something to ask for
    assert carry(folder, "notebook").points == 42


def test_each_place_has_its_own_position(folder: RunFolder, notebook: type[Notebook], tmp_path: Path) -> None:
    assert carry(folder, "notebook").points == 42
    assert carry(folder, "notebook", tmp_path / "elsewhere").points == 42
    assert carry(folder, "notebook", tmp_path / "elsewhere").points == 0


def test_of_two_bridges_to_one_place_one_works(folder: RunFolder, notebook: type[Notebook]) -> None:
    made = bridge.Bridge(folder, "notebook")
    with bridge._alone(made), pytest.raises(Busy, match=r"process \d+ is bringing"):
        carry(folder, "notebook")
    assert carry(folder, "notebook").points == 42


def test_a_linked_mirror_folder_is_not_followed(folder: RunFolder, notebook: type[Notebook], tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (folder.path / "mirror").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused, match="is a link"):
        carry(folder, "notebook")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_position_that_cannot_be_read_starts_anew(folder: RunFolder, notebook: type[Notebook]) -> None:
    carry(folder, "notebook")
    (file,) = (folder.path / "mirror").glob("*.json")
    write_record(file, ["nonsense"])
    assert carry(folder, "notebook").points == 42


# -- where to ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio", "mlflow"])
def test_a_missing_library_is_one_sentence_with_the_pip_line(
    name: str, folder: RunFolder, nothing_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(folder.path.parent.parent))
    said = oelm("mirror", folder.id, "--to", name)
    assert said.code == 4
    assert said.err.endswith(f"is not installed; write: pip install 'oelm-lab[{name}]'.\n")


def home_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str | None) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    if settings is not None:
        (tmp_path / "settings.yaml").write_text(settings)


@pytest.mark.parametrize(
    ("settings", "option", "targets"),
    [
        (None, None, ()),
        ("report_to: [tensorboard, wandb]", None, ("tensorboard", "wandb")),
        ("report_to: mlflow\nnotify: 'true'", None, ("mlflow",)),
        ("notify: 'true'", None, ()),
        ("report_to: [wandb]", ("none",), ()),
    ],
)
def test_the_command_line_goes_before_the_settings(
    settings: str | None,
    option: tuple[str, ...] | None,
    targets: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_installed: None,
) -> None:
    home_with(tmp_path, monkeypatch, settings)
    assert LaunchRequest(report_to=option).reports_to() == targets


@pytest.mark.parametrize(
    ("settings", "option", "words"),
    [
        ("report_to: [tensorbord]", None, "settings.yaml, report_to: no target 'tensorbord'. Did you mean tensorboard"),
        ("report_to: {a: b}", None, "report_to should be a list"),
        ("mirror: wandb", None, "the keys it may have are notify and report_to"),
        (None, ("mlflw",), "--report-to: no target 'mlflw'. Did you mean mlflow?"),
    ],
)
def test_a_target_nobody_knows_is_refused_before_anything_starts(
    settings: str | None, option: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_with(tmp_path, monkeypatch, settings)
    with pytest.raises(BadInput) as refusal:
        LaunchRequest(report_to=option).reports_to()
    assert words in str(refusal.value)


def test_what_the_command_line_names_must_be_installed(nothing_installed: None) -> None:
    with pytest.raises(Refused, match=r"pip install 'oelm-lab\[wandb\]'"):
        LaunchRequest(report_to=("wandb",)).reports_to()


def test_the_form_prints_the_same_command() -> None:
    words = LaunchRequest(presets=("x",), report_to=("wandb", "mlflow")).command()
    assert words[-2:] == ["--report-to", "wandb,mlflow"]
    assert LaunchRequest(presets=("x",), report_to=()).command()[-2:] == ["--report-to", "none"]
