"""A whole run of each family, from run.json to result.json, on tiny models and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open

from oelm_core.runs.evaluations import kept_losses, kept_predictions
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Outcome
from oelm_core.training.supervision import StopRequest
from oelm_core.training.worker import train_run
from tests.training_runs import BERT, GPT, experiment, figures, run_folder, texts

Trained = tuple[RunFolder, Outcome, int]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Both families trained once; the tests below look at what they left."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OELM_HOME", str(home))
        patch.setenv("OELM_THREADS", "1")
        runs = {}
        for name, base in (("bert", BERT), ("gpt", GPT)):
            folder = run_folder(home / "runs", experiment(base, data))
            runs[name] = (folder, *train_run(folder, StopRequest()))
        return runs


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_run_finishes_and_says_so(trained: dict[str, Trained], family: str) -> None:
    _, outcome, code = trained[family]
    assert (outcome.state, outcome.reason, outcome.step, code) == ("finished", "completed", 12, 0)


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_metrics_come_every_few_steps_and_evaluations_at_their_steps_and_at_the_end(
    trained: dict[str, Trained], family: str
) -> None:
    folder, *_ = trained[family]
    assert [r.step for r in read_metrics(folder.metrics, "train")] == [1, 2, 4, 6, 8, 10, 12]
    assert [r.step for r in read_metrics(folder.metrics, "eval")] == [5, 10, 12]
    record = read_metrics(folder.metrics, "train")[-1]
    assert {"loss", "lr", "grad_norm", "step_time", "tokens_per_s", "examples_per_s", "tokens", "data_wait"} <= set(
        record.values
    )


@pytest.mark.parametrize(("family", "metric"), [("bert", "accuracy"), ("gpt", "perplexity")])
def test_the_result_holds_the_best_evaluation_and_what_it_cost(
    trained: dict[str, Trained], family: str, metric: str
) -> None:
    folder, *_ = trained[family]
    result = json.loads((folder.path / "result.json").read_text())
    choose: Callable[..., float] = max if metric == "accuracy" else min
    assert result["metric"]["name"] == metric
    assert result["metric"]["value"] == choose(r.values[metric] for r in read_metrics(folder.metrics, "eval"))
    assert result["final"]["step"] == 12
    assert result["timing"]["steps_measured"] + result["timing"]["outliers_dropped"] == 12 - 1
    assert result["frozen"]["unchanged"] is True
    assert result["qk_untouched"] is False
    assert result["parameters"]["frozen"] > 0
    assert result["effective_batch"] == (8 if family == "bert" else 4)
    assert result["checkpoint_bytes"] > 4 * result["parameters"]["total"]
    assert result["memory"]["host_peak"] > 0


def test_predictions_of_every_evaluation_are_kept_and_give_its_accuracy(trained: dict[str, Trained]) -> None:
    folder, *_ = trained["bert"]
    evaluated = {line.step: line.values["accuracy"] for line in read_metrics(folder.metrics, "eval")}
    kept = kept_predictions(folder)
    assert [one.step for one in kept] == list(evaluated) == [5, 10, 12]
    for one in kept:
        right = sum(a == b for a, b in zip(one.labels, one.predictions, strict=True))
        assert right / len(one.labels) == pytest.approx(evaluated[one.step])


def test_losses_of_every_evaluation_are_kept_by_sequence_and_by_document(trained: dict[str, Trained]) -> None:
    folder, *_ = trained["gpt"]
    evaluated = {line.step: line.values["loss"] for line in read_metrics(folder.metrics, "eval")}
    kept = kept_losses(folder)
    assert [one.step for one in kept] == list(evaluated) == [5, 10, 12]
    for one in kept:
        assert one.documents is not None
        assert len(one.documents.tokens) == 4  # stories of the validation file
        for part in (one, one.documents):
            assert sum(part.losses) / sum(part.tokens) == pytest.approx(evaluated[one.step], abs=1e-5)


def test_a_gpt_tells_samples_at_each_evaluation(trained: dict[str, Trained]) -> None:
    folder, *_ = trained["gpt"]
    samples = [json.loads(line) for line in folder.samples.read_text().splitlines()]
    assert [s["step"] for s in samples] == [5, 5, 10, 10, 12, 12]
    assert all(s["prompt"] and s["text"] for s in samples)


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_checks_prove_orthogonality_and_list_what_is_frozen(trained: dict[str, Trained], family: str) -> None:
    folder, *_ = trained[family]
    checks = json.loads((folder.path / "checks.json").read_text())
    assert checks["orthogonality"]["worst"] < 1e-5
    assert len(checks["orthogonality"]["layers"]) == 4  # two layers, query and key
    assert all("query" in n or "key" in n or "q_proj" in n or "k_proj" in n for n in checks["frozen"]["names"])
    assert checks["end"]["frozen_hash"] == checks["frozen"]["hash"]


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_checkpoint_holds_every_weight_and_moments_only_of_what_trains(
    trained: dict[str, Trained], family: str
) -> None:
    folder, *_ = trained[family]
    census = json.loads((folder.path / "checks.json").read_text())["census"]

    def numbers(file: str, ending: str) -> int:
        with safe_open(folder.checkpoints / "latest" / file, "pt") as tensors:
            return sum(tensors.get_tensor(key).numel() for key in tensors.keys() if key.endswith(ending))  # noqa: SIM118

    assert numbers("model.safetensors", "") == census["total"]
    assert numbers("optimiser.safetensors", "|exp_avg") == census["trainable"]


def test_the_authors_timing_keys_are_there(trained: dict[str, Trained]) -> None:
    bert = json.loads((trained["bert"][0].path / "timing_stats.json").read_text())
    gpt = json.loads((trained["gpt"][0].path / "timing_stats.json").read_text())
    assert {"mode", "pure_training_time", "mean_time_per_step", "p95_time", "step_times", "validation_times"} <= set(
        bert
    )
    assert {"model_type", "init_method", "dataset", "mean_step_time", "p99_step_time", "num_validations"} <= set(gpt)
    assert len(bert["validation_times"]) == gpt["num_validations"] == 3


def test_old_checkpoints_are_pruned_but_latest_and_best_stay(trained: dict[str, Trained]) -> None:
    for folder, *_ in trained.values():
        best = json.loads((folder.path / "result.json").read_text())["best"]["step"]
        kept = {p.name for p in folder.checkpoints.iterdir() if not p.is_symlink()}
        assert kept == {f"step-{s}" for s in {best, 10, 12}}
        assert (folder.checkpoints / "latest").readlink() == Path("step-12")
        assert (folder.checkpoints / "best").readlink() == Path(f"step-{best}")


def test_two_runs_of_one_seed_are_equal_to_the_last_bit(
    data: Path, trained: dict[str, Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    again = run_folder(tmp_path / "runs", experiment(BERT, data))
    train_run(again, StopRequest())
    assert figures(again) == figures(trained["bert"][0])
