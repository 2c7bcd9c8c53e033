"""Imported runs of one recipe are one arm, their network is known by its shape, and what was chosen is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from oelm_core.compare import Comparison, compare_runs
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.published.import_runs import Imported, import_folders
from oelm_core.runs.store import list_runs
from oelm_tui import cli

SIZES = {"num_classes": 2, "vocab_size": 50257, "d_model": 512, "num_layers": 6, "num_heads": 8, "d_ff": 2048}
RECIPE = {"max_seq_len": 512, "dropout": 0.1, "dataset": "imdb", "batch_size": 16, "num_epochs": 3, "warmup_steps": 500}
LATER = {**SIZES, **RECIPE, "weight_decay": 0.01, "eval_interval": 1000, "device": "cuda:2", "log_interval": 100}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_folders([SHIPPED])


def later(folder: Path, model: str = "oelm_qk_ffn", lr: float = 1e-3, seed: int = 42, **results: float) -> Path:
    """As the author's classification program leaves it."""
    folder.mkdir(parents=True)
    config = {**LATER, "model_type": model, "learning_rate": lr, "seed": seed, "output_dir": f"/outputs/{folder.name}"}
    results = results or {"best_accuracy": 86.56, "final_val_accuracy": 82.968}
    written = {"model_type": model, "dataset": "imdb", **results, "avg_step_time": 0.17 + seed / 1e6, "config": config}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text(json.dumps(written))
    (folder / "timing_stats.json").write_text(json.dumps({"epoch_times": [366.1, 578.9, 577.2], "step_times": [0.2]}))
    return folder


def bert(
    folder: Path, mode: str, lr: float, accuracy: float, *, seed: int | None = 42, init: str = "orthogonal"
) -> Path:
    """As the author's BERT program leaves it."""
    folder.mkdir(parents=True)
    stats = {"mode": mode, "total_wall_time": 2148.0 + accuracy, "mean_time_per_step": 0.33, "num_steps_measured": 6215}
    (folder / "timing_stats.json").write_text(json.dumps(stats))
    (folder / "training.log").write_text(
        f"2026-02-07 18:07:44 - INFO - Learning rate: {lr} (auto-selected: True)\n"
        + (f"2026-02-07 18:07:44 - INFO - Seed: {seed}\n" if seed is not None else "")
        + f"2026-02-07 18:07:45 - INFO - Loading BERT with head-wise {init} initialization...\n"
        "2026-02-07 18:13:01 - INFO - \nStep 500: Running validation...\n"
        "2026-02-07 18:13:09 - INFO - Validation - Loss: 0.3380, Accuracy: 0.8819, F1: 0.8872\n"
        "2026-02-07 18:43:20 - INFO - \nStep 6000: Running validation...\n"
        f"2026-02-07 18:43:32 - INFO - Validation - Loss: 0.3, Accuracy: {accuracy}, F1: 0.9\nTraining completed!\n"
    )
    return folder


def gpt(folder: Path, model: str, perplexity: float, **stats: float | str) -> Path:
    """As the author's GPT program leaves it."""
    folder.mkdir(parents=True)
    init = "orthogonal" if model == "oelm_freeze" else "normal"
    content = {"model_type": model, "init_method": init, "dataset": "tinystories", "total_wall_time": 16260.0}
    (folder / "timing_stats.json").write_text(json.dumps({**content, "final_perplexity": perplexity, **stats}))
    return folder


def imported(paths: Sequence[Path], catalogue: Catalogue, root: Path) -> list[Imported]:
    found = list(import_folders(paths, catalogue, root))
    assert all(isinstance(one, Imported) for one in found)
    return [one for one in found if isinstance(one, Imported)]


def compared(paths: Sequence[Path], catalogue: Catalogue, root: Path) -> Comparison:
    imported(paths, catalogue, root)
    return compare_runs(list_runs(root), catalogue)


