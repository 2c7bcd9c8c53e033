"""Gradients by DDP and by FSDP2 over two gloo ranks, held against a plain sum of every weight's gradient."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gradients")]


@pytest.fixture(scope="module")
def found() -> Any:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "tests.gradient_ranks"], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ddp_gives_the_plain_sum_to_the_last_bit_through_packing_accumulation_and_unfreezing(found: Any) -> None:
    assert found["packed"]
    assert found["passes"] == 2
    for case in ("frozen", "unfrozen", "a weight without a part in the loss"):
        assert found[case]["largest"] > 0
        assert found[case]["difference"] == 0, case
    assert found["unfrozen"]["tensors"] > found["frozen"]["tensors"]


def test_gradients_that_travel_in_bf16_are_the_sum_to_its_eight_bits(found: Any) -> None:
    assert 0 < found["bf16"]["difference"] < found["bf16"]["largest"] * 2**-7


@pytest.fixture
def shards(found: Any) -> Any:
    return found.get("shards") or pytest.skip(needs.torch_2_8)


def test_shards_give_the_plain_sum_and_its_norm_through_freezing_and_unfreezing(found: Any, shards: Any) -> None:
    for case in ("frozen", "unfrozen"):
        assert shards[case]["largest"] > 0
        assert shards[case]["difference"] < shards[case]["largest"] * 1e-6
        assert shards[case]["of norm"] < 1e-6
    assert shards["unfrozen"]["tensors"] == found["unfrozen"]["tensors"] > shards["frozen"]["tensors"]
    assert 0 < shards["bf16"]["difference"] < shards["bf16"]["largest"] * 2**-7


def test_a_rank_holds_half_of_every_weight_and_moment_and_all_of_it_where_ranks_act_apart(shards: Any) -> None:
    for held in (shards["held"], *shards["scaled"]["held"]):
        assert held == pytest.approx(0.5, abs=0.01)  # an odd number of rows has a larger half
    assert shards["the same before the first step"]
    assert shards["apart"] == {"difference": 0.0, "kept": True, "loaded": True}


def test_an_overflow_in_one_part_skips_the_step_on_every_rank(shards: Any) -> None:
    moved = shards["scaled"]["moved"]
    assert moved[1] == 0.0
    assert min(moved[0], moved[2]) > 0
    assert shards["scaled"]["scale"] == [1024.0, 512.0, 512.0]
