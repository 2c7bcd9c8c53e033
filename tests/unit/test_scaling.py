"""What several cards bring to one run, and what is said before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oelm_core import scaling
from oelm_core.config import Experiment
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.config.overrides import override
from oelm_core.devices.card import Card
from oelm_core.estimate import Cost
from oelm_core.launch.request import LaunchRequest
from oelm_core.proof.prove import speed_up
from oelm_core.proof.record import CardIdentity, CheckResult, keep_card, keep_cards, read_proofs
from oelm_core.runs import process
from oelm_core.runs.store import Run
from oelm_core.scaling import CardPlace, Link, Step, Traffic, outlook, place_of, predict
from oelm_tui.commands.several_cards import say_what_cards_bring
from oelm_tui.commands.tune import apps
from oelm_tui.render.launch import cost_lines
from tests.run_factory import FROZEN, GPT, experiment, write_run

CARD = "Pretend-A5000"
LINK = Link(2, 2e-5, 8e9, CARD)


@pytest.fixture(scope="module")
def presets() -> Catalogue:
    return load_folders([SHIPPED])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    return tmp_path


def cards(*uuids: str) -> list[CardIdentity]:
    return [CardIdentity(process.host(), uuid, "550.54", "2.13.0") for uuid in uuids]


def measured(bandwidth: float = 8e9, *uuids: str) -> None:
    figures = {"ranks": 2.0, "latency": 2e-5, "bandwidth": bandwidth}
    result = CheckResult("all-reduce", True, "", figures=figures)
    keep_cards(cards(*(uuids or ("GPU-a", "GPU-b"))), CARD, [result])


def timed(**figures: float) -> None:
    names = {
        key.replace("_", " ").replace("GPT 01", "GPT-01").replace("BERT ", "BERT-"): v for key, v in figures.items()
    }
    keep_card(cards("GPU-a")[0], CARD, [CheckResult("batch", True, "", figures=names)])


def earlier_run(root: Path, preset: str, step_time: float, presets: Catalogue, card: str = CARD, world: int = 1) -> Run:
    return write_run(
        root,
        presets.experiment(preset),
        step_time=step_time,
        curve=[0.9],
        result={"device": {"kind": "cuda", "name": card}, "world_size": world},
        number=world,
    )


def test_a_short_step_of_a_large_network_is_slower_on_two_cards(presets: Catalogue) -> None:
    """SST-2 on two A5000: some 20 ms a step, most of it launching kernels, and 438 MB of gradients over PCIe."""
    sst2 = presets.experiment("sst2-baseline")
    sent = scaling.traffic_of(sst2)
    assert sent is not None
    assert sent.bytes == pytest.approx(438e6, rel=0.01)
    found = predict(Step(0.020, floor=0.016), sent, LINK)
    assert 0.25 < found.speed_up < 0.4
    long = predict(Step(0.320, floor=0.016), sent, LINK)  # the author's padded step
    assert 1.7 < long.speed_up <= 2


def test_the_shape_of_the_prediction() -> None:
    step = Step(0.1)
    assert predict(step, Traffic(0.0), LINK).speed_up == 2.0
    by_bytes = [predict(step, Traffic(sent), LINK).speed_up for sent in (1e6, 1e8, 1e9, 1e10)]
    assert by_bytes == sorted(by_bytes, reverse=True)
    by_link = [predict(step, Traffic(1e9), LINK._replace(bandwidth=b)).speed_up for b in (1e9, 1e10, 1e11)]
    assert by_link == sorted(by_link)
    assert predict(step, Traffic(1e8), LINK._replace(ranks=4)).speed_up > predict(step, Traffic(1e8), LINK).speed_up
    assert predict(step._replace(floor=0.1), Traffic(0.0), LINK).speed_up == 1.0  # nothing shrinks any more
    # the same step in four passes hides less: only the last one's backward pass runs meanwhile
    assert predict(step._replace(passes=4), Traffic(4e8), LINK).speed_up < predict(step, Traffic(4e8), LINK).speed_up


def bytes_of(one: Experiment) -> float:
    found = scaling.traffic_of(one)
    assert found is not None
    return found.bytes


def test_shards_send_all_weights_twice_a_pass_and_frozen_ones_too(presets: Catalogue) -> None:
    base = experiment("base", GPT)
    frozen = experiment("frozen", GPT, baseline="base", method=FROZEN)
    sharded = override(base, ["train.shard=true"])
    assert bytes_of(sharded) == 1.5 * bytes_of(base)  # gathering or scattering is half an all-reduce
    assert bytes_of(override(sharded, ["train.accumulate=2"])) == 2 * bytes_of(sharded)
    saved = bytes_of(base) - bytes_of(frozen)
    assert bytes_of(sharded) - bytes_of(override(frozen, ["train.shard=true"])) == saved / 2
    sst2 = presets.experiment("sst2-baseline")
    found = [scaling.traffic_of(one) for one in (sst2, override(sst2, ["train.shard=true"]))]
    ddp, fsdp = (predict(Step(0.020, floor=0.016), one, LINK) for one in found if one)
    assert fsdp.speed_up < ddp.speed_up


def test_frozen_weights_and_half_precision_send_less() -> None:
    base = experiment("base", GPT)
    frozen = experiment("frozen", GPT, baseline="base", method=FROZEN)
    all_of_it, without_qk = bytes_of(base), bytes_of(frozen)
    assert all_of_it - without_qk == 4 * 2 * 2 * 64 * 64  # query and key of two layers, in fp32
    halved = override(base, ["train.gradient_compression=bf16"])
    assert bytes_of(halved) == all_of_it / 2


def test_what_is_not_known_is_said_with_how_to_measure_it(home: Path, presets: Catalogue) -> None:
    sst2, place = presets.experiment("sst2-baseline"), CardPlace(2, ("GPU-a", "GPU-b"), process.host())
    unknown = "2 cards: what they bring is not known here; measure it with: oelm doctor --gpu --cards 0,1"
    assert outlook(sst2, [], place) == unknown
    measured()
    assert "no step of sst2-baseline was timed on one Pretend-A5000" in outlook(sst2, [], place)
    assert outlook(sst2, [], place._replace(machine="elsewhere")) == unknown
    assert outlook(sst2, [], place._replace(among=("GPU-a", "GPU-c"))) == unknown
    assert outlook(sst2, [], place._replace(cards=4)).startswith("4 cards: what they bring is not known here")


def test_earlier_runs_on_one_such_card_decide(home: Path, presets: Catalogue) -> None:
    measured()
    timed(BERT_base_seconds_at_1=0.016, BERT_base_seconds_at_64=0.2)
    sst2, place = presets.experiment("sst2-baseline"), CardPlace(2)
    runs = [
        earlier_run(home / "runs", "sst2-baseline", 0.020, presets),
        earlier_run(home / "runs", "sst2-baseline", 9.0, presets, world=2),  # of two cards: says nothing of one
    ]
    words = outlook(sst2, runs, place)
    assert words.startswith(
        "2 cards: 0.3x; two runs side by side would be faster (a step of 20 ms on one Pretend-A5000"
    )
    assert "by an earlier run, 417." in words
    other = [earlier_run(home / "other", "sst2-baseline", 0.020, presets, card="H100")]
    assert "earlier" not in outlook(sst2, other, place)


def test_the_proof_alone_knows_that_packed_sst2_is_slower_on_two_cards(home: Path, presets: Catalogue) -> None:
    """The proof times full-length batches; SST-2's sentences have 13 tokens in the mean."""
    measured()
    timed(BERT_base_seconds_at_1=0.016, BERT_base_seconds_at_64=0.2)
    sst2, place = presets.experiment("sst2-baseline"), CardPlace(2)
    words = outlook(sst2, [], place)
    assert words.startswith("2 cards: 0.4x; two runs side by side would be faster"), words
    assert "by the work of BERT-base at 13 tokens an example" in words
    assert outlook(override(sst2, ["train.batching=padded"]), [], place).startswith("2 cards: 1.")
    # where nobody counted the sentences no number is made up, and no other proof is recommended
    for unknown in (presets.experiment("mnli-baseline"), override(sst2, ["train.batching=dynamic"])):
        said = outlook(unknown, [], place)
        assert said.endswith(f"no step of {unknown.id} was timed on one {CARD}; run it on one card first"), said


