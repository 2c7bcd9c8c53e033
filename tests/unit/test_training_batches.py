"""The batch at a step and the rate at a step are pure functions; precision and stop requests do what they say."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from oelm_core.config import Train
from oelm_core.training.schedule import BatchPlan, dropout_seed, learning_rate, seed_draws, share
from oelm_core.training.supervision import StopRequest

plans = st.builds(
    BatchPlan,
    examples=st.integers(1, 200),
    batch_size=st.integers(1, 20),
    accumulate=st.integers(1, 4),
    seed=st.integers(-5, 2**40),
)


@given(plans)
def test_an_epoch_sees_every_example_once(plan: BatchPlan) -> None:
    seen = np.concatenate([plan.step(k) for k in range(1, plan.steps_per_epoch + 1)])
    assert sorted(seen) == list(range(plan.examples))


@given(plans, st.integers(1, 50))
def test_micro_batches_are_the_steps_examples_in_order_and_ranks_share_them(plan: BatchPlan, step: int) -> None:
    parts = plan.micro_batches(step)
    assert len(parts) <= plan.accumulate
    assert np.array_equal(np.concatenate(parts), plan.step(step))
    for world in (1, 2, 3):
        assert np.array_equal(np.concatenate([share(parts[0], r, world) for r in range(world)]), parts[0])


def test_a_step_does_not_depend_on_the_steps_before_it() -> None:
    early, late = BatchPlan(50, 4, 2, 42), BatchPlan(50, 4, 2, 42)
    walked = [early.step(k) for k in range(1, 30)]
    assert np.array_equal(late.step(29), walked[-1])
    assert not np.array_equal(BatchPlan(50, 4, 2, 43).step(1), walked[0])
    assert not np.array_equal(late.step(1), late.step(1 + late.steps_per_epoch))  # each epoch is shuffled anew


def test_the_published_recipes_have_their_number_of_steps() -> None:
    assert BatchPlan(67_349, 32, 1, 42).total_steps(None, 3) == 6_315
    assert BatchPlan(392_702, 16, 1, 42).total_steps(None, 3) == 73_632
    assert BatchPlan(392_702, 8, 2, 42).total_steps(None, 3) == 73_632  # accumulation leaves it as it is


def test_dropout_draws_differ_between_steps_ranks_and_seeds() -> None:
    assert len({dropout_seed(s, k, r) for s in (1, 2) for k in range(50) for r in range(3)}) == 300


def test_draws_are_seeded_as_torch_does_it() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    seed_draws(7, torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)],
)
def test_rates_are_those_of_the_usual_library(schedule: str, reference: object) -> None:
    train = Train(max_steps=50, batch_size=1, lr=1.0, schedule=schedule, warmup_steps=7)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = reference(optimiser, 7, 50)  # type: ignore[operator]
    for step in range(1, 51):
        assert learning_rate(train, step, 50) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        theirs.step()


def test_warm_up_by_ratio_counts_optimiser_steps() -> None:
    train = Train(epochs=3, batch_size=8, accumulate=2, lr=1.0, warmup_ratio=0.1)
    factors = [learning_rate(train, step, 100) for step in range(1, 101)]
    assert factors[0] == 0.0
    assert factors.index(max(factors)) == 10
    assert factors[-1] == pytest.approx(1 / 90)


def test_a_stop_outranks_a_requeue_and_is_not_taken_back() -> None:
    stop = StopRequest()
    assert stop.number == 0
    stop.request(signal.SIGUSR2)
    stop.request(signal.SIGTERM)
    stop.request(signal.SIGUSR2)
    assert stop.number == signal.SIGTERM
