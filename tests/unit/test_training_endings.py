"""Runs that cannot continue: one sentence with the values, the right reason, the last good checkpoint kept."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from oelm_core.config import Train
from oelm_core.errors import BadData, BadInput
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunRecord
from oelm_core.training import checkpoint, failures, precision, worker
from oelm_core.training.loop import Loop
from oelm_core.training.precision import Precision
from oelm_core.training.session import check_positions
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import ClassificationTask, LanguageTask
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, GPT, SHAPE, experiment, figures, run_folder, texts, weights


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    monkeypatch.setenv("OELM_DEVICE", "cpu")
    return


def train(root: Path, base: dict[str, Any], data: Path, *settings: str) -> tuple[RunFolder, Outcome]:
    folder = run_folder(root / "runs", experiment(base, data, *settings))
    return folder, train_run(folder, StopRequest())[0]


def test_a_loss_that_is_not_finite_ends_the_run_with_its_last_good_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = LanguageTask.load

    def poisoned(self: LanguageTask, step: int, ranks: Any) -> Any:
        batch = plain(self, step, ranks)
        if step == 8:
            batch.parts[0] = (*batch.parts[0][:2], math.nan)
        return batch

    monkeypatch.setattr(LanguageTask, "load", poisoned)
    folder, outcome = train(tmp_path, GPT, data)
    assert (outcome.state, outcome.reason) == ("failed", "nonfinite")
    assert outcome.message.startswith("non-finite loss at step 8; the checkpoint of step 5 is kept")
    assert checkpoint.steps(folder.checkpoints) == [5]
    assert "examples of this batch: [" in capsys.readouterr().out
    monkeypatch.setattr(LanguageTask, "load", plain)  # the cause removed, it resumes from there
    assert train_run(folder, StopRequest())[0].state == "finished"


def with_a_scaler(monkeypatch: pytest.MonkeyPatch, *, first_scale: float = 2.0) -> None:
    """The loss scaling of fp16, on a CPU."""
    scaler = partial(torch.amp.GradScaler, "cpu", init_scale=first_scale)
    monkeypatch.setattr(Precision, "scaler", lambda self: scaler())


def overflow_at(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    plain = Loop._update

    def overflowed(self: Loop) -> torch.Tensor:
        if self.s.progress.step + 1 in steps:
            next(p for p in self.s.model.parameters() if p.grad is not None).grad[0] = math.inf
        return plain(self)

    monkeypatch.setattr(Loop, "_update", overflowed)


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_steps_that_loss_scaling_skips_are_counted_recorded_and_not_taken_for_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = train(tmp_path, GPT, data)
    with_a_scaler(monkeypatch)
    overflow_at(monkeypatch, 3, 4, 8)
    folder, outcome = train(tmp_path, GPT, data)
    assert outcome.state == "finished"
    raw = folder.metrics.read_text().splitlines()
    lines = [json.loads(line, parse_constant=no_constants) for line in raw]
    assert [line["skipped"] for line in lines if line["kind"] == "train"] == [0, 0, 2, 2, 3, 3, 3]
    events = [line for line in lines if line.get("what") == "skipped"]
    assert [event["step"] for event in events] == [3, 8]  # once for each time it begins
    assert "(3 skipped so far)" in events[1]["message"]
    tokens, all_tokens = (figures(one)[-2].values["tokens"] for one in (folder, plain))
    assert tokens == all_tokens * 9 / 12
    result = json.loads((folder.path / "result.json").read_text())
    assert (result["steps"], result["skipped_steps"]) == (12, 3)
    assert json.loads((plain.path / "result.json").read_text())["skipped_steps"] is None


def test_a_run_whose_every_step_is_skipped_fails_instead_of_finishing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_scaler(monkeypatch, first_scale=math.inf)  # half of it is as much: no step is ever taken
    folder, outcome = train(tmp_path, GPT, data, "train.eval_every=50")
    assert (outcome.state, outcome.reason) == ("failed", "nonfinite")
    assert outcome.message.startswith("the last 12 optimiser steps to step 12 were all skipped")
    assert "bf16, tf32 or fp32" in outcome.message
    assert checkpoint.steps(folder.checkpoints) == []


def test_skipped_steps_are_counted_over_a_resume(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_scaler(monkeypatch)
    overflow_at(monkeypatch, 5, 6)
    whole, _ = train(tmp_path, GPT, data)
    monkeypatch.setattr("oelm_core.training.loop.SKIPS", 2)
    folder, outcome = train(tmp_path, GPT, data)
    assert outcome.message.startswith("the last 2 optimiser steps to step 6 were all skipped")
    monkeypatch.setattr("oelm_core.training.loop.SKIPS", 100)
    assert train_run(folder, StopRequest())[0].state == "finished"
    assert figures(folder) == figures(whole)


def test_a_full_disk_ends_the_run_and_a_resume_takes_the_checkpoint_before(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file = checkpoint.save_file

    def full_at_ten(tensors: Any, file: Path, **rest: Any) -> None:
        if ".step-10-" in str(file):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        save_file(tensors, file, **rest)

    monkeypatch.setattr(checkpoint, "save_file", full_at_ten)
    folder, outcome = train(tmp_path, BERT, data)
    assert (outcome.state, outcome.reason) == ("failed", "disk")
    assert (
        "checkpoint of step 10 could not be written (No space left on device); step 5 is still usable"
        in outcome.message
    )
    monkeypatch.setattr(checkpoint, "save_file", save_file)
    assert train_run(folder, StopRequest())[0].state == "finished"
    whole, _ = train(tmp_path, BERT, data)
    assert figures(folder) == figures(whole)
    assert weights(folder) == weights(whole)


class Killed(BaseException):
    """Nothing after it is done, as with SIGKILL."""


@pytest.mark.parametrize("base", [BERT, GPT])
def test_killed_right_after_an_evaluation_that_was_due_records_it_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: dict[str, Any]
) -> None:
    folder = run_folder(tmp_path / "runs", experiment(base, data))
    stop = StopRequest()
    evaluate = Loop._evaluate

    def stopped_inside(self: Loop, step: int) -> bool:
        stop.request(signal.SIGTERM)
        return evaluate(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_evaluate", stopped_inside)
        assert train_run(folder, stop)[0].state == "stopped"
    assert checkpoint.steps(folder.checkpoints) == [5]

    def killed(self: Loop, best: bool) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_save", killed)
        with pytest.raises(Killed):
            train_run(folder, StopRequest())
    assert train_run(folder, StopRequest())[0].state == "finished"
    whole, _ = train(tmp_path, base, data)
    assert figures(folder) == figures(whole)
    assert weights(folder) == weights(whole)
    told = [f.samples.read_text().count("\n") for f in (folder, whole) if f.samples.exists()]
    assert len(set(told)) <= 1


@pytest.mark.parametrize(
    ("base", "settings", "reason", "sentence"),
    [
        (BERT, ["model.shape.vocab=2000"], "data", "has 2000; give the model's own with --set data.tokenizer"),
        (GPT, ["model.shape.vocab=100"], "data", "build the model with --set model.shape.vocab="),
        (BERT, ["data.path=/nowhere/at/all"], "data", "data.path /nowhere/at/all: no such file or folder"),
        (BERT, ["data.label=mood"], "data", "no column 'mood' for the labels; the columns are sentence, label"),
        (BERT, ["train.precision=fp16"], "config", "train.precision fp16 needs a GPU"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_values(
    data: Path, tmp_path: Path, base: dict[str, Any], settings: list[str], reason: str, sentence: str
) -> None:
    _, outcome = train(tmp_path, base, data, *settings)
    assert (outcome.state, outcome.reason, outcome.step) == ("failed", reason, 0)
    assert sentence in outcome.message


def test_a_pretrained_folder_with_fewer_positions_than_the_text_needs_is_refused(data: Path, tmp_path: Path) -> None:
    from oelm_core.config import Shape
    from oelm_core.data.tokenizers import demo_tokenizer
    from oelm_core.models.bert import encoder_config, from_config

    model: Any = from_config(encoder_config(Shape(**{**SHAPE, "positions": 32}), "bert", 2, 0.1))
    model.save_pretrained(tmp_path / "short")
    demo_tokenizer().save_pretrained(tmp_path / "short")
    sentence = r"data\.max_length 48 is longer than the model's 32 positions"
    with pytest.raises(BadInput, match=sentence):
        train(tmp_path, BERT, data, f"model.path={tmp_path / 'short'}", "model.start=pretrained")
    with pytest.raises(BadInput, match=sentence) as refused:  # of a hub's model it is known once it is loaded
        check_positions(model, experiment(BERT, data))
    assert failures.failure_of(refused.value, None)[0] == "config"


@pytest.mark.parametrize("base", [BERT, GPT], ids=["bert", "gpt"])
def test_a_too_long_max_length_is_a_matter_of_the_settings_not_of_the_data(
    data: Path, tmp_path: Path, base: dict[str, Any]
) -> None:
    folder = run_folder(tmp_path / "runs", experiment(base, data))
    run = folder.read(RunRecord)
    assert run is not None
    run.config["data"]["max_length"] = SHAPE["positions"] + 1
    folder.write(run)
    outcome, code = train_run(folder, StopRequest())
    assert (outcome.state, outcome.reason, code) == ("failed", "config", 1)
    assert "data.max_length 65 is longer than" in outcome.message


def test_a_checkpoint_of_other_settings_is_refused(data: Path, tmp_path: Path) -> None:
    folder, _ = train(tmp_path, BERT, data)
    run = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**run, "config_hash": "other"}))
    outcome, code = train_run(folder, StopRequest())
    assert (outcome.state, outcome.reason, code) == ("failed", "config", 1)
    assert "a run only resumes from its own checkpoint" in outcome.message


def test_an_unexpected_error_keeps_its_traceback_in_the_log(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(ClassificationTask, "loss", broken)
    _, outcome = train(tmp_path, BERT, data)
    assert (outcome.reason, outcome.message) == ("error", "ZeroDivisionError: a bug of ours")
    assert "Traceback" in capsys.readouterr().err


def test_a_frozen_weight_that_moves_fails_the_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ClassificationTask.evaluate

    def meddle(self: ClassificationTask, model: Any, *rest: Any) -> Any:
        with torch.no_grad():
            model.bert.encoder.layer[0].attention.self.query.weight += 1e-3
        return plain(self, model, *rest)

    monkeypatch.setattr(ClassificationTask, "evaluate", meddle)
    folder, outcome = train(tmp_path, BERT, data)
    assert (outcome.state, outcome.reason) == ("failed", "error")
    assert "frozen weight changed" in outcome.message
    assert json.loads((folder.path / "result.json").read_text())["frozen"]["unchanged"] is False


def test_out_of_memory_says_what_was_asked_what_was_free_and_what_to_lower() -> None:
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23 GiB"
    )
    reason, sentence, _ = failures.failure_of(error, Train(max_steps=1, batch_size=32, lr=1.0))
    assert reason == "oom"
    assert "asked for 2.50 GiB, free was" in sentence
    assert "train.batch_size from 32 to 16 and raise train.accumulate from 1 to 2" in sentence
    assert "compile" not in sentence
    graphs = Train(max_steps=1, batch_size=32, lr=1.0, compile="graphs")  # which goes with neither way out
    assert "both need train.compile=true in place of graphs" in failures.failure_of(error, graphs)[1]
    on_host = RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
    )
    assert failures.failure_of(on_host, None)[0] == "oom"


@pytest.mark.parametrize(
    ("words", "reason", "next_step"),
    [
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", "oom", "train.batch_size"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "oom", "train.batch_size"),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "oom", "train.batch_size"),
        ("NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'", "oom", "train.batch_size"),
        ("CUDA driver error: out of memory", "oom", "train.batch_size"),
        (
            "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
            "oom",
            "asked for 8 bytes",
        ),
        (
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "error",
            "lower train.batch_size",
        ),
        ("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm`", "error", "oelm doctor"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "error", "resume the run"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "error", "oelm gpus"),
        ("Xid is no name of a column", "error", "RuntimeError: Xid"),
        ("the rocket's launch failure", "error", "RuntimeError: the"),
        ("illegal instruction in line 3", "error", "RuntimeError: illegal"),
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus", "gpu_fault", "dmesg"),
        ("CUDA error: uncorrectable ECC error encountered", "gpu_fault", "dmesg"),
        ("CUDA error: unspecified launch failure", "gpu_fault", "on another card"),
        ("CUDA error: an illegal memory access was encountered", "gpu_fault", "on another card"),
        ("NCCL error: Last error:\nCuda failure 700 'an illegal memory access was encountered'", "gpu_fault", "Xid"),
        ("NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited, ncclRemoteError", "nccl", "NCCL_DEBUG=INFO"),
        ("CUDA error: device-side assert triggered", "error", "--device cpu names the line"),
        ("CUDA error: no kernel image is available for execution on the device", "error", "oelm doctor"),
        ("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", "error", "cannot be multiplied"),
    ],
)
def test_the_errors_of_a_card_have_names_and_say_what_to_do(words: str, reason: str, next_step: str) -> None:
    found = failures.failure_of(RuntimeError(words), Train(max_steps=1, batch_size=32, lr=1.0))
    assert found.reason == reason
    assert next_step in found.message
    assert "\n" not in found.message
    wrapped = RuntimeError("backend='inductor' raised")
    wrapped.__cause__ = RuntimeError(words)
    assert failures.failure_of(wrapped, None).reason == reason
    bug = failures.failure_of(KeyError(words), None)  # no error of a card, whatever it says
    assert (bug.reason, bug.message.partition(":")[0]) == ("error", "KeyError")


def test_code_that_exits_while_it_trains_has_failed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ClassificationTask, "evaluate", lambda *_: sys.exit(3))
    _, outcome = train(tmp_path, BERT, data)
    assert (outcome.state, outcome.reason) == ("failed", "error")
    assert outcome.message == "the training code called sys.exit(3)."
    assert "SystemExit: 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "here", "message"),
    [
        (BadInput("train.precision fp16 needs a GPU."), "2", "train.precision fp16 needs a GPU."),
        (BadData("data.path x: no such file."), "2", "data.path x: no such file."),
        (BadData("data.path x: no such file."), "1", "rank 1: data.path x: no such file."),  # on another node's disk
        (ValueError("odd"), "2", "rank 1: ValueError: odd"),
    ],
)
def test_a_rank_is_named_only_where_the_others_may_be_well(
    monkeypatch: pytest.MonkeyPatch, error: Exception, here: str, message: str
) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", here)):
        monkeypatch.setenv(name, value)
    assert worker._failed(error, None).message == message


@pytest.mark.parametrize(
    ("words", "reason"),
    [("Connection closed by peer [127.0.0.1]:1", "error"), ("Timed out waiting 4000ms for recv operation", "hang")],
)
def test_a_rank_tells_a_peer_that_is_gone_from_one_that_is_silent(words: str, reason: str) -> None:
    found = worker._failed(RuntimeError(f"[../third_party/gloo/gloo/transport/tcp/pair.cc:537] {words}"), None)
    assert (found.reason, found.consequence) == (reason, True)


def test_a_stop_before_the_first_step_leaves_no_checkpoint(data: Path, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.request(15)
    folder = run_folder(tmp_path / "runs", experiment(BERT, data))
    outcome, code = train_run(folder, stop)
    assert (outcome.state, outcome.reason, outcome.step, code) == ("stopped", "signal", 0, 0)
    assert checkpoint.steps(folder.checkpoints) == []


def test_a_stop_during_an_evaluation_leaves_it_due_and_a_resume_does_it_first(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = train(tmp_path, BERT, data)
    stop = StopRequest()
    plain = ClassificationTask.evaluate

    def asked_meanwhile(self: ClassificationTask, *rest: Any) -> Any:
        stop.request(15)
        return plain(self, *rest)

    monkeypatch.setattr(ClassificationTask, "evaluate", asked_meanwhile)
    folder = run_folder(tmp_path / "runs", experiment(BERT, data))
    assert train_run(folder, stop)[0].step == 5
    assert [r.step for r in figures(folder) if r.kind == "eval"] == []
    monkeypatch.setattr(ClassificationTask, "evaluate", plain)
    assert train_run(folder, StopRequest())[0].state == "finished"
    assert figures(folder) == figures(whole)
    assert weights(folder) == weights(whole)


def test_a_run_stopped_in_bf16_is_resumed_in_bf16_whatever_the_processor(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path / "runs", experiment(GPT, data, "train.precision=amp"))
    stop = StopRequest()
    plain = LanguageTask.evaluate

    def asked_meanwhile(self: LanguageTask, *rest: Any) -> Any:
        stop.request(15)
        return plain(self, *rest)

    monkeypatch.setattr(precision, "bf16_units", lambda: "AMX")
    monkeypatch.setattr(LanguageTask, "evaluate", asked_meanwhile)
    assert train_run(folder, stop)[0].state == "stopped"
    monkeypatch.setattr(LanguageTask, "evaluate", plain)
    monkeypatch.setattr(precision, "bf16_units", lambda: None)
    assert train_run(folder, StopRequest())[0].state == "finished"
    assert json.loads((folder.path / "result.json").read_text())["precision"] == "bf16"
    monkeypatch.setattr(precision, "bf16_units", lambda: "AMX")
    whole, _ = train(tmp_path, GPT, data, "train.precision=amp")
    assert figures(folder) == figures(whole)


def test_a_gpt_classifies_too_and_says_that_it_does_not_pack(data: Path, tmp_path: Path) -> None:
    classes = {"name": "demo-sentiment", "classes": 2, "max_length": 48}
    base = {**GPT, "data": classes}
    chosen = experiment(base, data, f"data.path={data / 'reviews'}")
    folder = run_folder(tmp_path / "runs", chosen)
    assert train_run(folder, StopRequest())[0].state == "finished"
    result = json.loads((folder.path / "result.json").read_text())
    assert result["metric"]["name"] == "accuracy"
    assert result["data"]["batching"] == "dynamic"
    assert "packing is written for BERT" in folder.metrics.read_text()