# -- replicates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        [f"sst2_oelm_seed{seed}" for seed in range(42, 47)],
        [f"sst2-oelm/s{seed}" for seed in range(42, 47)],
        [f"seed_{seed}/sst2_oelm" for seed in range(42, 47)],
        [f"sst2_oelm_run{n}_2026020{n}_212017" for n in range(1, 6)],
    ],
)
def test_five_seeds_in_five_folders_are_one_arm(tmp_path, catalogue, names):
    scores = [0.9117, 0.9128, 0.9140, 0.9105, 0.9151]
    for n, (name, score) in enumerate(zip(names, scores, strict=True)):
        bert(tmp_path / "out" / name, "oelm", 1e-4, score, seed=42 + n if "run" in name else None)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    (arm,) = group.arms
    assert arm.seeds == (42, 43, 44, 45, 46)
    assert arm.metric is not None
    assert (arm.metric.n, arm.metric.mean) == (5, pytest.approx(sum(scores) / 5))


def test_a_recipe_that_is_told_in_full_is_one_arm_whatever_its_folders_are_called(tmp_path, catalogue):
    for seed, name in enumerate("abcde", 42):
        later(tmp_path / "out" / name, seed=seed)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert [arm.seeds for arm in group.arms] == [(42, 43, 44, 45, 46)]


def test_what_the_files_do_not_tell_is_not_taken_for_the_same(tmp_path, catalogue):
    gpt(tmp_path / "out" / "GPT-02_warm_seed42", "oelm_freeze", 4.69)
    gpt(tmp_path / "out" / "GPT-02_cold_seed43", "oelm_freeze", 4.71)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert sorted(arm.seeds for arm in group.arms) == [(42,), (43,)]


def test_the_same_seed_twice_under_two_names_is_not_two_seeds_of_one_arm(tmp_path, catalogue):
    later(tmp_path / "out" / "first", seed=42, best_accuracy=86.0)
    later(tmp_path / "out" / "second", seed=42, best_accuracy=87.0)
    later(tmp_path / "out" / "third", seed=43, best_accuracy=88.0)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert sorted(arm.seeds for arm in group.arms) in ([(42,), (42, 43)], [(42, 43), (42,)])


def test_runs_whose_seed_nobody_knows_do_not_count_as_several_seeds(tmp_path, catalogue):
    for n in (1, 2, 3):
        gpt(tmp_path / "out" / f"GPT-02_oelm_run{n}", "oelm_freeze", 4.6 + n / 100)
    comparison = compared([tmp_path / "out"], catalogue, tmp_path / "runs")
    ((arm,),) = [group.arms for group in comparison.groups]
    assert len(arm.runs) == 1
    assert sum("no seed that would tell them apart" in line for line in comparison.footnotes) == 2


def test_a_seed_and_a_rate_that_only_the_name_tells_are_said_to_come_from_it(tmp_path, catalogue):
    (made,) = imported([gpt(tmp_path / "GPT-02_lr5e-4_seed7", "oelm_freeze", 4.8)], catalogue, tmp_path / "runs")
    assert (made.run.preset, made.run.seed, made.run.setting("train.lr")) == ("GPT-02", 7, 5e-4)
    assert "the seed is taken from the folder's name, 7." in made.notes
    assert "the learning rate is taken from the folder's name, 0.0005." in made.notes


def test_one_odd_value_does_not_cost_the_rest_of_its_file(tmp_path, catalogue):
    folder = later(tmp_path / "odd", seed=42)
    config = {**LATER, "epochs": [1], "learning_rate": 1e-3, "dataset": "im\ndb", "seed": 42}
    (folder / "config.json").write_text(json.dumps(config))
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    assert made.run.setting("train.lr") == 1e-3
    assert "unreadable: config.json, epochs: expected `float | null`, got `array`; it is left out." in made.notes


def test_settings_in_results_that_are_none_are_said(tmp_path, catalogue):
    folder = later(tmp_path / "odd", seed=42)
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps({**results, "config": [1]}))
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    assert "unreadable: results.json, config: it should hold settings; it is left out." in made.notes


def test_numbers_that_no_program_writes_are_left_out_of_a_log_and_said(tmp_path, catalogue):
    folder = tmp_path / "GPT-01_x"
    folder.mkdir()
    nines = "9" * 7000
    (folder / "training.log").write_text(
        f"2026-99-99 99:99:99 - INFO - Seed: {nines}\n[Step {nines}] Validation - Loss: 1.0, PPL: 2.7\n"
        f"Epoch {nines}:   2%|▏  | {nines}/2105 [00:16<11:12,  3.06it/s, loss={nines}]\n"
        "[Step 1000] Validation - Loss: 1.5, PPL: 4.48\n"
    )
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    assert (made.run.metric_value, made.run.step) == (4.48, 1000)
    assert any(note.startswith("unreadable: training.log, Validation: no step or no number in") for note in made.notes)


