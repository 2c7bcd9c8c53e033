"""`oelm publish` and `oelm generate`: what others load is what was trained, and what a run writes is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import oelm_core
from oelm_core.config import Experiment, build_experiment, override
from oelm_core.config.catalogue import Catalogue
from oelm_core.data import synthetic
from oelm_core.errors import BadInput, NotFound, Refused
from oelm_core.launch.publish import publish
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.store import read_run
from oelm_core.training import generate as writer
from oelm_core.training import publish as worker
from tests.checkpoints import run_with_checkpoint
from tests.functional.oelm import Oelm
from tests.training_runs import BERT, GPT

WORDS = sorted(synthetic.vocabulary())
TEXT = " ".join(WORDS[:12])


def tiny(base: dict[str, Any], *settings: str, **parts: Any) -> Experiment:
    shaped = override(build_experiment({**base, **parts}, "test"), list(settings))
    from oelm_core.data.tokenizers import demo_tokenizer

    return override(shaped, [f"model.shape.vocab={len(demo_tokenizer())}"])


def published(root: Path, experiment: Experiment, **more: Any) -> tuple[Path, Any, RunFolder, Any]:
    """(the folder, the network that was in the checkpoint, the run, the answer of the process that writes)."""
    run, model = run_with_checkpoint(root / "runs", experiment, **more)
    folder = root / "published"
    folder.mkdir()
    return folder, model, run, worker.publish(run, folder)


def answers(model: Any, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(**tokenizer(TEXT, return_tensors="pt")).logits


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_an_encoder_loads_with_transformers_alone(arch: str, tmp_path: Path) -> None:
    experiment = tiny(BERT, f"model.arch={arch}", "data.labels=[negative, positive]")
    folder, model, _, answer = published(tmp_path, experiment)
    assert answer.loader == "transformers"
    assert (folder / "model.safetensors").is_file()
    again = AutoModelForSequenceClassification.from_pretrained(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    torch.testing.assert_close(answers(again, tokenizer), answers(model, tokenizer))
    assert again.config.id2label == {0: "negative", 1: "positive"}
    assert "auto_map" not in json.loads((folder / "config.json").read_text())


def test_an_encoder_loads_where_our_package_is_not(tmp_path: Path) -> None:
    folder, model, _, _ = published(tmp_path, tiny(BERT))
    script = (
        "import sys; sys.modules['oelm_core'] = None\n"
        "from transformers import AutoModelForSequenceClassification as Auto\n"
        f"print(sum(p.double().sum().item() for p in Auto.from_pretrained({str(folder)!r}).parameters()))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout.split()[-1]) == pytest.approx(sum(p.double().sum().item() for p in model.parameters()))


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (GPT, {}),
        (GPT, {"extras": {"gain": True, "position_bias": 4}}),
        (GPT, {"name": "lora", "init": "none", "freeze": [], "peer": {"kind": "lora", "rank": 2}}),
        (BERT, {"extras": {"temperature": True, "position_bias": 4, "low_rank": 2}}),
        (BERT, {"name": "adapter", "init": "none", "freeze": [], "peer": {"kind": "adapter", "rank": 4}}),
    ],
)
def test_what_is_not_of_transformers_loads_with_our_package(
    base: dict[str, Any], method: dict[str, Any], tmp_path: Path
) -> None:
    chosen = {**base["method"], **method}
    if "peer" in method:
        chosen.pop("from")
    folder, model, _, answer = published(tmp_path, tiny(base, method=chosen))
    assert answer.loader == "oelm_core"
    again, tokenizer = oelm_core.load_published(folder)
    torch.testing.assert_close(answers(again, tokenizer), answers(model, tokenizer))
    if base is BERT:  # a loader that leaves the additions out in silence would make another model of it
        with pytest.raises(ValueError, match="model type"):
            AutoModelForSequenceClassification.from_pretrained(str(folder))


def test_qk_biases_that_bert_has_anyway_need_no_package_of_ours(tmp_path: Path) -> None:
    method = {**BERT["method"], "extras": {"qk_bias": True}}
    assert published(tmp_path, tiny(BERT, method=method))[3].loader == "transformers"


def test_what_is_no_published_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no published model; its config.json cannot be read"):
        oelm_core.load_published(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["os"]}')
    with pytest.raises(BadInput, match="names no network that is known here"):
        oelm_core.load_published(tmp_path)


LABELS = [place % 2 for place in range(200)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are written in this process; the README's tour has the one of its own."""
    monkeypatch.setattr("oelm_core.launch.publish._write", lambda run, draft: worker.publish(run.folder, draft))


