"""The command line: shapes for scripts, exit codes, and one clear sentence for every mistake."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.launch.request import RunRequest
from oelm_core.report import render
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.ledger import LedgerEvent, append
from oelm_core.runs.schema import RunState
from oelm_tui import cli
from tests import in_process
from tests.functional.oelm import Oelm
from tests.golden.demo import demo_comparison
from tests.run_factory import experiment, write_run


@pytest.fixture
def oelm(tmp_path: Path) -> Oelm:
    return Oelm(tmp_path / "home")


@pytest.fixture
def lab_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """OELM_HOME of commands that are many, or load torch, which this process may have already."""
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_presets_as_json_have_the_contracts_keys(oelm: Oelm) -> None:
    rows = oelm.json("presets")
    keys = {"id", "title", "kind", "family", "dataset", "method", "baseline", "recommended"}
    assert all(set(row) == keys for row in rows)
    by_id = {row["id"]: row for row in rows}
    assert (by_id["GPT-02"]["recommended"], by_id["GPT-02-extras"]["recommended"]) == (False, True)
    assert by_id["GPT-02"]["baseline"] == "GPT-01"
    assert by_id["demo"]["kind"] == "study"
    assert not [name for name in by_id if name.startswith("gpt-medium")]


def test_showing_a_preset_counts_its_parameters_without_a_download(lab_of_this_process: Path) -> None:
    shown = json.loads(in_process.oelm("presets", "show", "gpt-02", "--json").out)
    assert shown["parameters"]["total"] == 44_896_768
    assert shown["parameters"]["frozen"] == 3_145_728
    assert sum(part["total"] for part in shown["parameters"]["by_component"].values()) == 44_896_768
    assert shown["method"]["from"] == "gaussian"


def test_showing_a_preset_for_people_names_the_published_result(lab_of_this_process: Path) -> None:
    text = in_process.oelm("presets", "show", "sst2-oelm").out
    assert re.search(r"frozen +14,174,208", text)
    assert re.search(r"accuracy +91.28 %", text)
    assert "the best accuracy is given as 91.28 %, but the run's own curve has 91.42 %" in " ".join(text.split())
    assert re.search(r"against +sst2-baseline", text)
    assert "oelm run sst2-oelm\n" in text
    assert re.search(r"train.lr +1e-4\n", text)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["presets", "show", "sst2-oelmm"], 3, "Did you mean sst2-oelm"),
        (["run", "nothing-like-it-at-all"], 3, "no preset"),
        (["run", "demo"], 3, "is a study, not a preset; use: oelm study demo"),
        (["study", "demo", "--seeds", "2", "--seed", "7"], 2, "do not go together"),
        (["run", "GPT-01", "--seeds", "44-42"], 2, "write 42-44"),
        (["study", "sst2-oelm"], 3, "is a preset, not a study"),
        (["run", "sst2-oelm", "--set", "train.lr=fast"], 2, "key 'train.lr' is \"fast\""),
        (["run", "sst2-oelm", "--set", "train"], 2, "write it as key=value"),
        (["run", "sst2-oelm", "--device", "nine"], 2, "nine"),
        (["run", "sst2-oelm", "--device", "99"], 3, "99"),
        (["run", "sst2-oelm", "--after", "nobody"], 3, "nobody"),
        (["run", "sst2-oelm", "--after-any"], 2, "goes with --after"),
        (["run", "sst2-oelm", "--per-run", "0"], 2, "per-run"),
        (["run", "sst2-oelm", "--device", "cpu", "--per-run", "100000"], 2, "more processes than"),
        (["run"], 2, "PRESET"),
        (["runs", "--state", "happy"], 2, "happy"),
        (["logs", "nobody"], 3, "no run 'nobody'"),
        (["stop", "nobody"], 3, "no run 'nobody'"),
        (["resume", "@last"], 3, "there are no runs"),
        (["delete", "nobody", "--yes"], 3, "no run 'nobody'"),
        (["compare"], 2, "name a study or runs"),
        (["compare", "sst2"], 3, "nothing to compare in study sst2"),
        (["compare", "nobody"], 3, "nobody"),
        (["export", "sst2", "--format", "markdown"], 3, "nothing to compare"),
        (["frobnicate"], 2, "no command 'frobnicate'"),
        (["runz"], 2, "Did you mean run"),
        (["runs", "--colour"], 2, "No such option"),
        (["--presets", "/nowhere/at/all", "presets"], 2, "there is no such folder"),
        (["compare", "dmo"], 3, "Did you mean demo?"),
        (["data", "prepare", "nosuchset"], 3, "no dataset or preset 'nosuchset'. The datasets are sst2, qqp,"),
        (["data", "prepare", "tinystory"], 3, "Did you mean tinystories"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_exit_code(
    lab_of_this_process: Path, arguments: list[str], code: int, sentence: str
) -> None:
    ended = in_process.oelm(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("oelm: ")
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert sentence in ended.err
    assert not list(lab_of_this_process.glob("runs/*"))


def test_no_runs_is_an_empty_list_and_no_error(oelm: Oelm) -> None:
    assert oelm.json("runs") == []
    assert oelm("runs").returncode == 0


def test_deleting_without_an_answer_deletes_nothing(oelm: Oelm) -> None:
    folder = oelm.home / "runs" / "half-a-run"
    folder.mkdir(parents=True)
    ended = oelm("delete", folder.name)
    assert ended.returncode == 4
    assert "nothing was deleted; --yes deletes without asking." in ended.stderr
    assert folder.is_dir()


def test_a_broken_preset_of_mine_is_a_warning_in_lists_and_an_error_by_name(oelm: Oelm) -> None:
    folder = oelm.home / "presets" / "experiments"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("{id: mine, title: t, extends: sst2-oelm, baseline: sst2-baseline, colour: red}")
    listed = oelm("presets")
    assert listed.returncode == 0
    assert "unknown key 'colour'" in listed.stderr
    assert "sst2-oelm" in listed.stdout
    assert "unknown key 'colour'" in oelm.refusal("run", "mine", code=2)


def test_a_home_that_cannot_be_written_is_refused(oelm: Oelm) -> None:
    oelm.home.write_text("a file, not a folder")
    assert f"{oelm.home} is not a folder" in oelm.refusal("run", "demo-gpt-baseline", "--device", "cpu", code=2)


def test_a_full_disk_leaves_no_half_made_run(oelm: Oelm) -> None:
    (oelm.home / "runs").mkdir(parents=True)

    def no_room_for_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # writing a byte fails, as on a full disk

    refused = oelm.refusal("run", "demo-gpt-baseline", "--device", "cpu", code=4, preexec_fn=no_room_for_files)
    assert "cannot create a run" in refused
    assert list((oelm.home / "runs").iterdir()) == []


def test_a_seed_given_twice_is_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def start(request: RunRequest, *, checked: bool) -> RunFolder:
        started.append(request.seed)
        return RunFolder(f"run-{request.seed}")

    monkeypatch.setattr("oelm_core.launch.local.start", start)
    monkeypatch.setattr("sys.argv", ["oelm", "run", "demo-gpt-oelm", "--seed", "2", "--seed", "1", "--seed", "2"])
    cli.main()
    assert started == [2, 1]


def test_the_command_that_a_report_gives_to_reproduce_a_study_starts_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str | None, int]] = []

    def start(request: RunRequest, *, checked: bool) -> RunFolder:
        started.append((request.study, request.seed))
        return RunFolder(f"{request.experiment.id}-{request.seed}")

    monkeypatch.setattr("oelm_core.launch.local.start", start)
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    report = render(demo_comparison(tmp_path), "markdown")
    [command] = [line for line in report.splitlines() if line.startswith("oelm study")]
    monkeypatch.setattr("sys.argv", command.split())
    cli.main()
    assert list(dict.fromkeys(started)) == [("demo", 42), ("demo", 43)]


def test_without_a_terminal_oelm_prints_its_help(oelm: Oelm) -> None:
    ended = oelm()
    assert ended.returncode == 0
    assert "Commands:" in ended.stdout


def test_doctor_sees_that_the_home_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    ended = Oelm(tmp_path / "home")("doctor")
    assert ended.returncode == 1
    assert f"{tmp_path / 'home'} is not a folder" in " ".join(ended.stdout.split())


def test_doctor_finds_this_machine_usable(oelm: Oelm) -> None:
    findings = {finding["check"]: finding for finding in oelm.json("doctor")}
    assert {"python", "torch", "device", "nvml", "home", "disk", "cache", "datasets", "slurm", "terminal"} <= set(
        findings
    )
    assert findings["torch"]["grade"] == "good"
    assert all(finding["fix"] for finding in findings.values() if finding["grade"] != "good")


def test_doctor_names_the_mistake_in_slurm_yaml_and_the_break_in_the_ledger(oelm: Oelm) -> None:
    for run in "abc":
        append(LedgerEvent(event="launched", run=run), oelm.home / "runs")
    ledger = oelm.home / "ledger.jsonl"
    first, _, last = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(first + last)
    site = oelm.home / "slurm.yaml"
    site.parent.mkdir(exist_ok=True)
    site.write_text("partitoin: gpu\n")
    ended = oelm("doctor", "--json")
    assert ended.returncode == 1
    findings = json.loads(ended.stdout)
    [broken] = [finding for finding in findings if finding["check"] == "ledger"]
    assert broken["found"] == f"{ledger}: line 1 was changed, or lines between it and line 2 were removed"
    [mistake] = [finding for finding in findings if finding["grade"] == "bad"]
    assert mistake["check"] == "slurm"
    assert mistake["found"].startswith(f"{site}: unknown key 'partitoin'. Did you mean partition")


def test_a_damaged_run_folder_cannot_be_stopped_and_is_left_alone(oelm: Oelm) -> None:
    broken = oelm.home / "runs" / "broken"
    broken.mkdir(parents=True)
    assert "is no run that can be stopped" in oelm.refusal("stop", "broken", code=4)
    assert list(broken.iterdir()) == []


def test_a_damaged_run_folder_has_a_row_without_an_age(oelm: Oelm) -> None:
    (oelm.home / "runs" / "broken").mkdir(parents=True)
    heading, row = oelm("runs").stdout.splitlines()
    assert row[heading.index("AGE") : heading.index("WHY")].split() == ["-"]
    assert "unreadable: run.json, no su" in row


def test_an_id_of_mine_that_is_taken_is_a_warning_in_lists_and_refused_by_name(oelm: Oelm) -> None:
    folder = oelm.home / "presets" / "experiments"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("{id: sst2-oelm, title: t, extends: sst2-oelm, baseline: sst2-baseline}")
    assert "already used" in oelm("presets").stderr
    assert "already used" in oelm.refusal("run", "sst2-oelm", code=2)


def test_runs_as_json_say_why(oelm: Oelm) -> None:
    run = write_run(oelm.home / "runs", experiment("tiny"), state="failed", reason="oom")
    state = run.folder.read(RunState)
    assert state is not None
    run.folder.write(replace(state, message="The card is full."))
    [shown] = oelm.json("runs")
    assert (shown["state"], shown["reason"], shown["message"]) == ("failed", "oom", "The card is full.")
