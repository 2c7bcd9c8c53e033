"""The clock's protocol: warm-up left out, outliers counted and dropped, the author's keys filled."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch

from oelm_core.formatting import exact_duration
from oelm_core.training.checkpoint import Progress
from oelm_core.training.results import author_stats
from oelm_core.training.timing import StepTimes, Stopwatch, untimed_steps
from tests.training_runs import BERT, GPT, experiment


def times(*seconds: float) -> StepTimes:
    filled = StepTimes()
    for value in seconds:
        filled.add(value, tokens=100, examples=4, wait=value / 10)
    return filled


def test_steps_over_three_times_the_median_are_counted_and_dropped() -> None:
    summary = times(1.0, 1.1, 0.9, 1.0, 3.5).summary()
    assert summary.outliers_dropped == 1
    assert summary.steps_measured == 4
    assert summary.step_time_mean == pytest.approx(1.0)
    assert summary.step_time_std == pytest.approx(statistics.stdev([1.0, 1.1, 0.9, 1.0]))
    assert summary.tokens_per_s == pytest.approx(100)
    assert summary.examples_per_s == pytest.approx(4)
    assert summary.data_wait_share == pytest.approx(1 / 11)


def test_percentiles_are_of_single_steps() -> None:
    summary = times(*[i / 100 for i in range(100, 200)]).summary()
    assert summary.step_time_p95 == pytest.approx(1.9405)
    assert summary.step_time_p99 == pytest.approx(1.9801)


def test_nothing_measured_gives_no_figures_rather_than_zero() -> None:
    summary = StepTimes().summary()
    assert summary.step_time_mean is None
    assert summary.steps_measured == 0


def test_warm_up_is_a_hundred_steps_or_a_tenth_of_a_short_run() -> None:
    assert [untimed_steps(total) for total in (100_000, 1000, 999, 50, 5)] == [100, 100, 99, 5, 1]


def test_times_survive_a_checkpoint() -> None:
    before = times(0.1, 0.2, 0.3)
    assert StepTimes.from_tensors(before.as_tensors()) == before


def test_the_author_finds_both_kinds_of_keys(tmp_path: Path) -> None:
    long = Progress(seconds=3700.0, validation_seconds=[5.0, 7.0], epoch_seconds=[20.0], best={"loss": 1.5})
    short = Progress(seconds=60.0, validation_seconds=[5.0])
    gpt = author_stats(experiment(GPT, tmp_path), times(1.0, 2.0), long, 100)
    bert = author_stats(experiment(BERT, tmp_path), times(1.0, 9.0, 1.0), short, 6)
    assert (gpt["total_formatted"], gpt["mean_validation_time"], gpt["best_val_loss"]) == ("1h 01m 40s", 6.0, 1.5)
    assert (gpt["mean_step_time"], gpt["min_step_time"], gpt["max_step_time"]) == (1.5, 1.0, 2.0)
    assert (bert["mean_time_per_step"], bert["pure_training_time"], bert["num_steps_measured"]) == (1.0, 11.0, 2)
    assert bert["step_times"] == [1.0, 9.0, 1.0]


def test_a_stopwatch_measures_from_its_first_to_its_second_mark() -> None:
    watch = Stopwatch(torch.device("cpu"))
    watch.mark()
    watch.mark()
    assert watch.ready()
    assert watch.seconds() >= 0


def test_short_times_are_written_in_minutes() -> None:
    assert exact_duration(61) == "1m 01s"
