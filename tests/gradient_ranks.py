"""Two ranks that compute a step's gradients by DDP, by FSDP2 and by a plain sum, and print how far apart they are.

`python -m tests.gradient_ranks`: forks both once torch is loaded; the first prints one JSON object, a key a case.
"""

from __future__ import annotations

import copy
import json
import os

import numpy as np
import torch
from torch import nn

from oelm_core.config import build_experiment
from oelm_core.data.classification import ClassificationData, Examples
from oelm_core.data.language import LanguageData
from oelm_core.launch import spawn
from oelm_core.method.freezing import apply_freezing
from oelm_core.models.bert import encoder_config, from_config
from oelm_core.training import sharding
from oelm_core.training.distributed import Ranks, join
from oelm_core.training.gradients import Gradients
from oelm_core.training.precision import choose_precision
from oelm_core.training.tasks import ClassificationTask
from tests.shard_ranks import compare_shards, difference
from tests.training_runs import BERT

WORLD = 2


def main() -> None:
    torch.set_num_threads(1)
    port = spawn.hold_port()
    children = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            os.environ.update(spawn.rank_environment(rank, WORLD, port.number))
            _compare(join("cpu"))
            os._exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0] * WORLD, codes


def _compare(ranks: Ranks) -> None:
    experiment = build_experiment(BERT, "test")
    torch.manual_seed(0)
    model = from_config(encoder_config(experiment.model.shape, "bert", 2, 0.0))
    apply_freezing(model, experiment.method)
    task = ClassificationTask(experiment, classification_data(experiment.model.shape.vocab), model, 0)
    unused = copy.deepcopy(model)
    unused.left_out = nn.Linear(3, 3)
    found = {"packed": task.scorer.batching == "packed", "passes": len(task.load(1, ranks).parts)}
    wrapped, same = copy.deepcopy(model), copy.deepcopy(model)
    by_ddp = Gradients(wrapped, task, ranks, choose_precision("fp32", ranks.device))
    found["frozen"] = difference(by_ddp, wrapped, same, task, ranks)
    for network in (wrapped, same):
        network.requires_grad_(True)
    found["unfrozen"] = difference(by_ddp, wrapped, same, task, ranks)
    found["a weight without a part in the loss"] = _of(unused, None, task, ranks)
    found["bf16"] = _of(model, "bf16", task, ranks)
    if sharding.AVAILABLE:
        found["shards"] = compare_shards(unused, task, ranks)
    if ranks.main:
        print(json.dumps(found), flush=True)
    ranks.barrier()


def _of(model: nn.Module, compression: str | None, task: ClassificationTask, ranks: Ranks) -> dict[str, float]:
    wrapped, same = copy.deepcopy(model), copy.deepcopy(model)
    by_ddp = Gradients(wrapped, task, ranks, choose_precision("fp32", ranks.device), compression)
    return difference(by_ddp, wrapped, same, task, ranks)


def classification_data(vocab: int, longest: int = 29) -> ClassificationData:
    dice = np.random.default_rng(0)
    lengths = dice.integers(4, longest + 1, 200)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = dice.integers(5, vocab, starts[-1]).astype(np.int32)
    examples = Examples(tokens, np.zeros(starts[-1], np.uint8), starts, dice.integers(0, 2, 200).astype(np.int64))
    return ClassificationData("test", examples, {"validation": examples}, 2, 0, "")


def language_data(vocab: int) -> LanguageData:
    tokens = np.random.default_rng(0).integers(1, vocab, 2000).astype(np.uint16)
    return LanguageData("test", tokens, tokens[:200], 0, "")


if __name__ == "__main__":
    main()
