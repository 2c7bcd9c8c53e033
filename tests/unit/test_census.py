"""Parameter counts: the exact figures of the published sizes, from the meta device, each tensor once."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import torch

from oelm_core.config import Experiment
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.errors import BadInput
from oelm_core.method.census import census, census_of
from oelm_core.method.facts import Count
from oelm_core.method.parameter_count import parameters
from tests.small_models import ALL_EXTRAS, BERT_BASE, GPT_MEDIUM, OELM, ROBERTA_BASE, experiment, prepared

MIB = 2**20


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a census must not open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("arch", "shape", "classes", "total", "frozen"),
    [
        ("bert", BERT_BASE, 2, 109_483_778, 12 * 2 * (768**2 + 768)),
        ("bert", BERT_BASE, 3, 109_484_547, 14_174_208),
        ("roberta", ROBERTA_BASE, 2, 124_647_170, 14_174_208),
        ("gpt", GPT_MEDIUM, None, 44_896_768, 6 * 2 * 512**2),
        ("gpt", GPT_MEDIUM, 2, 44_896_768 + 2 * 512, 3_145_728),
    ],
)
def test_published_sizes_come_out_exactly(
    arch: str, shape: dict[str, int], classes: int | None, total: int, frozen: int
) -> None:
    counted = census_of(experiment(arch, OELM, shape=shape, classes=classes))
    assert (counted.total, counted.frozen) == (total, frozen)
    assert counted.trainable == total - frozen
    baseline = census_of(experiment(arch, shape=shape, classes=classes))
    assert (baseline.total, baseline.trainable, baseline.frozen) == (total, total, 0)


def test_checkpoints_of_the_gpt_arms_are_514_and_490_mib() -> None:
    sizes = [census_of(experiment("gpt", m, shape=GPT_MEDIUM)).bytes.checkpoint / MIB for m in (None, OELM)]
    assert [round(size) for size in sizes] == [514, 490]


@pytest.mark.parametrize("arch", ["bert", "roberta", "gpt"])
@pytest.mark.parametrize(
    "method",
    [
        OELM,
        {**OELM, "extras": ALL_EXTRAS},
        {"name": "lora", "peer": {"kind": "lora"}},
        {"name": "bitfit", "peer": {"kind": "bitfit"}},
        {"name": "adapter", "peer": {"kind": "adapter"}},
    ],
    ids=["oelm", "extras", "lora", "bitfit", "adapter"],
)
def test_the_meta_device_counts_what_the_real_model_has(arch: str, method: dict[str, Any]) -> None:
    exp = experiment(arch, method)
    model, _ = prepared(exp)
    counted = census_of(exp)
    assert counted == census(model)
    for parts in ("by_component", "by_layer"):
        for kind in ("total", "trainable", "frozen"):
            assert sum(getattr(row, kind) for row in getattr(counted, parts).values()) == getattr(counted, kind)
    assert "other" not in counted.by_component


def _network(preset: Experiment) -> str:
    """What a count depends on: presets that share it are counted once."""
    method = preset.method
    return repr(
        (preset.arch, preset.model.shape, preset.data.classes, method.freeze, method.layers, method.peer, method.extras)
    )


def test_the_launch_forms_arithmetic_is_the_census_of_every_shipped_preset() -> None:
    presets = {_network(preset): preset for preset in load_folders([SHIPPED]).experiments.values()}
    unknown = {preset.family for preset in presets.values() if parameters(preset) == (None, None)}
    assert unknown == {"decoder"}
    known = [preset for preset in presets.values() if preset.family != "decoder"]
    counts = {preset.id: census_of(preset) for preset in known}
    assert {preset.id: parameters(preset) for preset in known} == {
        name: (found.total, found.frozen) for name, found in counts.items()
    }


@pytest.mark.parametrize("kind", ["lora", "bitfit", "adapter"])
@pytest.mark.parametrize("arch", ["roberta", "gpt"])
def test_the_arithmetic_knows_peers(arch: str, kind: str) -> None:
    peer = experiment(arch, {"name": kind, "peer": {"kind": kind}}, classes=None if arch == "gpt" else 3)
    counted = census_of(peer)
    assert parameters(peer) == (counted.total, counted.frozen)
    mixed = experiment(arch, {"name": kind, "peer": {"kind": kind}, "freeze": ["key"]}, classes=2)
    assert parameters(mixed) == (census_of(mixed).total, None)


def test_components_and_layers_are_told_apart() -> None:
    counted = census_of(experiment("bert", {**OELM, "layers": [1]}))
    components = counted.by_component
    assert set(components) == {
        "embeddings", "query", "key", "value", "output", "ffn", "norm", "pooler", "classifier"
    }  # fmt: skip
    assert components["query"] == Count(total=3 * 600, trainable=2 * 600, frozen=600)
    assert counted.by_layer["1"].frozen == 1200
    assert set(counted.by_layer) == {"0", "1", "2", "outside"}


def test_every_extra_shows_its_cost() -> None:
    def parts(arch: str) -> dict[str, Count]:
        return census_of(experiment(arch, {**OELM, "extras": ALL_EXTRAS})).by_component

    gpt, bert = parts("gpt"), parts("bert")
    assert gpt["position_bias"].total == 3 * 3 * 6  # layers x heads x distances 0..5
    assert bert["position_bias"].total == 3 * 3 * 11  # -5..5
    assert gpt["temperature"].total == 3 * 3
    assert gpt["gain"].total == 3 * 24
    assert gpt["low_rank"].total == 3 * 2 * 2 * 24 * 2  # layers x query and key x down and up x width x rank
    assert gpt["query"] == Count(total=3 * (576 + 24), trainable=3 * 24, frozen=3 * 576)


def test_a_tied_weight_is_counted_once() -> None:
    model, _ = prepared(experiment("gpt"))
    assert census(model).total == sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    assert "lm_head" not in census(model).by_component


def test_bytes_follow_the_dtype_of_the_weights() -> None:
    model, _ = prepared(experiment("gpt", OELM))
    assert census(model.to(torch.bfloat16)).bytes.weights == 2 * census(model).total


def test_a_model_without_a_shape_is_refused_by_preset_and_key() -> None:
    exp = experiment("bert", start="pretrained")
    exp = exp.model_copy(update={"model": exp.model.model_copy(update={"shape": None})})
    with pytest.raises(BadInput, match=r"small-bert: model.shape is missing"):
        census_of(exp)
