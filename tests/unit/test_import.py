"""The author's output folders become read-only runs; what they do not say stays unknown."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest

from oelm_core.compare import compare_runs
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.errors import BadInput
from oelm_core.published.column import with_published_column
from oelm_core.published.import_author import looks_like_output, read_folder
from oelm_core.published.import_checkpoint import count_checkpoint
from oelm_core.published.import_log import read_log
from oelm_core.published.import_runs import import_folders
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Result, Seconds
from oelm_core.runs.store import list_runs
from oelm_tui import cli
from tests.in_process import oelm


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_folders([SHIPPED])


def gpt_folder(parent: Path, name: str, model: str, ppl: float, log: str | None = None, **stats) -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    content = {
        "model_type": model,
        "init_method": "orthogonal" if model == "oelm_freeze" else "normal",
        "dataset": "tinystories",
        "total_wall_time": 16260.0,
        "num_steps_measured": 99899,
        "mean_step_time": 0.0837,
        "std_step_time": 0.02,
        "median_step_time": 0.08,
        "p95_step_time": 0.1,
        "p99_step_time": 0.12,
        "total_validation_time": 7000.0,
        "final_perplexity": ppl,
        **stats,
    }
    (folder / "timing_stats.json").write_text(json.dumps(content))
    if log is not None:
        (folder / "training.log").write_text(log)
    return folder


GPT_LOG = (
    "Training:  20%|██        | 20000/100000 [27:53<1:51:33, 11.95it/s, loss=1.80, lr=2.9e-04]\r"
    "Training:  20%|██        | 20001/100000 [27:53<1:51:33, 11.95it/s, loss=1.79, lr=2.9e-04]\n"
    "[Step 20000] Validation - Loss: 1.7315, PPL: 5.65\n"
    "[Step 61000] Validation - Loss: 1.5057, PPL: 4.51\n"
    "[Step 99000] Validation - Loss: 1.4516, PPL: 4.27\n"
)
BERT_LOG = (
    "2026-02-07 18:07:44 - INFO - Seed: 42\n"
    "Epoch 1:   2%|▏         | 50/2105 [00:16<11:12,  3.06it/s, loss=0.6931, lr=7.9e-06]\r"
    "2026-02-07 18:13:01 - INFO - \n"
    "Step 500: Running validation...\n"
    "2026-02-07 18:13:09 - INFO - Validation - Loss: 0.3380, Accuracy: 0.8819, F1: 0.8872\n"
    "Epoch 2:   2%|▏         | 50/2105 [00:16<11:12,  3.06it/s, loss=0.25]\n"
    "2026-02-07 18:20:00 - INFO - Step 2500: Running validation...\n"
    "2026-02-07 18:20:08 - INFO - Validation - Loss: 0.3012, Accuracy: 0.9117, F1: 0.9143\n"
)


def test_a_gpt_folder_becomes_a_run_with_its_curve_and_times(tmp_path, catalogue):
    folder = gpt_folder(tmp_path / "out", "GPT-01_baseline", "baseline", 4.27, GPT_LOG)
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    run = made.run
    assert (made.created, run.imported, run.preset, run.method, run.state) == (
        True,
        True,
        "GPT-01",
        "baseline",
        "finished",
    )
    assert (run.metric_name, run.metric_value, run.step) == ("perplexity", 4.27, 99000)
    evals = read_metrics(run.folder.metrics, "eval")
    assert [(r.step, r.values["perplexity"]) for r in evals] == [(20000, 5.65), (61000, 4.51), (99000, 4.27)]
    assert [r.values["loss"] for r in read_metrics(run.folder.metrics, "train")] == [1.80, 1.79]
    assert run.folder.read(Result).timing.step_time_mean == 0.0837
    assert "lr" not in run.config["train"]  # the recipe's rate is not this run's word
    assert any("learning rate" in note for note in made.notes)
    assert any("seed is unknown" in note for note in made.notes)


def test_importing_twice_changes_nothing(tmp_path, catalogue):
    folder = gpt_folder(tmp_path / "out", "GPT-01_baseline", "baseline", 4.27, GPT_LOG)
    (first,) = import_folders([folder], catalogue, tmp_path / "runs")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")}
    (second,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert (second.created, second.run.id) == (False, first.run.id)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")} == before


def test_a_folder_of_folders_is_imported_whole_and_compared(tmp_path, catalogue):
    gpt_folder(tmp_path / "outputs", "GPT-01_baseline", "baseline", 4.27, GPT_LOG)
    gpt_folder(tmp_path / "outputs", "GPT-02_oelm_freeze", "oelm_freeze", 4.69)
    gpt_folder(tmp_path / "outputs", "GPT-03_oelm_random", "oelm_random", 4.97)
    assert len(list(import_folders([tmp_path / "outputs"], catalogue, tmp_path / "runs"))) == 3
    (group,) = with_published_column(compare_runs(list_runs(tmp_path / "runs"), catalogue), catalogue).groups
    assert group.baseline == "GPT-01"
    assert {pair.arm: round(pair.delta, 3) for pair in group.pairs} == {"GPT-02": 0.098, "GPT-03": 0.164}
    trust = next(f for f in group.audit if f.what == "untouched baseline")
    assert trust.grade == "note"
    assert group.arm("GPT-02").published["perplexity"] == 4.69
    assert group.same == ()  # neither text, seed, model nor start is known, so none is called the same
    assert "differs" not in group.arm("GPT-02").published


def test_a_bert_log_gives_steps_times_seed_and_scores(tmp_path, catalogue):
    folder = tmp_path / "out" / "sst2-oelm"
    folder.mkdir(parents=True)
    (folder / "training.log").write_text(BERT_LOG)
    stats = {"mode": "oelm", "total_wall_time": 2148.0, "mean_time_per_step": 0.33, "step_times": [0.33], "max_time": 1}
    (folder / "timing_stats.json").write_text(json.dumps(stats))
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert (made.run.preset, made.run.seed, made.run.metric_value) == ("sst2-oelm", 42, 0.9117)
    evals = read_metrics(made.run.folder.metrics, "eval")
    scores = [(r.step, r.values["accuracy"], r.values["f1"]) for r in evals]
    assert scores == [
        (500, 0.8819, 0.8872),
        (2500, 0.9117, 0.9143),
    ]
    assert evals[1].t - evals[0].t == 7 * 60 - 1
    assert [r.step for r in read_metrics(made.run.folder.metrics, "train")] == [50, 2155]
    assert any("taken from the folder's name" in note for note in made.notes)


def test_the_mode_oelm_alone_does_not_say_which_start_it_was(tmp_path, catalogue):
    folder = tmp_path / "some_run"
    folder.mkdir()
    (folder / "timing_stats.json").write_text(json.dumps({"mode": "oelm", "total_wall_time": 10.0}))
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert made.run.method == "unknown"
    assert made.run.metric_value is None


def test_config_and_results_of_the_later_kind_are_read(tmp_path, catalogue):
    folder = tmp_path / "XNLI_oelm_qk_ffn_lr1e-3"
    folder.mkdir()
    config = {"learning_rate": 1e-3, "batch_size": 16, "num_epochs": 3, "seed": 42, "num_classes": 3, "dataset": "xnli"}
    results = {"model_type": "oelm_qk_ffn", "dataset": "xnli", "best_accuracy": 58.71, "final_val_accuracy": 58.0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text(json.dumps({**results, "total_time_seconds": 12601.8, "avg_step_time": 0.17}))
    (folder / "timing_stats.json").write_text(json.dumps({"epoch_times": [1.0], "step_times": [0.17]}))
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    run = made.run
    assert (run.dataset, run.method, run.seed, run.metric_value) == ("xnli", "oelm-qk-ffn", 42, pytest.approx(0.5871))
    assert run.config["train"]["lr"] == 1e-3
    assert run.folder.read(Result).timing.step_time_mean == 0.17


def test_a_very_short_run_is_imported_with_what_it_says(tmp_path, catalogue):
    folder = tmp_path / "GPT-06_try"
    folder.mkdir()
    short = {"model_type": "baseline", "dataset": "wikitext103", "total_wall_time": 12.0, "note": "too short"}
    (folder / "timing_stats.json").write_text(json.dumps(short))
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert made.run.metric_value is None
    assert made.run.folder.read(Result).seconds == Seconds(total=12.0)


def test_a_summary_that_contradicts_the_log_is_noted(tmp_path, catalogue):
    folder = gpt_folder(tmp_path, "GPT-01_x", "baseline", 3.9, GPT_LOG)
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert made.run.metric_value == 4.27
    assert any("4.27 in the log and 3.9 in the summary" in note for note in made.notes)


def test_a_torn_summary_beside_a_good_log_is_left_out(tmp_path, catalogue):
    folder = gpt_folder(tmp_path, "GPT-01_x", "baseline", 4.27, GPT_LOG)
    (folder / "timing_stats.json").write_text('{"model_ty')
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert made.run.metric_value == 4.27
    assert made.run.state == "stopped"
    assert any("unreadable: timing_stats.json, it is not JSON" in note for note in made.notes)


@pytest.mark.parametrize("content", [None, "", "nothing of use\n"])
def test_a_folder_with_nothing_to_import_is_a_clear_error(tmp_path, catalogue, content):
    folder = tmp_path / "empty"
    folder.mkdir()
    if content is not None:
        (folder / "training.log").write_text(content)
    empty, absent = import_folders([folder, tmp_path / "absent"], catalogue, tmp_path / "runs")
    assert isinstance(empty, BadInput)
    assert str(folder) in str(empty)
    assert isinstance(absent, BadInput)
    assert "no such folder" in str(absent)


def test_the_good_ones_of_several_are_imported_and_each_bad_one_is_said(tmp_path, monkeypatch, capsys):
    good = [gpt_folder(tmp_path / "outputs", name, "baseline", ppl) for name, ppl in (("one", 4.3), ("three", 4.4))]
    (tmp_path / "outputs" / "two").mkdir()
    (tmp_path / "outputs" / "two" / "training.log").write_text("")
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    command = ["oelm", "import", str(tmp_path / "junk"), str(tmp_path / "outputs"), str(good[0])]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr()
    assert len(set(said.out.split())) == len(list_runs()) == 2
    sentences = [line for line in said.err.splitlines() if str(tmp_path) in line]
    assert [("junk" in line, "two" in line) for line in sentences] == [(True, False), (False, True)]


def test_a_restarted_log_replaces_the_steps_it_repeats(tmp_path):
    first, second = tmp_path / "training.log", tmp_path / "training_restart.log"
    first.write_text("[Step 1000] Validation - Loss: 2.0, PPL: 7.39\n[Step 2000] Validation - Loss: nan, PPL: nan\n")
    second.write_bytes(b"\xff\x00 broken bytes\n[Step 2000] Validation - Loss: 1.5, PPL: 4.48\nTraining completed!\n")
    content = read_log(second.read_bytes(), read_log(first.read_bytes()))
    assert [(r.step, r.values["loss"]) for r in content.evals] == [(1000, 2.0), (2000, 1.5)]
    assert content.completed


def test_parameters_are_counted_from_a_checkpoint_tied_once_and_trained_by_their_moments(tmp_path, catalogue):
    import torch

    embedding = torch.zeros(50257, 8)
    weights = {"tok.weight": embedding, "head.weight": embedding, "blocks.0.q.weight": torch.zeros(8, 8)}
    weights |= {"blocks.0.v.weight": torch.zeros(8, 8), "mask": torch.ones(4, 4, dtype=torch.bool)}
    moments = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(50257, 8), "exp_avg_sq": torch.zeros(50257, 8)}}
    moments[1] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(8, 8), "exp_avg_sq": torch.zeros(8, 8)}
    content = {"model_state_dict": weights, "optimizer_state_dict": {"state": moments, "param_groups": []}, "step": 5}
    torch.save(content, tmp_path / "best.pt")
    counts = count_checkpoint(tmp_path / "best.pt")
    assert counts is not None
    assert (counts.total, counts.trainable) == (50257 * 8 + 128, 50257 * 8 + 64)
    folder = gpt_folder(tmp_path, "GPT-02_x", "oelm_freeze", 4.69)
    os.replace(tmp_path / "best.pt", folder / "best.pt")
    (made,) = import_folders([folder], catalogue, tmp_path / "runs")
    assert made.run.folder.read(Result).parameters.frozen == 64


def test_a_checkpoint_that_would_run_code_is_not_obeyed(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/obeyed",)

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"model": Attack()}))
    (tmp_path / "best.pt").write_bytes(out.getvalue())
    assert count_checkpoint(tmp_path / "best.pt") is None
    assert not (tmp_path / "obeyed").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"\x80\x04not a zip"])
def test_a_checkpoint_that_cannot_be_read_is_unknown(tmp_path, content):
    (tmp_path / "best.pt").write_bytes(content)
    assert count_checkpoint(tmp_path / "best.pt") is None
    (tmp_path / "a.safetensors").write_bytes(content)
    assert count_checkpoint(tmp_path / "a.safetensors") is None


def test_safetensors_headers_are_counted(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}, "__metadata__": {}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 48)
    counts = count_checkpoint(tmp_path / "m.safetensors")
    assert counts is not None
    assert counts.total == 12


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("results.json", lambda file: file.write_text('{"best": ' + "9" * 7000 + "}"), "unreadable: results.json, "),
        ("training.log", lambda file: file.symlink_to("/etc/hostname"), "unreadable: training.log, "),
        ("training.log", os.mkfifo, "unreadable: training.log, "),
        ("timing_stats.json", lambda file: file.write_text("[" * 100_000), "unreadable: timing_stats.json, "),
    ],
)
def test_a_folder_whose_only_file_cannot_be_read_says_which_and_why(tmp_path, name, make, said):
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / name)
    assert looks_like_output(tmp_path / "out")
    with pytest.raises(BadInput, match=r"nothing to import; unreadable") as refused:
        read_folder(tmp_path / "out")
    assert said in str(refused.value)


def test_many_folders_that_cannot_be_imported_are_ten_lines_a_count_and_the_last(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    for number in range(30):
        (tmp_path / "out" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "out" / f"{number:02}" / "results.json").write_text("[]")
    ended = oelm("import", str(tmp_path / "out"))
    lines = ended.err.splitlines()
    assert (ended.code, len(lines)) == (2, 12)
    assert lines[10] == "oelm: and 19 more like these; oelm import FOLDER says what is wrong with one."
