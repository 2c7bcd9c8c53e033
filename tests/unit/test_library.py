"""The library as docs/library.md shows it: its scripts run, and its names load torch only when used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from oelm_core import Method, OelmCallback, Report, apply, verify
from oelm_core.errors import BadInput
from oelm_core.method.freezing import FrozenChanged
from oelm_core.models.projections import join_rows
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


def waiting(model: torch.nn.Module, **schedule: object) -> Report:
    keys = {"init": "head-qr", "freeze": ["query", "key"], "unfreeze": {"at": 4, **schedule}}
    return apply(model, Method.model_validate(keys))


def test_an_optimiser_that_would_never_move_what_is_let_go_is_refused(tmp_path: Path) -> None:
    model = small()
    report = waiting(model)
    texts = [{"input_ids": torch.randint(0, 50, (8,)), "labels": 0}]
    settings = TrainingArguments(str(tmp_path), max_steps=8, report_to=[], save_strategy="no", disable_tqdm=True)
    late = Trainer(model, settings, train_dataset=texts)
    late.add_callback(OelmCallback(report))  # too late to have its weights put into the optimiser
    with pytest.raises(BadInput, match=r"query\.weight is to be let go and is not in the optimiser"):
        late.train()
    watch = OelmCallback(report)
    with pytest.raises(BadInput, match=r"Make that of model\.parameters\(\)"):
        watch.begin(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))
    watch.begin(model, torch.optim.AdamW(model.parameters()))


def test_a_layer_is_proven_when_it_is_let_go_and_none_may_be_forgotten() -> None:
    model = small()
    watch = OelmCallback(waiting(model, order="top-down", every=2))
    watch.step(model, 4, total=8)
    with torch.no_grad():
        attention_layers(model)[0].query.weight.add_(1e-6)
    watch.step(model, 5, total=8)
    with pytest.raises(FrozenChanged, match="layer 0 query weight changed, although frozen"):
        watch.step(model, 6, total=8)
    with pytest.raises(BadInput, match="lets layer 0 go at step 6, but training ends at step 6"):
        watch.step(model, 0, total=6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", ["keep", "unit"])
def test_a_model_in_a_half_type_is_as_orthogonal_as_its_type_can_be(dtype: torch.dtype, scale: str) -> None:
    model = small().to(dtype)  # how pretrained decoders are loaded
    report = apply(model, Method.model_validate({"init": "head-qr", "scale": scale, "freeze": ["query", "key"]}))
    verify(model, report)
    assert report.orthogonality.tolerance == 2 * torch.finfo(dtype).eps


def test_a_report_speaks_of_what_the_method_made() -> None:
    partly = str(apply(small(), Method(init="head-qr", freeze=("query",), layers="last:1")))
    assert re.search(r"^head-qr on 1 of 2 layers of attention: 272 of .* orthogonal to \de-0[78]\.$", partly)
    assert "orthogonal" not in str(apply(small(), Method(freeze=("query", "key"))))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"init": "qr"}, "Method: key 'init' is \"qr\"; it should be 'none', 'head-qr'"),
        ({"frezee": ("query",)}, "Method: unknown key 'frezee'. Did you mean freeze"),
        ({"unfreeze": {"at": 4}}, "Method: unfreeze is set but nothing is frozen"),
    ],
)
def test_a_method_that_cannot_be_is_refused_in_one_sentence(keys: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Method(**keys)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"), pytest.raises(BadInput, match="is on the meta device and has no values yet"):
        apply(small(), Method(init="head-qr"))


def test_adapters_are_merged_after_a_split_weight_is_joined() -> None:
    """As docs/library.md says: a split weight is made anew each time, so what peft writes into it would be lost."""
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **sizes)).eval()
    apply(model, Method(init="head-qr", freeze=("query", "key")))
    adapted = get_peft_model(model, LoraConfig(target_modules=["c_attn"], init_lora_weights=False)).eval()
    ids = torch.arange(8)[None]
    before = adapted(ids).logits
    join_rows(adapted)
    assert torch.allclose(adapted.merge_and_unload()(ids).logits, before, atol=1e-5)


def test_the_names_of_a_script_are_typed(tmp_path: Path) -> None:
    file, settings = tmp_path / "script.py", tmp_path / "mypy.ini"
    file.write_text(
        "from oelm_core import Extras, Method, Unfreeze\n"
        'Method(source="gaussian", freeze=("query",), extras=Extras(), unfreeze=Unfreeze(at=0.5))\n'
        'Method(frezee=("query",))\n'
    )
    # torch and transformers take mypy a minute to read, and these names have nothing of theirs
    settings.write_text(
        "[mypy]\nignore_missing_imports = true\n[mypy-torch.*,transformers.*,peft.*]\nfollow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", f"--config-file={settings}", f"--cache-dir={tmp_path}", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert re.findall(r"script\.py:(\d+): error", said) == ["3"], said