def test_activations_computed_again_make_the_step_longer(home: Path, presets: Catalogue) -> None:
    timed(GPT_01_seconds_at_1=0.01, GPT_01_seconds_at_8=0.05)
    gpt = presets.experiment("GPT-01")
    plain, again = (
        scaling.step_on_one_card(one, [], read_proofs(), CARD)
        for one in (gpt, override(gpt, ["train.checkpoint_activations=true"]))
    )
    assert plain is not None
    assert again is not None
    assert again.seconds == pytest.approx(plain.seconds * 4 / 3)
    assert again.floor == pytest.approx(plain.floor * 4 / 3)


def test_the_proof_of_a_card_stands_in_for_runs(home: Path, presets: Catalogue) -> None:
    measured(40e9)
    timed(GPT_01_seconds_at_1=0.01, GPT_01_seconds_at_8=0.05, BERT_base_seconds_at_1=0.016, BERT_base_seconds_at_32=0.1)
    found = scaling.step_on_one_card(presets.experiment("GPT-01"), [], read_proofs(), CARD)
    assert found is not None
    batch = presets.experiment("GPT-01").train.effective_batch
    assert found.seconds == pytest.approx(0.05 * batch / 8)
    words = outlook(presets.experiment("GPT-01"), [], CardPlace(2))
    assert words.startswith("2 cards: 1.")
    result = speed_up(scaling.link_of(read_proofs().together[0]))
    assert result.ok
    assert set(result.figures) == {"GPT-01", "sst2-baseline"}


