"""The training step of every family, format and batching over the tensors of a pretend card: no mix of devices, no wait
of the host, and no more launches than stated. `python -m tests.pretend_cuda PRESET` prints what a step is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from oelm_core.config import override
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.step_work import work_of
from tests import needs
from tests.pretend_cuda import Capability, Case, StepCount, ask_child

pytestmark = [needs.pretend_card, pytest.mark.slow, pytest.mark.xdist_group("pretend_cuda")]

ONE_LAYER = "model.shape.layers=1"
EXTRAS = "method.extras={position_bias: 32, temperature: true, gain: true, qk_bias: true, low_rank: 4}"

# What a step may launch: as counted when this was written, and 5 % more for other versions of torch and transformers.
# A change that lowers a number should lower it here too.
ONE_LAYER_BUDGETS = {
    "GPT-02": {"": {"fp32": 122, "tf32": 122, "bf16": 133, "fp16": 145}},
    "sst2-oelm": {
        "packed": {"fp32": 100, "tf32": 100, "bf16": 118, "fp16": 130},
        "dynamic": {"fp32": 106, "tf32": 106, "bf16": 123, "fp16": 135},
        "padded": {"fp32": 105, "tf32": 105, "bf16": 122, "fp16": 134},
    },
    "sst2-roberta-base-oelm": {
        "packed": {"fp32": 101, "tf32": 101, "bf16": 118, "fp16": 130},
        "dynamic": {"fp32": 116, "tf32": 116, "bf16": 133, "fp16": 145},
        "padded": {"fp32": 115, "tf32": 115, "bf16": 132, "fp16": 144},
    },
}
WHOLE_BUDGETS = {  # as shipped, on an A5000
    ("GPT-01",): 385,
    ("GPT-01", "train.precision=fp32"): 324,
    ("sst2-baseline",): 610,
    ("sst2-baseline", "train.precision=amp"): 749,
    ("sst2-baseline", "train.batching=padded"): 604,
    ("sst2-oelm", "train.precision=amp"): 701,
    ("GPT-02", ONE_LAYER, "train.accumulate=2", EXTRAS): 383,
    ("sst2-oelm", ONE_LAYER, "train.accumulate=2", "train.precision=amp", EXTRAS): 354,
    ("GPT-02", ONE_LAYER, "method.unfreeze={at: 1}"): 143,
    ("GPT-02", ONE_LAYER, "train.checkpoint_activations=true"): 151,
}
RECKONED = [case for case in WHOLE_BUDGETS if ONE_LAYER not in case]
SLACK = 1.05
AMP = {"GPT-01", "GPT-02"}
"""Presets whose own precision is amp."""


def settings(preset: str, batching: str, precision: str) -> tuple[str, ...]:
    chosen = (ONE_LAYER, f"train.precision={precision}")
    return (*chosen, f"train.batching={batching}") if batching else chosen


BUDGETS = {
    (preset, *settings(preset, batching, precision)): budget
    for preset, batchings in ONE_LAYER_BUDGETS.items()
    for batching, precisions in batchings.items()
    for precision, budget in precisions.items()
} | WHOLE_BUDGETS


@dataclass(frozen=True)
class Row:
    """What a card of this generation trains in, and which attention kernel a GPT and a packed encoder get."""

    precision: str
    gpt: str
    packed: str


GENERATIONS: dict[Capability, Row] = {
    (6, 0): Row("fp32", "efficient", "efficient"),
    (6, 1): Row("fp32", "efficient", "efficient"),
    (7, 0): Row("fp16", "efficient", "efficient"),
    (7, 5): Row("fp16", "efficient", "efficient"),
    (8, 0): Row("bf16", "flash", "efficient"),
    (8, 6): Row("bf16", "flash", "efficient"),
    (8, 9): Row("bf16", "flash", "efficient"),
    (9, 0): Row("bf16", "flash", "efficient"),
}
OF_GENERATIONS = {"gpt": "GPT-02", "packed": "sst2-oelm"}
SELECTED = [(of, capability) for of in OF_GENERATIONS for capability in GENERATIONS]


WAITS = (
    *("item", "bool", "float", "tolist", "equal", "cpu", "copy to the host", "blocking copy", "tensor on the card"),
    *("copy that is not pinned", "nonzero", "masked_select", "index by a mask", "unique", "synchronize", "event"),
)
FREE = (
    *("arithmetic", "pinned copy", "copy to the host behind the work", "index by numbers", "masked_fill", "backward"),
    "record an event",
)
MIXED = ("sum", "product", "index")


class Answer(NamedTuple):
    steps: dict[tuple[object, ...], StepCount]
    seen: dict[str, list[str]]


@pytest.fixture(scope="module")
def answer() -> Answer:
    """All that this module asks of the card, in one process."""
    amp = (ONE_LAYER, "train.precision=amp")
    cases: dict[tuple[object, ...], Case] = {case: Case(case[0], case[1:]) for case in BUDGETS}
    cases |= {(of, card): Case(OF_GENERATIONS[of], amp, card) for of, card in SELECTED}
    acts = [f"{kind}:{name}" for kind, names in (("wait", WAITS), ("free", FREE), ("mixed", MIXED)) for name in names]
    steps, seen = ask_child(list(cases.values()), acts)
    return Answer(dict(zip(cases, steps, strict=True)), dict(zip(acts, seen, strict=True)))


@pytest.fixture(scope="module")
def counted(answer: Answer) -> dict[tuple[object, ...], StepCount]:
    return answer.steps


@pytest.fixture(scope="module")
def seen(answer: Answer) -> dict[str, list[str]]:
    return answer.seen


@pytest.mark.parametrize("case", BUDGETS, ids=" ".join)
def test_a_step_never_waits_for_the_card_and_launches_no_more_than_stated(
    counted: dict[tuple[object, ...], StepCount], case: tuple[str, ...]
) -> None:
    step = counted[case]
    print(f"{' '.join(case)}: {step.launches} launches, {step.casts} casts, {step.bytes_moved / 1e9:.2f} GB")
    assert step.host_waits == []
    assert BUDGETS[case] / 2 < step.launches <= BUDGETS[case] * SLACK
    asked = next((setting.partition("=")[2] for setting in case if setting.startswith("train.precision=")), None)
    asked = asked or ("amp" if case[0] in AMP else "fp32")
    assert step.precision == ("bf16" if asked == "amp" else asked)


@pytest.mark.parametrize("case", RECKONED, ids=" ".join)
def test_the_estimate_reckons_with_what_is_counted(
    counted: dict[tuple[object, ...], StepCount], case: tuple[str, ...]
) -> None:
    step = counted[case]
    work = work_of(override(load_folders([SHIPPED]).experiment(case[0]), list(case[1:])), step.precision)
    assert work is not None
    moved = work.product_bytes + work.other_bytes
    print(f"{' '.join(case)}: {work.launches} of {step.launches}, {moved / 1e9:.1f} of {step.bytes_moved / 1e9:.1f} GB")
    assert work.launches == pytest.approx(step.launches, rel=0.1)
    assert moved == pytest.approx(step.bytes_moved, rel=0.15)


@pytest.mark.parametrize(("of", "capability"), SELECTED)
def test_a_card_gets_the_format_and_the_attention_of_its_generation(
    counted: dict[tuple[object, ...], StepCount], of: str, capability: Capability
) -> None:
    step, row = counted[of, capability], GENERATIONS[capability]
    assert step.precision == row.precision
    kernel = {"gpt": row.gpt, "packed": row.packed}[of]
    used = {name: step.calls(f"_scaled_dot_product_{name}_attention") for name in ("flash", "efficient")}
    assert used == {**dict.fromkeys(used, 0), kernel: 2}  # forward and backward, of one layer
    assert step.host_waits == []


# -- the counting itself: a check that sees nothing would pass everything ----------------------------------------------


@pytest.mark.parametrize("way", WAITS)
def test_every_way_of_waiting_is_seen_with_its_place(seen: dict[str, list[str]], way: str) -> None:
    assert seen[f"wait:{way}"]
    assert all(" at tests/pretend_cuda/host_waits.py:" in wait for wait in seen[f"wait:{way}"])


@pytest.mark.parametrize("way", FREE)
def test_work_that_is_only_launched_is_no_wait(seen: dict[str, list[str]], way: str) -> None:
    assert seen[f"free:{way}"] == []


@pytest.mark.parametrize("way", MIXED)
def test_tensors_of_two_devices_in_one_function_are_an_error(seen: dict[str, list[str]], way: str) -> None:
    (error,) = seen[f"mixed:{way}"]
    assert "at least two devices, cuda:0 and cpu" in error
