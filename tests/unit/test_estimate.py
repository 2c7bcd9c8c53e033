"""`oelm estimate`: a step by arithmetic, held against published times and against what a pretend run would send."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.estimate import PUBLISHED, WITHIN, PublishedTime, published_and_reckoned, share_of
from oelm_core.config import override
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.devices.card import Card
from oelm_core.devices.data_sheets import SHEETS, sheet_of
from oelm_core.devices.processor_speed import ProcessorSpeed, measure_speed
from oelm_core.errors import BadInput
from oelm_core.estimate import estimate
from oelm_core.forecast import Forecast, forecast, with_time
from oelm_core.proof.record import CardIdentity, CheckResult, keep_card, read_proofs
from oelm_core.step_work import flops_per_step
from oelm_tui.commands.estimate import apps
from tests.run_factory import write_run

SPEED = ProcessorSpeed(1e11, 2e10, 2)


@pytest.fixture(scope="module")
def presets() -> Catalogue:
    return load_folders([SHIPPED])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    return tmp_path


def no_cards() -> list[Card]:
    return []


def on(presets: Catalogue, preset: str, card: str, *settings: str) -> Forecast:
    experiment = override(presets.experiment(preset), list(settings))
    return forecast(experiment, card, [], read_proofs(), no_cards, SPEED)


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.preset)
def test_the_authors_step_times_are_met_within_a_quarter(known: PublishedTime) -> None:
    seconds, reckoned = published_and_reckoned(known)
    print(f"{known.preset}: {seconds * 1e3:.1f} ms published, {reckoned * 1e3:.1f} ms by arithmetic")
    assert reckoned == pytest.approx(seconds, rel=WITHIN)


def test_calibrated_on_either_published_time_the_other_is_met() -> None:
    """One share for both, so neither preset has a constant of its own."""
    for known, other in itertools.permutations(PUBLISHED):
        seconds, reckoned = published_and_reckoned(known, share_of(other))
        assert reckoned == pytest.approx(seconds, rel=WITHIN)
        assert published_and_reckoned(known, share_of(known))[1] == pytest.approx(seconds)


def test_freezing_shortens_the_step_and_sends_less(presets: Catalogue) -> None:
    trained, frozen = on(presets, "GPT-01", "a5000").arms
    assert (trained.qk, frozen.qk) == ("trained", "frozen")
    assert frozen.step_seconds < trained.step_seconds
    assert trained.sent is not None and frozen.sent == trained.sent - 4 * 3_145_728  # noqa: PT018
    assert trained.memory is not None and frozen.memory is not None and frozen.memory < trained.memory  # noqa: PT018
    assert on(presets, "GPT-02", "a5000").arms == (trained, frozen)  # whichever of them the preset is


def test_cards_that_share_a_small_batch_are_idle_and_those_with_a_batch_each_are_not(presets: Catalogue) -> None:
    for arm in on(presets, "GPT-01", "a100").arms:
        two, eight, many = arm.together
        assert (two.cards, eight.cards, many.cards) == (2, 8, 64)
        assert 1 >= two.shared_out > eight.shared_out > many.shared_out
        assert many.shared_out <= 8 / 64  # eight examples keep no more than eight cards busy
        assert many.full_batches > many.shared_out
        assert eight.full_batches > 0.9


def test_a_card_that_cannot_hold_the_model_has_no_best_batch(presets: Catalogue) -> None:
    large = ("model.shape.layers=96", "model.shape.d_model=12288", "model.shape.heads=96", "model.shape.d_ff=49152")
    (arm, _) = on(presets, "GPT-01", "a5000", *large).arms
    assert arm.best_batch is None
    assert on(presets, "GPT-01", "h100").arms[0].best_batch is not None


def test_a_faster_card_is_faster_and_launches_set_the_least(presets: Catalogue) -> None:
    slow, fast = (on(presets, "GPT-01", card).arms[0].step_seconds for card in ("a5000", "h100"))
    assert fast < slow
    tiny = on(presets, "demo-gpt-baseline", "h100").arms[0]
    assert tiny.held_by == "launches"


def test_amp_is_the_format_that_the_card_has(presets: Catalogue) -> None:
    assert on(presets, "GPT-01", "v100").number_format == "fp16"
    assert on(presets, "GPT-01", "a100").number_format == "bf16"
    with pytest.raises(BadInput, match="has no bf16"):
        on(presets, "GPT-01", "v100", "train.precision=bf16")


def test_a_proof_of_the_card_replaces_the_calibrated_share(presets: Catalogue) -> None:
    by_sheet = on(presets, "GPT-01", "a5000")
    assert "32% are reached" in by_sheet.known_by[0]
    figures = {"GPT-01 seconds at 1": 0.006, "GPT-01 seconds at 8": 0.040}
    card = CardIdentity("here", "GPU-a", "550.54", "2.13.0")
    keep_card(card, "NVIDIA RTX A5000", [CheckResult("batch", True, "", figures=figures)])
    proven = on(presets, "GPT-01", "a5000")
    assert proven.arms[0].step_seconds == pytest.approx(0.040, rel=0.01)
    assert "measured by" in proven.known_by[0]
    assert on(presets, "GPT-01", "a100").known_by[0].count("calibrated")  # another card's proof says nothing


def test_a_machine_without_cards_is_its_processor(presets: Catalogue) -> None:
    found = on(presets, "GPT-01", "this")
    assert (found.device, found.number_format) == ("this processor", "fp32")
    assert not found.arms[0].together
    twice = forecast(
        presets.experiment("GPT-01"), "this", [], read_proofs(), no_cards, SPEED._replace(flops=2e11, bandwidth=4e10)
    )
    assert twice.arms[0].step_seconds == pytest.approx(found.arms[0].step_seconds / 2, rel=0.02)


def test_a_recipe_of_one_thread_has_one_core(presets: Catalogue) -> None:
    all_cores, one = (
        on(presets, "GPT-01", "cpu", *settings).arms[0].step_seconds for settings in ((), ("train.threads=1",))
    )
    assert one == pytest.approx(2 * all_cores, rel=0.02)


def test_earlier_runs_of_the_preset_are_shown_beside_the_estimate(presets: Catalogue, home: Path) -> None:
    gpt = presets.experiment("GPT-02")
    here, card = (
        write_run(home / "runs", gpt, step_time=seconds, curve=[5.0], number=number, result={"device": device})
        for number, (seconds, device) in enumerate(
            [(9.0, {"kind": "cpu"}), (0.08, {"kind": "cuda", "name": "NVIDIA RTX A5000"})]
        )
    )
    runs = [here, card]
    assert forecast(gpt, "cpu", runs, read_proofs(), no_cards, SPEED).measured == 9.0
    by_runs = forecast(gpt, "this", runs, read_proofs(), lambda: [Card(0, name="NVIDIA RTX A5000")], SPEED)
    assert by_runs.arms[1].step_seconds == pytest.approx(0.08)
    assert by_runs.measured is None  # the estimate is made of that very figure
    by_card = forecast(gpt, "a5000", runs, read_proofs(), no_cards, SPEED)
    assert by_card.measured == 0.08
    assert by_card.own_qk == "frozen"
    assert forecast(gpt, "a100", runs, read_proofs(), no_cards, SPEED).measured is None


def test_this_is_the_card_that_is_here(presets: Catalogue) -> None:
    found = [
        forecast(presets.experiment("GPT-01"), "this", [], read_proofs(), lambda card=card: [card], SPEED)
        for card in (Card(0, name="NVIDIA GeForce RTX 4090"), Card(0, name="NVIDIA GeForce RTX 4090", memory_total=1))
    ]
    assert [one.device for one in found] == ["GeForce RTX 4090"] * 2
    assert [one.arms[0].best_batch is None for one in found] == [False, True]  # the driver knows better than the sheet


@pytest.mark.parametrize(
    ("preset", "settings", "arms"),
    [
        ("GPT-01", (), ["trained", "frozen"]),
        ("GPT-02", (), ["trained", "frozen"]),
        ("GPT-02-key-only", (), ["trained", "frozen", "own"]),
        ("GPT-02", ("method.layers=first:3",), ["trained", "frozen", "own"]),
        ("sst2-lora", (), ["own"]),
    ],
)
def test_a_preset_that_is_neither_arm_has_a_column_of_its_own(
    presets: Catalogue, preset: str, settings: tuple[str, ...], arms: list[str]
) -> None:
    found = on(presets, preset, "a5000", *settings)
    assert [arm.qk for arm in found.arms] == arms
    own = next(arm for arm in found.arms if arm.qk == found.own_qk)
    if len(arms) == 3:  # half of what the other frozen ones hold
        trained, frozen, _ = (arm.step_seconds for arm in found.arms)
        assert own.step_seconds == pytest.approx((trained + frozen) / 2, rel=1e-3)


def test_weights_that_a_peer_freezes_have_no_product_for_their_gradient(presets: Catalogue) -> None:
    trained, lora = (flops_per_step(presets.experiment(preset)) for preset in ("sst2-baseline", "sst2-lora"))
    assert trained is not None
    assert lora is not None
    assert 0.66 < lora / trained < 0.70  # of three products of a layer's weight two are left


def test_the_processor_is_measured_in_a_process_whose_products_take_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, str] = {}

    def run(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        told.update(env)
        return subprocess.CompletedProcess(command, 0, "[1e11, 2e10, 1]")

    monkeypatch.setattr(subprocess, "run", run)
    cores = len(os.sched_getaffinity(0))
    assert measure_speed() == ProcessorSpeed(cores * 1e11, cores * 2e10, cores)
    assert told["OPENBLAS_NUM_THREADS"] == told["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("name", SHEETS)
def test_every_sheet_is_found_by_its_short_name(name: str) -> None:
    assert sheet_of(name) is SHEETS[name]


def test_the_launch_form_reckons_a_time_where_no_run_gave_one(presets: Catalogue) -> None:
    gpt = presets.experiment("GPT-01")
    unknown = estimate(gpt, [])
    assert unknown.seconds is None
    known = with_time(unknown, gpt, "NVIDIA RTX A5000")
    assert known.seconds == pytest.approx(8370, rel=WITHIN)
    assert "reckoned for RTX A5000" in known.seconds_from
    assert with_time(unknown, gpt, "Quadro P400") == unknown  # no data sheet, no guess
    assert with_time(unknown, gpt, "cpu", SPEED).seconds is not None


def test_the_command_prints_both_arms_and_the_same_as_json() -> None:
    printed = CliRunner().invoke(apps["estimate"], ["GPT-01", "--card", "a5000"])
    assert printed.exit_code == 0
    for words in ("Q/K trained", "Q/K frozen", "to the end", "peak memory", "best batch", "64 cards", "data sheet"):
        assert words in printed.output
    found = json.loads(CliRunner().invoke(apps["estimate"], ["GPT-01", "--card", "a5000", "--json"]).stdout)
    assert [arm["qk"] for arm in found["arms"]] == ["trained", "frozen"]
    assert [one["cards"] for one in found["arms"][0]["together"]] == [2, 8, 64]


def test_a_card_without_a_sheet_is_refused_with_those_there_are() -> None:
    refused = CliRunner().invoke(apps["estimate"], ["GPT-01", "--card", "p400"])
    assert isinstance(refused.exception, BadInput)
    assert "a5000" in str(refused.exception)
