"""Run folders that nobody should have made: the bad run has its row and its reason, and hides no other."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from oelm_core import small_files
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.recorded_config import RecordedConfig, RecordedData, RecordedMethod, RecordedModel, RecordedTrain
from oelm_core.runs.schema import Notes
from oelm_core.runs.store import list_runs
from oelm_core.small_files import read_small_file
from tests.hostile_lab import READING, check, check_reading, check_screen, tree, with_raw, write_lab
from tests.in_process import oelm


@pytest.fixture
def bad(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "400")
    return write_lab(tmp_path / "home")


def spoil(folder: Path, file: str, key: str, raw: str) -> None:
    """Raw JSON in the place of a value, by its dotted key."""
    path = folder / file
    place = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    path.write_text(with_raw(json.loads(path.read_text()), place, raw))


def listed(name: str = "bad") -> dict[str, object]:
    rows = json.loads(oelm("runs", "--json").out)
    assert len(rows) == 3
    return next(row for row in rows if row["id"] == name)


SPOILT = [
    ("state.json", "workers", "1.5", "workers"),
    ("state.json", "devices", "true", "devices"),
    ("state.json", "step", "9" * 5_000, "step"),
    ("run.json", "config.train.lr", '"fast"', "config.train.lr"),
    ("run.json", "config.method.freeze", "[[1]]", "config.method.freeze"),
    ("run.json", "config.data.name", '{"a": 1}', "config.data.name"),
    ("run.json", "config.target", "[]", "config.target"),
    ("run.json", "config.train.epochs", "1e300", "config.train.epochs"),
    ("run.json", "config.slurm", "[" * 60 + "]" * 60, "config: lists and maps are more than 32 deep"),
    ("run.json", "config", "[" * 100_000, "it is not JSON"),
    ("run.json", "config.title", '"\\ud800"', "config.title: text that is not Unicode"),
    ("run.json", "seed", "9" * 30, "seed: a number beyond 64 bits"),
    ("result.json", "metric.value", '"high"', "metric.value"),
    ("result.json", "best", "[1]", "best"),
]


@pytest.mark.parametrize(("file", "key", "raw", "words"), SPOILT, ids=[f"{one[0]}-{one[1]}" for one in SPOILT])
def test_a_value_of_the_wrong_kind_is_named_on_its_run_alone(bad, file, key, raw, words):
    spoil(bad, file, key, raw)
    row = listed()
    assert str(row["unreadable"] or row["message"]).startswith(f"unreadable: {file}, {words}")
    assert f"unreadable: {file}, {words}" in oelm("runs").out
    check_reading(("compare", "--all"))
    assert f"unreadable: {file}" in check_screen(bad.parents[1])["bad"]


@pytest.mark.parametrize("file", ["checks.json", "attempts/1.json"])
def test_what_only_a_comparison_reads_is_named_in_its_footnotes(bad, file):
    (bad / file).write_text("[]")
    assert f"bad: unreadable: {Path(file).name}" in " ".join(oelm("compare", "--all").out.split())


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "link out", "link to a device", "folder", "loop"])
@pytest.mark.parametrize("file", ["run.json", "metrics.jsonl", "training.log"])
def test_what_is_no_plain_file_is_neither_opened_nor_followed(bad, tmp_path, file, kind, monkeypatch):
    place, secret = bad / file, tmp_path / "secret"
    secret.write_bytes(place.read_bytes().replace(b"good-arm", b"secrets!"))
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        monkeypatch.chdir(bad)  # its name has little room
        socket.socket(socket.AF_UNIX).bind(file)
    elif kind == "folder":
        place.mkdir()
    elif kind == "device" and os.geteuid() == 0:
        os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))
    else:
        place.symlink_to({"link out": str(secret), "loop": file}.get(kind, "/dev/zero"))
    before = tree(bad.parent)
    read = threading.Thread(target=lambda: [check_reading(command) for command in READING[:4]], daemon=True)
    read.start()
    read.join(60)
    assert not read.is_alive()
    assert "secrets!" not in oelm("runs").out
    logs = oelm("logs", "bad")
    check(logs)
    assert logs.code == (4 if file == "training.log" else 0)
    check_screen(bad.parents[1])
    assert tree(bad.parent) == before


@pytest.mark.parametrize("where", ["run", "attempts", "predictions"])
def test_a_folder_that_is_a_link_is_not_followed(bad, tmp_path, where):
    place = bad if where == "run" else bad / where
    os.rename(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    row = listed()
    assert (row["state"] == "unknown") == (where == "run")
    for command in READING[:4]:
        check_reading(command)
    if where == "run":
        assert "its folder is a link, which is not followed" in str(row["message"])
        for command in (("stop",), ("delete", "--yes"), ("resume",)):
            refused = oelm(command[0], "bad", *command[1:])
            check(refused)
            assert refused.code == 4
    assert list((tmp_path / "elsewhere").iterdir())


def test_a_file_beyond_its_limit_is_not_read(bad):
    with open(bad / "result.json", "ab") as file:
        file.truncate(small_files.MOST_BYTES["record"] + 1)  # sparse: it takes no room
    assert listed()["unreadable"] == "unreadable: result.json, it is larger than 8 MiB."
    check_reading(("compare", "--all"))


def test_metrics_beyond_their_limit_are_read_up_to_it(bad, monkeypatch):
    monkeypatch.setitem(small_files.MOST_BYTES, "metrics", 1_000)
    (bad / "result.json").unlink()
    assert "unreadable: metrics.jsonl, it is larger than" in str(listed()["unreadable"])
    check_reading(("compare", "--all"))


def test_a_persons_own_files_may_be_links_but_not_pipes(tmp_path):
    (tmp_path / "mine").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.mkfifo(tmp_path / "pipe")
    assert read_small_file(tmp_path / "link", follow=True) == b"x"
    with pytest.raises(OSError, match="it is a link"):
        read_small_file(tmp_path / "link")
    with pytest.raises(OSError, match="it is not a plain file"):
        read_small_file(tmp_path / "pipe", follow=True)


def test_notes_that_cannot_be_read_are_shown_and_never_written_over(bad):
    from oelm_core.errors import Refused
    from oelm_tui.snapshots.sampler import write_notes

    (bad / Notes.FILE).write_text('{"tags": 3}')
    assert "unreadable: notes.json, tags" in check_screen(bad.parents[1])["bad"]
    run = next(run for run in list_runs(bad.parent) if run.id == "bad")
    with pytest.raises(Refused, match=r"unreadable: notes\.json, tags.*move it away"):
        write_notes(run, note="new")
    assert (bad / Notes.FILE).read_text() == '{"tags": 3}'


def test_a_bad_run_can_be_deleted_and_the_others_stay(bad):
    spoil(bad, "run.json", "config.train.lr", '"fast"')
    spoil(bad, "state.json", "workers", "1.5")
    refused = oelm("resume", "bad")
    check(refused)
    assert refused.code == 4
    check(oelm("delete", "bad", "--yes"))
    assert [run.preset for run in list_runs(bad.parent)] == ["good-arm", "good-base"]


ODD = {"deep": b'{"event": ' + b"[" * 100_000, "long": b"9" * 5_000, "binary": b"\0\xff", "pipe": None}


@pytest.mark.parametrize("file", ["ledger.jsonl", "tui.json", "slurm.yaml", "runs/.index.json", "calibrations/x.json"])
@pytest.mark.parametrize("kind", ODD)
def test_a_bad_file_of_the_lab_ends_no_listing(bad, file, kind):
    content, path = ODD[kind], bad.parents[1] / file
    path.parent.mkdir(exist_ok=True)
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    for command in READING[:4]:
        check_reading(command)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", '{"epochs": [1], "lr": "a\\nb"}', "unreadable: config.json, epochs: expected"),
        ("config.json", '{"epochs": ' + "9" * 7_000 + "}", "unreadable: config.json, epochs: a number beyond 64 bits"),
        ("timing_stats.json", "[" * 100_000, "unreadable: timing_stats.json, it is not JSON"),
        ("timing_stats.json", "link", "unreadable: timing_stats.json, it is a link, which is not followed"),
    ],
    ids=["kinds", "digits", "deep", "link"],
)
def test_an_odd_file_beside_a_good_log_costs_only_itself(bad, tmp_path, name, content, words):
    source = tmp_path / "GPT-01_x"
    source.mkdir()
    number = "9" * 7_000
    log = f"[Step 10] Validation - Loss: 1.5, PPL: 4.48\n[Step 20] Validation - Loss: {number}, PPL: {number}\n"
    (source / "training.log").write_text(log)
    if content == "link":
        (source / name).symlink_to(bad / "result.json")
    else:
        (source / name).write_text(content)
    ended = oelm("import", str(source))
    check(ended, "GPT-01")
    assert ended.code == 0
    assert words in ended.err
    assert len(json.loads(oelm("runs", "--json").out)) == 4


def test_a_log_that_is_a_link_out_of_the_imported_folder_is_not_copied(bad, tmp_path):
    (tmp_path / "secret").write_text("[Step 10] Validation - Loss: 1.5, PPL: 4.48\npassword\n")
    source = tmp_path / "GPT-01_x"
    source.mkdir()
    (source / "training.log").symlink_to(tmp_path / "secret")
    ended = oelm("import", str(source))
    check(ended)
    assert ended.code == 2
    assert len(list(bad.parent.iterdir())) == 3


def test_recorded_settings_are_those_of_presets():
    from oelm_core.config import as_dict, sections
    from oelm_core.config.catalogue import SHIPPED, load_folders
    from oelm_core.runs.recorded_config import check_config

    kinds = {RecordedModel: "Model", RecordedData: "Data", RecordedMethod: "Method", RecordedTrain: "Train"}
    for kind, name in kinds.items():
        fields = getattr(sections, name).model_fields
        assert set(kind.__struct_fields__) <= set(fields)
    for one in load_folders([SHIPPED]).experiments.values():
        check_config(as_dict(one))
    assert RecordedConfig().train is None


def test_a_run_folder_with_every_name_a_file_system_allows_is_listed(bad):
    for number, name in enumerate(("a\nb", "\x1b]0;x\x07", "=1+1", "[bold]", "é", "x" * 200)):
        RunFolder(bad.parent / name).path.mkdir()
        rows = json.loads(oelm("runs", "--json").out)
        assert len(rows) == 4 + number
    for command in READING[:4]:
        check_reading(command)