def test_a_speed_up_that_cannot_be_told_fails_its_check(home: Path) -> None:
    assert speed_up(None).ok is False
    assert speed_up(LINK).measured == "no step of GPT-01 was timed on one Pretend-A5000"


def test_a_failed_measurement_is_not_used(home: Path) -> None:
    keep_cards(cards("GPU-a", "GPU-b"), CARD, [CheckResult("all-reduce", False, "1 sums came out wrong")])
    assert scaling.link_between(read_proofs(), 2) is None


def test_where_a_launch_would_run() -> None:
    here = [Card(0, uuid="GPU-a"), Card(1, uuid="GPU-b"), Card(2, error="lost")]
    request = LaunchRequest(presets=("x",), per_run=2)
    assert place_of(request, here) == CardPlace(2, ("GPU-a", "GPU-b"), process.host())
    assert place_of(LaunchRequest(per_run=2, device="1,GPU-a"), here) == CardPlace(
        2, ("GPU-a", "GPU-b"), process.host()
    )
    assert place_of(LaunchRequest(per_run=2, launcher="slurm"), []) == CardPlace(2, in_job=True)
    assert place_of(LaunchRequest(per_run=1), here) is None
    assert place_of(LaunchRequest(per_run=2, device="cpu"), here) is None
    assert place_of(request, []) is None  # processes of a CPU


def test_nodes_count_wherever_they_are_asked_for(home: Path, presets: Catalogue) -> None:
    asked = place_of(LaunchRequest(per_run=2, nodes=2, launcher="slurm"), [])
    (home / "slurm.yaml").write_text("nodes: 2\n")
    written = place_of(LaunchRequest(per_run=2, launcher="slurm"), [])
    assert asked == written == CardPlace(2, nodes=2, in_job=True)
    assert place_of(LaunchRequest(launcher="slurm"), []) == CardPlace(1, nodes=2, in_job=True)
    assert place_of(LaunchRequest(launcher="slurm", slurm=("nodes=1",)), []) is None
    assert place_of(LaunchRequest(launcher="slurm"), [], {"nodes": 1}) is None
    assert outlook(presets.experiment("GPT-01"), [], written).startswith("2 nodes: what they bring is not known")


def test_under_slurm_the_advice_is_a_job(home: Path, presets: Catalogue) -> None:
    words = outlook(presets.experiment("GPT-01"), [], CardPlace(2, in_job=True))
    assert words.endswith("measure it with: oelm doctor --gpu --launcher slurm --cards 0,1")


def test_tuning_says_it_too(home: Path, presets: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    arm = presets.experiment("GPT-01")
    say_what_cards_bring(LaunchRequest(study="x", per_run=2, launcher="slurm"), [arm])
    assert capsys.readouterr().err.startswith("oelm: GPT-01 on 2 cards: what they bring is not known here")
    say_what_cards_bring(LaunchRequest(study="x"), [arm])
    assert capsys.readouterr().err == ""
    asked = ["sst2", "--budget", "2", "--dry-run", "--per-run", "2", "--launcher", "slurm"]
    ended = CliRunner().invoke(apps["tune"], [*asked, "--space", "train.lr=1e-4,1e-3"])
    assert ended.exit_code == 0, ended.output
    assert "on 2 cards: what they bring is not known here; measure it" in ended.stderr


def test_the_launch_form_shows_it_under_the_cost() -> None:
    cost = Cost(None, "?", None, "", "?", None, "?", together="2 cards: 0.3x; two runs side by side would be faster")
    lines = ["".join(text for text, _ in line) for line in cost_lines(cost, 60)]
    assert any("together" in line and "2 cards: 0.3x; two runs" in line for line in lines)
