"""The library as docs/library.md shows it: its scripts run, and its names load torch only when used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from oelm_core import Method, OelmCallback, apply
from oelm_core.method.freezing import FrozenChanged
from oelm_core.models.structure import attention_layers

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.S)


@pytest.mark.parametrize("script", SCRIPTS, ids=["two lines", "trainer", "own loop"])
def test_a_script_of_the_docs_runs(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(script, "docs/library.md", "exec"), {"__name__": "__main__"})
    if "print(report)" in script:
        said = capsys.readouterr().out
        assert re.search(r"head-qr on 2 layers of attention: 16,640 of [\d,]+ parameters frozen \(\d", said)


def test_the_package_loads_no_torch_until_a_name_is_used() -> None:
    code = "import sys, oelm_core; assert 'apply' in dir(oelm_core); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def trained(callback: OelmCallback, model: torch.nn.Module, folder: Path, steps: int = 8) -> list[list[bool]]:
    """Which layers' keys may move, at each step of a Trainer."""
    seen = []

    class Watch(OelmCallback):
        def on_step_end(self, args: object, state: object, control: object, **more: object) -> None:
            seen.append([layer.key.weight.requires_grad for layer in attention_layers(model)])

    settings = TrainingArguments(str(folder), max_steps=steps, report_to=[], save_strategy="no", disable_tqdm=True)
    texts = [{"input_ids": torch.randint(0, 50, (8,)), "labels": i % 2} for i in range(32)]
    Trainer(model, settings, train_dataset=texts, callbacks=[callback, Watch(callback.report)]).train()
    return seen


def small() -> BertForSequenceClassification:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**sizes, vocab_size=50))


def test_the_trainer_lets_layers_go_from_the_top_and_trains_them_from_then_on(tmp_path: Path) -> None:
    model = small()
    schedule = {"at": 4, "order": "top-down", "every": 2}
    report = apply(model, Method.model_validate({"init": "head-qr", "freeze": ["query", "key"], "unfreeze": schedule}))
    before = [layer.key.weight.detach().clone() for layer in attention_layers(model)]
    assert (
        trained(OelmCallback(report), model, tmp_path)
        == [[False, False]] * 4 + [[False, True]] * 2 + [[True, True]] * 2
    )
    assert all(
        not torch.equal(layer.key.weight, was) for layer, was in zip(attention_layers(model), before, strict=True)
    )


def test_the_trainer_ends_with_an_error_where_a_frozen_weight_moved(tmp_path: Path) -> None:
    model = small()
    report = apply(model, Method(init="head-qr", freeze=("query",)))
    attention_layers(model)[1].query.weight.requires_grad_(True)  # someone's later line
    with pytest.raises(FrozenChanged, match=r"layer 1 query weight changed, although frozen"):
        trained(OelmCallback(report), model, tmp_path)
