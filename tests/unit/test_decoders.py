"""Causal models of transformers as a family of presets: built, counted, trained, resumed and loaded again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from oelm_core.config import build_experiment
from oelm_core.config.catalogue import load_catalogue
from oelm_core.errors import BadInput
from oelm_core.method.attention_stats import attention_patterns
from oelm_core.method.census import census, census_of
from oelm_core.method.freezing import apply_freezing
from oelm_core.models import build
from oelm_core.models.decoder import Decoder
from oelm_core.models.published import save_published
from oelm_core.registry import DECODERS
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.training.finished import FinishedRun, load_finished
from oelm_core.training.loop import Loop
from oelm_core.training.supervision import StopRequest
from oelm_core.training.worker import train_run
from tests.training_runs import GPT, experiment, figures, run_folder, texts, weights

GROUPED = {"num_key_value_heads": 1}


def preset(arch: str, config: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    own = {"name": "demo-gpt", "arch": arch, "shape": GPT["model"]["shape"], "config": config, "dropout": 0.1, **model}
    return {**GPT, "id": f"tiny-{arch}", "family": "decoder", "model": own}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_THREADS", "1")
    return tmp_path


@pytest.mark.parametrize("arch", DECODERS)
def test_the_loss_is_the_networks_own_and_the_count_needs_no_weights(arch: str) -> None:
    chosen = build_experiment(preset(arch), "test")
    model = build(chosen, seed=1).eval()
    assert isinstance(model, Decoder)
    counted = census_of(chosen)
    apply_freezing(model, chosen.method)
    assert census(model).by_component == counted.by_component
    assert counted.frozen == counted.by_component["query"].total + counted.by_component["key"].total
    tokens = torch.randint(0, 60, (2, 12))
    own = model.network(input_ids=tokens, labels=tokens).loss
    ours = model(input_ids=tokens[:, :-1], shift_labels=tokens[:, 1:], num_items_in_batch=22).loss
    assert torch.allclose(own, ours, atol=1e-5)
    assert torch.allclose(model.token_losses(tokens[:, :-1], tokens[:, 1:]).mean(), own, atol=1e-5)
    patterns = attention_patterns(model, {"input_ids": tokens})
    assert torch.allclose(patterns.sum(-1), torch.ones(patterns.shape[:-1]), atol=1e-5)
    assert patterns.triu(1).abs().max() == 0


@pytest.mark.parametrize(("arch", "config"), [("gpt2", None), ("llama", GROUPED), ("qwen3", GROUPED)])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    arch: str, config: dict[str, Any] | None, data: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment(preset(arch, config), data, "train.attention_stats=true", "train.samples=1")
    straight = run_folder(home / "runs", chosen)
    assert train_run(straight, StopRequest())[0].state == "finished"
    assert all("attention_entropy" in line.values for line in read_metrics(straight.metrics, "eval"))
    stopped, stop = run_folder(home / "runs", chosen), StopRequest()
    evaluate = Loop._evaluate

    def then_stop(self: Loop, step: int) -> bool:
        stop.request(signal.SIGTERM)
        return evaluate(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_evaluate", then_stop)
        assert train_run(stopped, stop)[0].state == "stopped"
    assert train_run(stopped, StopRequest())[0].state == "finished"
    assert weights(stopped) == weights(straight)
    assert figures(stopped)[-1] == figures(straight)[-1]
    again = load_finished(straight)
    assert isinstance(again.model, Decoder)
    assert again.model.generate(torch.tensor([[5, 6]]), max_new_tokens=3, do_sample=False).shape == (1, 5)


@pytest.mark.parametrize("start", ["scratch", "pretrained"])
def test_a_folder_in_a_half_type_is_trained_in_full_precision(start: str, tmp_path: Path) -> None:
    saved = build(build_experiment(preset("llama"), "test"), seed=1)
    saved.network.bfloat16().save_pretrained(tmp_path)
    made = build(build_experiment(preset("llama", path=str(tmp_path), start=start), "test"), seed=1)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float32}


def test_a_pretrained_folder_brings_its_own_sizes_and_weights(data: Path, home: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 64, "vocab_size": GPT["model"]["shape"]["vocab"]}
    saved = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **sizes, bos_token_id=1, eos_token_id=1))
    saved.save_pretrained(home / "model")
    base = preset("gpt2", start="pretrained", path=str(home / "model"))
    base["method"] = {"name": "keep", "init": "head-qr", "from": "pretrained", "scale": "keep", "freeze": ["key"]}
    model = build(build_experiment(base, "test"), seed=1)
    assert torch.equal(model.network.transformer.wte.weight, saved.transformer.wte.weight)
    assert model.config.n_layer == 3


def test_a_network_that_caps_its_logits_is_refused_in_a_sentence(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = AutoConfig.for_model("gemma2", **sizes, head_dim=16, intermediate_size=32, vocab_size=60)
    config.final_logit_softcapping = 0.5
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"Gemma2ForCausalLM changes its logits after its head"):
        build(build_experiment(preset("gemma", path=str(tmp_path), start="pretrained"), "test"), seed=1)


def test_what_a_decoder_cannot_do_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match=r"model\.config: "):
        build(build_experiment(preset("llama", {"num_key_value_heads": "many"}), "test"), seed=1)
    classes = {**preset("llama"), "data": {"name": "sst2", "classes": 2, "max_length": 32}}
    with pytest.raises(BadInput, match="family decoder models text"):
        build(build_experiment(classes, "test"), seed=1)


def test_the_shipped_ones_have_the_sizes_their_names_say() -> None:
    shipped = load_catalogue()
    totals = {name: census_of(shipped.experiment(f"{name}-baseline")).total for name in SHIPPED}
    assert totals == SHIPPED


SHIPPED = {"gpt2-wikitext": 124_439_808, "llama-tinystories": 45_005_824, "qwen-tinystories": 43_433_728}


def test_a_decoder_is_published_and_writes_as_the_network_of_transformers_that_it_is(tmp_path: Path) -> None:
    experiment = build_experiment(preset("gpt2"), "test")
    tokenizer = Mock()
    found = FinishedRun(Mock(), experiment, tokenizer, build(experiment, seed=1).eval(), 1)
    assert save_published(found.network, tokenizer, tmp_path, experiment.method) == "transformers"
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = torch.arange(8)[None].to(found.network.device)
    assert torch.equal(again(ids).logits, found.model(ids).logits)
