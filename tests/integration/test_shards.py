"""Runs whose model is shared out among two ranks: results and checkpoints as of DDP, resumed by any number of ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from oelm_core.launch.spawn import hold_port, rank_environment
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Result
from oelm_core.training import sharding
from tests import needs
from tests.training_runs import BERT, GPT, experiment, figures, run_folder, texts, weights
from tests.warm_worker import WarmWorker

pytestmark = [pytest.mark.slow, needs.two_cores, pytest.mark.xdist_group("processes")]
SHORT = ["train.max_steps=8", "train.eval_every=4", "train.keep_checkpoints=9", "train.samples=1"]
SHARD = "train.shard=true"
CASES = {
    # Without dropout: each rank draws its own masks, so only then does their number not matter.
    "an encoder that unfreezes": (
        BERT,
        [
            "model.dropout=0.0",
            "train.accumulate=2",
            "data.test=held-out 0.1",
            "method.unfreeze.at=5",
            "method.unfreeze.warmup=2",
        ],
    ),
    "a GPT that stays frozen": (GPT, ["model.dropout=0.0", "train.attention_stats=true"]),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    if not sharding.AVAILABLE:
        pytest.skip(needs.torch_2_8)
    return Lab(tmp_path_factory.mktemp("home"))


class Lab:
    """Trains the cases, and resumes them from the middle."""

    def __init__(self, home: Path) -> None:
        self.home, self.data = home, texts(home / "texts")
        settings = {"OELM_THREADS": "1", "OELM_DEVICE": "cpu", "OELM_RANK_TIMEOUT": "30"}
        self.warm = WarmWorker({"OELM_HOME": str(home), **settings})
        self.done: dict[tuple[str, int, bool], RunFolder] = {}

    def trained(self, case: str, world: int, shard: bool) -> RunFolder:
        key = case, world, shard
        if key not in self.done:
            base, settings = CASES[case]
            chosen = experiment(base, self.data, *SHORT, *settings, *([SHARD] if shard else []))
            self.done[key] = self.run(run_folder(self.home / f"runs{len(self.done)}", chosen), world)
        return self.done[key]

    def resumed(self, folder: RunFolder, world: int) -> RunFolder:
        """A copy of a finished run that has lost its last checkpoint: it goes on from the one of step 4."""
        copy = RunFolder(folder.path.with_name(f"{folder.id}-on-{world}"))
        shutil.copytree(folder.path, copy.path, symlinks=True)
        shutil.rmtree(copy.checkpoints / "step-8")
        return self.run(copy, world)

    def run(self, folder: RunFolder, world: int) -> RunFolder:
        port = hold_port()
        ranks = [rank_environment(rank, world, port.number) if world > 1 else {} for rank in range(world)]
        pids = [self.warm.start(folder.path, **rank) for rank in ranks]
        assert [self.warm.wait(pid) for pid in pids] == [0] * world, folder.log.read_text()
        return folder


def assert_alike(one: RunFolder, other: RunFolder) -> None:
    """The same figures and weights but for the order in which sums were rounded."""
    for mine, theirs in zip(figures(one), figures(other), strict=True):
        assert (mine.step, mine.kind) == (theirs.step, theirs.kind)
        assert mine.values == pytest.approx(theirs.values, rel=1e-4, abs=1e-6)
    for name in ("model", "optimiser"):
        mine, theirs = (load_file(run.checkpoints / "latest" / f"{name}.safetensors") for run in (one, other))
        assert {key: value.shape for key, value in mine.items()} == {key: value.shape for key, value in theirs.items()}
        for key, value in mine.items():
            assert (value - theirs[key]).abs().max() < 1e-4, key


@pytest.mark.parametrize("case", CASES)
def test_shards_train_what_ddp_trains_and_frozen_weights_stay(lab: Lab, case: str) -> None:
    sharded, by_ddp = lab.trained(case, 2, shard=True), lab.trained(case, 2, shard=False)
    assert "on 2 x cpu, sharded" in sharded.log.read_text()
    assert_alike(sharded, by_ddp)
    result, plain = sharded.read(Result), by_ddp.read(Result)
    assert result is not None
    assert plain is not None
    assert result.frozen.unchanged
    assert result.frozen == plain.frozen
    assert result.parameters == plain.parameters
    assert (result.test is None) == (plain.test is None)
    if result.test and plain.test:
        assert result.test.step == plain.test.step
        assert result.test.values == pytest.approx(plain.test.values, rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_shards_resumed_end_bit_identical(lab: Lab, case: str) -> None:
    whole = lab.trained(case, 2, shard=True)
    again = lab.resumed(whole, 2)
    assert "resumed from the checkpoint of step 4" in again.log.read_text()
    assert figures(again) == figures(whole)
    assert weights(again) == weights(whole)


def test_two_ranks_go_on_as_one_and_one_as_two(lab: Lab) -> None:
    case = "an encoder that unfreezes"
    whole, alone = lab.trained(case, 2, shard=True), lab.trained(case, 1, shard=True)
    assert "one process has nobody to share the model out to" in alone.log.read_text()
    assert "sharded" not in alone.log.read_text()
    assert_alike(lab.resumed(whole, 1), whole)
    assert_alike(lab.resumed(alone, 2), whole)
