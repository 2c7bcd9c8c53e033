"""Run folders and the list of them: nothing half-written, nothing shared, nothing unreadable that hides the rest."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oelm_core.errors import NotFound, Refused
from oelm_core.runs import attempts, process, store
from oelm_core.runs import folder as folders
from oelm_core.runs.folder import RunFolder, create, write_record
from oelm_core.runs.schema import Attempt, Headline, Result, RunRecord, RunState
from oelm_core.runs.store import find_run, list_runs, read_run

CONFIG = {
    "family": "bert",
    "method": {"name": "oelm-freeze"},
    "data": {"name": "sst2", "classes": 2, "metric": None},
    "train": {},
    "model": {},
}


def make(root: Path, preset: str = "sst2-oelm", seed: int = 42, state: str = "finished") -> RunFolder:
    run = RunRecord(preset=preset, config=CONFIG, config_hash="abc", seed=seed, created=1000.0 + seed)
    me = process.me()
    here = {"host": me.host, "boot_id": me.boot_id, "boot_time": me.boot_time}
    return create(root, run, RunState(state=state, heartbeat=0.0, step=3, **here))


def write_metrics(run: RunFolder, *accuracies: float) -> None:
    with open(run.metrics, "a") as file:
        for step, accuracy in enumerate(accuracies, 1):
            file.write(json.dumps({"t": 0, "step": step, "kind": "eval", "accuracy": accuracy}) + "\n")
            file.write(json.dumps({"t": 0, "step": step, "kind": "train", "loss": 1.0}) + "\n")


def test_runs_are_listed_newest_first_with_what_a_table_needs(tmp_path: Path) -> None:
    make(tmp_path, seed=1)
    make(tmp_path, seed=2, state="failed")
    newest, older = list_runs(tmp_path)
    assert (newest.seed, newest.state, newest.method, newest.family, newest.dataset) == (
        *(2, "failed", "oelm-freeze"),
        *("bert", "sst2"),
    )
    assert (older.step, older.config, older.metric_name) == (3, CONFIG, "accuracy")
    assert list_runs(tmp_path / "nothing here") == []


def test_a_folder_that_cannot_be_read_has_its_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    make(tmp_path, seed=1)
    broken = make(tmp_path, seed=2)
    (broken.path / "run.json").write_text("{half")
    (tmp_path / "sst2-oelm-s9-20260101-000000-beef").mkdir()
    torn = make(tmp_path, seed=3)
    (torn.path / "state.json").write_text("")
    found = {run.seed: run for run in list_runs(tmp_path)}
    assert found[1].state == "finished"
    assert (found[2].state, found[2].message) == ("unknown", "unreadable: run.json, it is not JSON.")
    assert (found[9].state, found[9].preset) == ("unknown", "sst2-oelm")
    assert found[9].message == "unreadable: run.json, no such file or directory."
    assert found[3].state == "unknown"


def test_a_number_that_is_none_does_not_hide_the_rest(tmp_path: Path) -> None:
    make(tmp_path, seed=1)
    odd = make(tmp_path, seed=2)
    described = json.loads((odd.path / "run.json").read_text())
    (odd.path / "run.json").write_text(json.dumps({**described, "created": float("nan")}))
    state = {"state": "finished", "step": float("inf"), "heartbeat": float("nan")}
    (odd.path / "state.json").write_text(json.dumps(state))
    found = {run.seed: run for run in list_runs(tmp_path)}
    assert found[1].created == 1001.0
    assert (found[2].created, found[2].step, found[2].heartbeat) == (0.0, 0, None)
    assert (found[2].state, found[2].dataset) == ("finished", "sst2")


def test_the_metric_is_the_best_so_far_and_then_the_results(tmp_path: Path) -> None:
    run = make(tmp_path, state="running")
    assert read_run(run).metric_value is None
    write_metrics(run, 0.6, 0.9)
    assert read_run(run).metric_value == 0.9
    write_metrics(run, 0.7)
    with open(run.metrics, "a") as file:
        file.write('{"t": 0, "step": 9, "kind": "eval", "accura')  # a torn tail waits for its end
    assert read_run(run).metric_value == 0.9
    os.replace(_cut(run), run.metrics)  # a resume cut the file back
    assert read_run(run).metric_value == 0.6
    run.write(Result(metric=Headline("accuracy", 0.95)))
    assert read_run(run).metric_value == 0.95


def test_an_evaluation_that_is_not_finite_is_never_the_best(tmp_path: Path) -> None:
    run = make(tmp_path, state="running")
    with open(run.metrics, "a") as file:
        file.write('{"t": 0, "step": 1, "kind": "eval", "accuracy": null}\n')
    assert read_run(run).metric_value is None
    write_metrics(run, 0.6, float("nan"))
    assert read_run(run).metric_value == 0.6


def _cut(run: RunFolder) -> Path:
    shorter = run.path / "shorter"
    shorter.write_text(run.metrics.read_text().splitlines()[0] + "\n")
    return shorter


def test_a_run_is_found_by_prefix_and_the_newest_by_last(tmp_path: Path) -> None:
    first, second = make(tmp_path, seed=1), make(tmp_path, seed=2)
    assert find_run(first.id, tmp_path).id == first.id
    assert find_run("SST2-oelm-s1", tmp_path).id == first.id
    assert find_run("@last", tmp_path).id == second.id
    with pytest.raises(NotFound, match="could be 2 runs"):
        find_run("sst2", tmp_path)
    with pytest.raises(NotFound, match=f"Did you mean {first.id}"):
        find_run(first.id.replace("sst2", "sts2"), tmp_path)
    with pytest.raises(NotFound, match="no runs"):
        find_run("@last", tmp_path / "empty")
    with pytest.raises(NotFound):
        find_run("../" + tmp_path.name, tmp_path)


def test_the_index_remembers_runs_that_are_over_and_notices_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WORTH_WRITING", 1)
    run = make(tmp_path, seed=1)
    before = list_runs(tmp_path)
    assert (tmp_path / ".index.json").exists()
    monkeypatch.setattr(store, "_remembered", {})
    monkeypatch.setattr(store, "_indexed", {})
    monkeypatch.setattr(folders, "read_record", lambda path, kind: pytest.fail(f"{path} was read again"))
    assert list_runs(tmp_path) == before
    monkeypatch.undo()
    state = run.read(RunState)
    assert state is not None
    run.write(replace(state, state="failed"))  # resumed, and failed
    assert [one.state for one in list_runs(tmp_path)] == ["failed"]
    (tmp_path / ".index.json").write_text("[]")
    monkeypatch.setattr(store, "_remembered", {})
    assert [one.state for one in list_runs(tmp_path)] == ["failed"]


def test_two_runs_of_the_same_second_never_share_a_folder(tmp_path: Path) -> None:
    made: list[RunFolder] = []
    threads = [threading.Thread(target=lambda: made.append(make(tmp_path))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run.path for run in made}) == 20
    assert not list(tmp_path.glob(".new-*"))


def test_a_run_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, record: Any, durable: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_record", full)
    with pytest.raises(Refused, match="No space left"):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    write_record(tmp_path / "state.json", {"state": "old"})
    with pytest.raises(TypeError):
        write_record(tmp_path / "state.json", {"state": object()})
    assert json.loads((tmp_path / "state.json").read_text()) == {"state": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_an_attempt_is_claimed_once(tmp_path: Path) -> None:
    run = make(tmp_path)
    first = Attempt(runner=process.me())
    attempts.claim(run, first)
    assert first.attempt == 1
    with pytest.raises(Refused, match="still running"):
        attempts.claim(run, Attempt(runner=process.me()))
    attempts.update(run, replace(first, ended=1.0, state="finished"))
    with pytest.raises(Refused, match="has finished"):  # since whoever resumes looked
        attempts.claim(run, Attempt(runner=process.me()))
    attempts.update(run, replace(first, ended=1.0))
    results: list[object] = []

    def race() -> None:
        attempt = Attempt(runner=process.me())
        try:
            attempts.claim(run, attempt)
            results.append(attempt.attempt)
        except Refused as refusal:
            results.append(str(refusal))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result for result in results if isinstance(result, int)] == [2]
    assert attempts.numbers(run) == [1, 2]
    assert [path.name for path in run.attempts.iterdir() if path.name.startswith(".")] == []


def test_a_run_last_seen_on_another_host_needs_force(tmp_path: Path) -> None:
    run = make(tmp_path, state="running")
    attempts.claim(run, Attempt(runner=replace(process.me(), host="node7")))
    mine = Attempt(runner=process.me())
    with pytest.raises(Refused, match="node7"):
        attempts.claim(run, mine)
    attempts.claim(run, mine, force=True)
    assert mine.attempt == 2


@pytest.mark.parametrize(
    ("key", "words"),
    [("threads", "is still running"), ("runner", r"attempts/1\.json does not tell .*runner: expected.*--force")],
)
def test_a_living_runner_is_not_hidden_by_a_key_that_does_not_fit(tmp_path: Path, key: str, words: str) -> None:
    run = make(tmp_path, state="running")
    attempts.claim(run, Attempt(runner=process.me()))
    path = attempts.path_of(run, 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: "four"}))
    with pytest.raises(Refused, match=words):
        attempts.claim(run, Attempt(runner=process.me()))
    assert attempts.numbers(run) == [1]


def test_an_attempt_that_cannot_be_read_needs_force(tmp_path: Path) -> None:
    run = make(tmp_path, state="running")
    attempts.path_of(run, 1).write_text("{half")
    mine = Attempt(runner=process.me())
    with pytest.raises(Refused, match=r"attempts/1\.json does not tell .*it is not JSON.*--force"):
        attempts.claim(run, mine)
    attempts.claim(run, mine, force=True)
    assert mine.attempt == 2