def test_a_folder_has_a_card_of_the_runs_own_records_and_is_never_overwritten(here: None, tmp_path: Path) -> None:
    guesses = [1 - label if place < 20 else label for place, label in enumerate(LABELS)]
    settings = ("train.max_steps=400", "train.eval_every=100", "data.path=/secret/place/reviews")
    experiment = tiny(BERT, *settings)
    typed = {"command": ["/secret/bin/oelm", "run", "tiny-bert", "--seed", "42", f"--set={settings[-1]}"]}
    baseline = tiny(
        {**BERT, "id": "tiny-baseline", "baseline": None, "method": {"name": "baseline"}}, "train.max_steps=400"
    )
    run, _ = run_with_checkpoint(tmp_path / "runs", experiment, labels=LABELS, predictions=guesses, run=typed)
    run_with_checkpoint(tmp_path / "runs", baseline, number=1, labels=LABELS, predictions=LABELS)
    to = tmp_path / "out" / "my-model"
    publish(read_run(run), to, Catalogue())
    card = (to / "README.md").read_text()
    assert 'AutoModelForSequenceClassification.from_pretrained("my-model")' in card
    assert "**90.00 %** accuracy [85.83, 94.17] (95 % over 200 examples)" in card
    assert "\noelm run tiny-bert --seed 42 --set=data.path=reviews\n" in card
    assert "Against `tiny-baseline`: -10.00 pp" in card
    assert "confounds" in card
    assert "Frozen weights did not change" in card
    assert "| `train.lr` | 0.001 |" in card
    assert "/secret" not in card
    assert (to / "model.safetensors").stat().st_mode == (to / "config.json").stat().st_mode
    assert sorted(path.name for path in to.parent.iterdir()) == ["my-model"]
    with pytest.raises(Refused, match="is there already and is not empty; name another folder"):
        publish(read_run(run), to, Catalogue())


def test_a_run_without_a_checkpoint_is_refused_and_leaves_nothing(here: None, tmp_path: Path) -> None:
    run, _ = run_with_checkpoint(tmp_path / "runs", tiny(BERT, "train.max_steps=400", "train.eval_every=100"))
    (run.checkpoints / "step-400" / "model.safetensors").unlink()
    with pytest.raises(
        NotFound, match=r"has no best checkpoint that can be read: step-400: model.safetensors is missing"
    ):
        publish(read_run(run), tmp_path / "out", Catalogue())
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def write(folder: RunFolder, capsysbinary: pytest.CaptureFixture[bytes], **options: Any) -> str:
    settings = {"prompt": TEXT, "length": 8, "temperature": 0.8, "top_k": 50, "seed": 42} | options
    writer.write(folder, **settings)
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    return "".join(line.get("text", "") for line in lines)


def test_a_seed_decides_what_is_written_and_zero_temperature_takes_the_likeliest(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_DEVICE", "cpu")
    run, model = run_with_checkpoint(tmp_path / "runs", tiny(GPT, "train.max_steps=400", "train.eval_every=100"))
    first, again, other = (write(run, capsysbinary, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.startswith(TEXT)
    likeliest = write(run, capsysbinary, temperature=0.0)
    from oelm_core.data.tokenizers import demo_tokenizer

    tokenizer = demo_tokenizer()
    ids = tokenizer(TEXT, add_special_tokens=False, return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=0)
    assert likeliest == tokenizer.decode(out[0], skip_special_tokens=True)


def test_the_command_names_the_runs_and_a_classifier_cannot_write(tmp_path: Path) -> None:
    experiment = tiny(GPT, "train.max_steps=400", "train.eval_every=100")
    one, _ = run_with_checkpoint(tmp_path / "runs", experiment)
    two, _ = run_with_checkpoint(tmp_path / "runs", experiment, number=1, seed=43)
    oelm = Oelm(tmp_path)
    ended = oelm("generate", one.id, two.id, "--prompt", f"{TEXT} zzz", "--length", "500")
    assert ended.returncode == 0, ended.stderr
    assert f"{one.id}, step 400:\n{TEXT}" in ended.stdout
    assert f"{two.id}, step 400:\n{TEXT}" in ended.stdout
    assert f"{one.id}: 1 of the prompt's 13 tokens are unknown to it; it has room for 51 tokens" in ended.stderr
    classifier, _ = run_with_checkpoint(tmp_path / "runs", tiny(BERT), number=2)
    refused = oelm("generate", classifier.id, "--prompt", "so")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"oelm: {classifier.id} is a classifier; only a language model continues a text.\n"