# -- the network -------------------------------------------------------------------------------------------------------


def encoder_shapes(layers: int, d: int, vocab: int, positions: int, types: int, classes: int) -> dict[str, list[int]]:
    shapes = {
        "embeddings.word_embeddings.weight": [vocab, d],
        "embeddings.position_embeddings.weight": [positions, d],
        "embeddings.token_type_embeddings.weight": [types, d],
        **{f"embeddings.LayerNorm.{part}": [d] for part in ("weight", "bias")},
        "pooler.dense.weight": [d, d],
        "pooler.dense.bias": [d],
    }
    for n in range(layers):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"encoder.layer.{n}.{part}.weight": [d, d], f"encoder.layer.{n}.{part}.bias": [d]}
        wide, narrow = f"encoder.layer.{n}.intermediate.dense", f"encoder.layer.{n}.output.dense"
        shapes |= {f"{wide}.weight": [4 * d, d], f"{wide}.bias": [4 * d]}
        shapes |= {f"{narrow}.weight": [d, 4 * d], f"{narrow}.bias": [d]}
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"encoder.layer.{n}.{norm}.weight": [d], f"encoder.layer.{n}.{norm}.bias": [d]}
    named = {f"bert.{name}": shape for name, shape in shapes.items()}
    return named | {"classifier.weight": [classes, d], "classifier.bias": [classes]}


def decoder_shapes(layers: int, d: int, vocab: int, positions: int, head: str = "lm_head") -> dict[str, list[int]]:
    shapes = {"token_embedding.weight": [vocab, d], "position_embedding.weight": [positions, d]}
    for n in range(layers):
        shapes |= {f"layers.{n}.self_attn.W_{part}.weight": [d, d] for part in "qkvo"}
        shapes |= {f"layers.{n}.ffn.0.weight": [4 * d, d], f"layers.{n}.ffn.0.bias": [4 * d]}
        shapes |= {f"layers.{n}.ffn.3.weight": [d, 4 * d], f"layers.{n}.ffn.3.bias": [d]}
        shapes |= {f"layers.{n}.norm{k}.{part}": [d] for k in (1, 2) for part in ("weight", "bias")}
    shapes |= {"norm.weight": [d], "norm.bias": [d]}
    if head == "lm_head":
        return shapes | {"lm_head.weight": [vocab, d]}
    return shapes | {"classifier.weight": [2, d], "classifier.bias": [2]}


