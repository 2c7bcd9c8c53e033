"""Gradients by DistributedDataParallel over two gloo ranks, held against a plain sum of every weight's gradient."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


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
