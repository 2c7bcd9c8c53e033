"""What trains and what does not: frozen flags, integrity of heads, hashes, and the optimiser's groups."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from oelm_core.errors import BadInput
from oelm_core.method.freezing import (
    FrozenChanged,
    UnfreezeSchedule,
    apply_freezing,
    apply_unfreezing,
    check_integrity,
    freeze_model_parameters,
    frozen_hash,
    group_lr,
    parameter_groups,
)
from oelm_core.models import build
from oelm_core.models.structure import attention_layers
from tests.small_models import ALL_EXTRAS, OELM, experiment, loss_of, prepared, tokens

ARCHITECTURES = ["bert", "roberta", "gpt"]


def frozen_names(method: dict[str, object], arch: str = "bert") -> set[str]:
    return set(prepared(experiment(arch, {**OELM, **method}))[1].names)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_query_and_key_are_frozen_with_their_biases_and_nothing_else(arch: str) -> None:
    model, frozen = prepared(experiment(arch, OELM))
    still = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert still == set(frozen.names)
    biases = 0 if arch == "gpt" else 6
    assert len(still) == 6 + biases


def test_freezing_goes_by_structure_and_not_by_names() -> None:
    class Keyed(nn.Module):
        """Has "key" in a name that is no key projection."""

        def __init__(self) -> None:
            super().__init__()
            self.keyboard = nn.Linear(4, 4)
            self.inner = build(experiment("bert"), seed=0)

    model = Keyed()
    freeze_model_parameters(model)
    assert model.keyboard.weight.requires_grad
    assert not attention_layers(model)[0].key.weight.requires_grad


def test_layers_sides_and_feed_forward_can_be_chosen() -> None:
    layer_2 = "bert.encoder.layer.2.attention.self."
    assert frozen_names({"layers": "last:1", "freeze": ["query"]}) == {f"{layer_2}query.weight", f"{layer_2}query.bias"}
    assert len(frozen_names({"layers": "0-1"})) == 8
    assert frozen_names({"layers": "none"}) == set()
    with_ffn = frozen_names({"freeze": ["ffn"], "layers": [1]}, "gpt")
    assert with_ffn == {"model.layers.1.ffn.up.weight", "model.layers.1.ffn.down.weight"}  # biases train


def test_learned_biases_stay_out_of_the_ice() -> None:
    names = frozen_names({"extras": ALL_EXTRAS})
    assert names
    assert not any(name.endswith("bias") for name in names)


def test_freezing_again_with_another_method_starts_afresh() -> None:
    model, _ = prepared(experiment("gpt", OELM))
    freeze_model_parameters(model, freeze_mode=False)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arch", "head"), [("bert", "bert.pooler"), ("bert", "classifier"), ("roberta", "classifier"), ("gpt", "lm_head")]
)
def test_a_frozen_head_is_refused(arch: str, head: str) -> None:
    model, _ = prepared(experiment(arch, OELM))
    model.get_submodule(head).requires_grad_(False)
    with pytest.raises(BadInput, match=head):
        check_integrity(model)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_frozen_and_unfrozen_forward_passes_are_identical(arch: str) -> None:
    model, _ = prepared(experiment(arch, OELM))
    free = copy.deepcopy(model).requires_grad_(True)
    model.eval()
    free.eval()
    with torch.no_grad():
        assert torch.equal(model(tokens()).logits, free(tokens()).logits)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_training_moves_everything_but_the_frozen(arch: str) -> None:
    exp = experiment(arch, OELM, train={"weight_decay": 0.1})
    model, frozen = prepared(exp)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seal = frozen.hash(model)
    optimiser = torch.optim.AdamW(parameter_groups(model, exp))
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(before) - len(frozen.names)
    loss_of(model, tokens()).backward()
    optimiser.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == set(before) - set(frozen.names)
    frozen.verify(model, seal)


def test_a_changed_frozen_weight_fails_the_run() -> None:
    model, frozen = prepared(experiment("gpt", OELM))
    seal = frozen.hash(model)
    with torch.no_grad():
        attention_layers(model)[1].query.weight[0, 0] *= -1
    with pytest.raises(FrozenChanged):
        frozen.verify(model, seal)


def test_a_hash_sees_names_dtype_shape_and_bytes() -> None:
    model = nn.Linear(2, 2)
    first = frozen_hash(model, ["weight"])
    assert frozen_hash(model, ["bias"]) != first
    assert frozen_hash(model.double(), ["weight"]) != first
    assert len(frozen_hash(model.bfloat16(), ["weight", "bias"])) == 64


def test_rates_fall_from_layer_to_layer_and_query_and_key_have_their_own() -> None:
    exp = experiment("bert", {"name": "decay", "layer_decay": 0.5, "qk_lr": 0.1})
    model, _ = prepared(exp)
    scale = {id(p): group["lr_scale"] for group in parameter_groups(model, exp) for p in group["params"]}
    layers = attention_layers(model)
    assert [scale[id(layer.value.weight)] for layer in layers] == [0.25, 0.5, 1.0]
    assert [scale[id(layer.query.weight)] for layer in layers] == pytest.approx([0.025, 0.05, 0.1])
    assert scale[id(model.classifier.weight)] == 1.0
    assert scale[id(model.bert.embeddings.word_embeddings.weight)] == 0.125


def test_a_tied_embedding_learns_at_the_heads_rate() -> None:
    exp = experiment("gpt", {"name": "decay", "layer_decay": 0.5})
    model, _ = prepared(exp)
    scale = {id(p): group["lr_scale"] for group in parameter_groups(model, exp) for p in group["params"]}
    assert scale[id(model.lm_head.weight)] == 1.0
    assert scale[id(model.model.embed_positions.weight)] == 0.125


def test_one_plain_group_when_nothing_asks_for_more() -> None:
    exp = experiment("gpt", OELM)
    groups = parameter_groups(prepared(exp)[0], exp)
    assert len(groups) == 1
    assert groups[0]["weight_decay"] == 0.01
    assert group_lr(groups[0], 3e-4, step=7) == 3e-4


def unfreezing(**keys: object) -> dict[str, object]:
    return {**OELM, "unfreeze": {"at": 0.5, "warmup": 4, **keys}}


def test_a_schedule_is_a_function_of_the_step() -> None:
    together = UnfreezeSchedule.of(experiment("gpt", unfreezing()), 3)
    assert together is not None
    assert together.trains(49) == frozenset()
    assert together.trains(50) == {0, 1, 2}
    assert [together.ramp(step, 50, together.warmup) for step in (49, 50, 51, 53, 90)] == [0.0, 0.25, 0.5, 1.0, 1.0]
    down = UnfreezeSchedule.of(experiment("gpt", unfreezing(at=10, order="top-down", every=20)), 3)
    assert down is not None
    assert down.starts == {2: 10, 1: 30, 0: 50}
    assert down.trains(30) == {1, 2}
    assert [step for step in range(100) if down.changes_at(step)] == [10, 30, 50]


def test_top_down_without_a_gap_spreads_over_what_is_left() -> None:
    schedule = UnfreezeSchedule.of(experiment("gpt", unfreezing(order="top-down")), 3, total_steps=90)
    assert schedule is not None
    assert schedule.starts == {2: 45, 1: 60, 0: 75}


def test_a_schedule_past_the_end_is_refused_before_anything_is_built() -> None:
    with pytest.raises(BadInput, match=r"unfreeze.at 100 is past the end of training at step 100"):
        experiment("gpt", unfreezing(at=100))
    with pytest.raises(BadInput, match=r"unfreeze.every 40 lets the last of 3 layers go past .* step 100"):
        experiment("gpt", unfreezing(at=40, order="top-down", every=40))
    in_epochs = {"max_steps": None, "epochs": 2.0}
    with pytest.raises(BadInput, match=r"unfreeze.every 0.3 lets the last of 3 layers go past the end"):
        experiment("gpt", unfreezing(at=0.5, order="top-down", every=0.3), train=in_epochs)


def test_a_recipe_in_epochs_is_checked_when_its_steps_are_known() -> None:
    in_epochs = experiment(
        "gpt", unfreezing(at=40, order="top-down", every=40), train={"max_steps": None, "epochs": 2.0}
    )
    with pytest.raises(BadInput, match="number of steps"):
        UnfreezeSchedule.of(in_epochs, 3)
    with pytest.raises(BadInput, match=r"layer 0 go at step 120, but training ends at step 90"):
        UnfreezeSchedule.of(in_epochs, 3, total_steps=90)


def test_unfreezing_layers_wait_in_groups_of_their_own_without_decay_or_state() -> None:
    exp = experiment("gpt", unfreezing(order="top-down", at=1, every=1, warmup=2), train={"weight_decay": 0.5})
    model, frozen = prepared(exp)
    schedule = UnfreezeSchedule.of(exp, 3)
    assert schedule is not None
    assert frozen.for_good == ()
    assert set(frozen.thaws.values()) == {0, 1, 2}
    groups = parameter_groups(model, exp)
    waiting = {group["name"]: group["starts"] for group in groups if "starts" in group}
    assert waiting == {"unfreezing layer 2": 1, "unfreezing layer 1": 2, "unfreezing layer 0": 3}
    optimiser = torch.optim.AdamW(groups)
    layers = attention_layers(model)
    start = [layer.query.weight.detach().clone() for layer in layers]
    for step in range(2):
        apply_unfreezing(model, exp.method, schedule, step)
        for group in optimiser.param_groups:
            group["lr"] = group_lr(group, 1e-2, step)
        loss_of(model, tokens()).backward()
        optimiser.step()
        optimiser.zero_grad()
    assert [torch.equal(layer.query.weight, was) for layer, was in zip(layers, start, strict=True)] == [
        True,
        True,
        False,
    ]
    assert layers[0].query.weight not in optimiser.state
    assert layers[2].query.weight in optimiser.state


def test_a_resumed_schedule_sets_the_same_flags_as_one_that_ran_through() -> None:
    exp = experiment("gpt", unfreezing(order="top-down", at=10, every=10))
    ran, resumed = prepared(exp)[0], prepared(exp)[0]
    schedule = UnfreezeSchedule.of(exp, 3)
    for step in range(26):
        apply_unfreezing(ran, exp.method, schedule, step)
    apply_unfreezing(resumed, exp.method, schedule, 25)
    flags = [[parameter.requires_grad for parameter in model.parameters()] for model in (ran, resumed)]
    assert flags[0] == flags[1]
    assert [layer.key.weight.requires_grad for layer in attention_layers(ran)] == [False, True, True]


def test_a_layer_outside_the_model_is_refused_before_anything_is_built() -> None:
    with pytest.raises(BadInput, match="layers are 0 to 2"):
        experiment("gpt", {**OELM, "layers": "2-3"})
    model = build(experiment("gpt"), seed=0)
    exp = experiment("gpt", OELM)
    with pytest.raises(BadInput, match="layer 9"):
        apply_freezing(model, exp.method.model_copy(update={"layers": [9]}))


def test_a_last_norm_learns_at_the_full_rate_and_embeddings_at_the_lowest() -> None:
    exp = experiment("gpt", {**OELM, "layer_decay": 0.5})
    model, _ = prepared(exp)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    scales = {names[id(p)]: group["lr_scale"] for group in parameter_groups(model, exp) for p in group["params"]}
    assert scales["model.final_norm.weight"] == scales["model.layers.2.ffn_norm.weight"] == 1.0
    assert scales["model.embed_positions.weight"] == 0.125


@pytest.mark.parametrize("kind", ["lora", "bitfit", "adapter"])
@pytest.mark.parametrize("arch", ["bert", "gpt"])
def test_extras_learn_beside_a_peer_method(arch: str, kind: str) -> None:
    model, _ = prepared(experiment(arch, {"name": "both", "peer": {"kind": kind}, "extras": ALL_EXTRAS}))
    learned = [p.requires_grad for name, p in model.named_parameters() if "extras" in name.split(".")]
    assert len(learned) == 3 * (3 + 4)
    assert all(learned)
    assert all(layer.query.bias.requires_grad for layer in attention_layers(model))


def test_a_schedule_beside_a_peer_lets_go_only_of_its_own_layers() -> None:
    exp = experiment("bert", {**unfreezing(), "layers": "first:1", "peer": {"kind": "lora"}})
    model, frozen = prepared(exp)
    groups = [group for group in parameter_groups(model, exp) if "starts" in group]
    assert [group["name"] for group in groups] == ["unfreezing layer 0"]
    assert set(frozen.thaws.values()) == {0}