def save_index(path: Path, shapes: dict[str, list[int]]) -> None:
    """A safetensors file cut off after its index: that is all an import reads."""
    header = json.dumps({n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)


NETWORKS = {
    "bert-base-uncased": (encoder_shapes(12, 768, 30522, 512, 2, 2), "bert", (12, 768, 12, 3072, 30522, 512)),
    "bert-large-uncased": (encoder_shapes(24, 1024, 30522, 512, 2, 2), "bert", (24, 1024, 16, 4096, 30522, 512)),
    "roberta-base": (encoder_shapes(12, 768, 50265, 514, 1, 2), "bert", (12, 768, 12, 3072, 50265, 514)),
    "gpt-medium-512": (decoder_shapes(6, 512, 50257, 512), "gpt", (6, 512, 8, 2048, 50257, 512)),
    "gpt-4x256": (decoder_shapes(4, 256, 8000, 128), "gpt", (4, 256, None, 1024, 8000, 128)),
    "bert-12x768": (encoder_shapes(12, 768, 21128, 512, 2, 2), "bert", (12, 768, None, 3072, 21128, 512)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_recognised_by_the_shapes_of_its_tensors(tmp_path, catalogue, name):
    shapes, family, sizes = NETWORKS[name]
    folder = tmp_path / "some_run"
    folder.mkdir()
    (folder / "training.log").write_text("[Step 1000] Validation - Loss: 1.5, PPL: 4.48\n")
    save_index(folder / "model.safetensors", {f"module.{key}": shape for key, shape in shapes.items()})
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    assert (made.run.family, made.run.setting("model.name")) == (family, name)
    shape = made.run.setting("model.shape")
    keys = ("layers", "d_model", "heads", "d_ff", "vocab", "positions")
    assert tuple(shape.get(key) for key in keys) == sizes


def test_a_decoder_that_classifies_is_a_gpt_with_its_number_of_classes(tmp_path, catalogue):
    folder = bert(tmp_path / "trial", "baseline", 3e-4, 0.8)
    save_index(folder / "best.safetensors", decoder_shapes(6, 512, 50257, 512, head="classifier"))
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    found = made.run.family, made.run.setting("model.name"), made.run.setting("data.classes")
    assert found == ("gpt", "gpt-medium-512", 2)


def test_without_a_checkpoint_the_sizes_in_its_settings_name_the_network(tmp_path, catalogue):
    (made,) = imported([later(tmp_path / "IMDB_x")], catalogue, tmp_path / "runs")
    assert (made.run.family, made.run.setting("model.name")) == ("gpt", "gpt-medium-512")


def test_a_checkpoint_tells_the_settings_it_was_trained_with(tmp_path, catalogue):
    import torch

    folder = gpt(tmp_path / "GPT-02_oelm", "oelm_freeze", 4.69)
    shapes = decoder_shapes(6, 512, 50257, 512)
    weights = {name: torch.zeros(1).expand(*shape) for name, shape in shapes.items()}
    arguments = {"seed": 45, "max_lr": 1e-3, "batch_size": 8, "max_steps": 100000, "num_heads": 8, "seq_len": 512}
    torch.save({"model": weights, "step": 99000, "args": {**arguments, "resume": None}}, folder / "best.pt")
    (made,) = imported([folder], catalogue, tmp_path / "runs")
    train = made.run.config["train"]
    assert (made.run.seed, train["lr"], train["batch_size"], train["max_steps"]) == (45, 1e-3, 8, 100000)


# -- what was chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "note", "value"),
    [
        (
            {"best_accuracy": 86.56, "final_val_accuracy": 82.968},
            "the accuracy is that of the best of 3 validations, 86.56 %; the last is 82.97 %.",
            0.8656,
        ),
        (
            {"best_accuracy": 86.56},
            "the accuracy is that of the best of 3 validations, 86.56 %; the last is not in its files.",
            0.8656,
        ),
        (
            {"final_val_accuracy": 82.968},
            "the accuracy is that of the last validation, 82.97 %; the best is not in its files.",
            0.82968,
        ),
    ],
)
def test_a_note_says_whether_a_figure_is_the_best_or_the_last(tmp_path, catalogue, results, note, value):
    (made,) = imported([later(tmp_path / "x", **results)], catalogue, tmp_path / "runs")
    assert note in made.notes
    assert made.run.metric_value == pytest.approx(value)


def test_a_final_perplexity_is_said_to_be_the_best_ones_or_in_doubt(tmp_path, catalogue):
    sound = gpt(tmp_path / "GPT-01_a", "baseline", 4.27, best_val_loss=1.4516, num_validations=99)
    doubtful = gpt(tmp_path / "GPT-01_b", "baseline", 4.27, best_val_loss=1.30)
    notes = [made.notes for made in imported([sound, doubtful], catalogue, tmp_path / "runs")]
    assert "the perplexity is that of the best of 99 validations, 4.270; the last is not in its files." in notes[0]
    assert not any("in doubt" in note for note in notes[0])
    assert any("not exp of best_val_loss 1.3" in note for note in notes[1])


def test_a_best_set_against_a_last_is_a_finding(tmp_path, catalogue):
    later(tmp_path / "out" / "base", "baseline", best_accuracy=86.0, final_val_accuracy=85.0)
    later(tmp_path / "out" / "arm", "oelm_freeze", final_val_accuracy=84.0)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    (finding,) = [f for f in group.audit if f.code == "best-against-final"]
    assert finding.grade == "confounds"
    assert "base is its best validation's, that of arm its last" in finding.why


def sweep(out: Path) -> None:
    for rate, best in ((1e-3, 85.84), (3e-3, 86.92), (1e-2, 86.56)):
        later(out / f"IMDB_oelm_qk_ffn_lr{rate:g}", lr=rate, best_accuracy=best)


def test_folders_that_differ_in_the_rate_alone_are_a_sweep(tmp_path, catalogue):
    sweep(tmp_path / "out")
    later(tmp_path / "out" / "IMDB_baseline", "baseline", lr=3e-4, best_accuracy=86.5)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    (finding,) = [f for f in group.audit if f.code == "sweep"]
    assert (finding.grade, len(finding.arms)) == ("confounds", 3)
    assert "3 learning rates (1e-3, 3e-3, 1e-2)" in finding.why
    assert "IMDB_oelm_qk_ffn_lr0.003 is the best of them, and IMDB_baseline was run at one rate." in finding.why


def test_a_sweep_without_a_baseline_is_noted_too(tmp_path, catalogue):
    sweep(tmp_path / "out")
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert [f.grade for f in group.audit if f.code == "sweep"] == ["note"]


def test_the_best_of_a_sweep_alone_in_a_table_is_still_one_of_a_sweep(tmp_path, catalogue):
    sweep(tmp_path / "out")
    later(tmp_path / "out" / "IMDB_baseline", "baseline", lr=3e-4, best_accuracy=86.5)
    made = imported([tmp_path / "out"], catalogue, tmp_path / "runs")
    best = [one.run for one in made if one.run.setting("train.lr") in (3e-3, 3e-4)]
    (group,) = compare_runs(best, catalogue).groups
    (finding,) = [f for f in group.audit if f.code == "sweep"]
    assert finding.grade == "confounds"
    assert "3 learning rates" in finding.why


def test_other_methods_at_other_rates_are_no_sweep(tmp_path, catalogue):
    later(tmp_path / "out" / "a", "baseline", lr=3e-4)
    later(tmp_path / "out" / "b", "oelm_freeze", lr=1e-3)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert not [f for f in group.audit if f.code == "sweep"]


# -- what settles a doubt ----------------------------------------------------------------------------------------------


def presets_named(comparison: Comparison) -> set[str]:
    """Presets that the remedies of a table would run."""
    found = set()
    for remedy in (f.settle_with for group in comparison.groups for f in group.audit if f.settle_with):
        words = remedy.split() if remedy.startswith("oelm run") else ["oelm", "run", remedy]
        found |= {word for word in words[2:] if "=" not in word and word != "--set"}
    return found


def test_a_remedy_names_a_preset_that_is_there_or_none(tmp_path, catalogue):
    later(tmp_path / "out" / "IMDB_baseline", "baseline", lr=3e-4)
    later(tmp_path / "out" / "IMDB_oelm", "oelm_freeze", lr=1e-3)
    comparison = compared([tmp_path / "out"], catalogue, tmp_path / "runs")
    assert any(f.code == "lr" for group in comparison.groups for f in group.audit)
    assert presets_named(comparison) <= set(catalogue.experiments)


def test_imports_that_are_like_presets_are_settled_by_their_control(tmp_path, catalogue):
    base = bert(tmp_path / "out" / "reference_seed42", "baseline", 2e-5, 0.9312)
    arm = bert(tmp_path / "out" / "ours_seed42", "oelm", 1e-4, 0.9128)
    for folder in (base, arm):
        save_index(folder / "best.safetensors", NETWORKS["bert-base-uncased"][0])
        stats = json.loads((folder / "timing_stats.json").read_text())
        (folder / "timing_stats.json").write_text(json.dumps({**stats, "dataset": "sst2"}))
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    assert {f.code: f.settle_with for f in group.audit}["lr"] == "sst2-oelm-same-lr"


def test_a_baseline_whose_log_says_that_q_and_k_were_made_orthonormal_is_none(tmp_path, catalogue):
    bert(tmp_path / "out" / "sst2-baseline_seed42", "baseline", 2e-5, 0.9312)
    bert(tmp_path / "out" / "sst2-oelm_seed42", "oelm", 1e-4, 0.9128)
    (group,) = compared([tmp_path / "out"], catalogue, tmp_path / "runs").groups
    trust = next(f for f in group.audit if f.code == "untouched-baseline")
    assert (trust.grade, trust.settle_with) == ("breaks", "oelm run sst2-baseline")
    assert "made orthonormal" in trust.why


def test_the_command_says_the_sweep_and_the_best(tmp_path, monkeypatch, capsys):
    sweep(tmp_path / "out")
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.argv", ["oelm", "import", str(tmp_path / "out")])
    cli.main()
    said = capsys.readouterr()
    assert len(said.out.split()) == 3
    assert said.err.count("a sweep: 3 learning rates (1e-3, 3e-3, 1e-2) of one recipe") == 3
    assert "best of 3 validations, 86.92 %" in said.err
