"""The lab's own training step, session and loop and task as they are, over tensors of a pretend card."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _foreach_utils
from transformers import masking_utils

from oelm_core import models
from oelm_core.bench.steps import like_sst2
from oelm_core.config import Experiment, as_dict, config_hash
from oelm_core.data import packing
from oelm_core.data.classification import ClassificationData
from oelm_core.data.language import LanguageData
from oelm_core.method.freezing import UnfreezeSchedule, apply_freezing
from oelm_core.models.recompute import checkpoint_activations
from oelm_core.models.structure import attention_layers
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Checks, RunRecord
from oelm_core.training.distributed import Ranks
from oelm_core.training.loop import Loop
from oelm_core.training.precision import choose_precision
from oelm_core.training.recorder import Recorder
from oelm_core.training.session import Session, build_optimiser
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import ClassificationTask, LanguageTask, Task
from oelm_core.training.timing import MemoryMeter
from tests.pretend_cuda import A5000, Capability, StepCount
from tests.pretend_cuda.attention import PretendAttention
from tests.pretend_cuda.card import CARD, pretend_card
from tests.pretend_cuda.counting import Counting

EXAMPLES = 400
FOREACH = _foreach_utils._foreach_supported_types


def count_here(experiment: Experiment, capability: Capability = A5000) -> StepCount:
    """`count_step` in this process, which had the card from its start.

    The second step is counted; the first makes the optimiser's moments. Nothing is computed, so full sizes cost little.
    """
    counting = Counting()
    model = models.build(experiment, device="meta", seed=experiment.seed)
    with pretend_training(capability, counting), tempfile.TemporaryDirectory() as home:
        session = session_on_card(experiment, model, Path(home))
        with counting, contextlib.closing(TwoSteps(session)) as steps:
            steps.run(1)
            counting.forget()
            steps.run(2)
    return counting.found(session.precision.name)


class TwoSteps:
    """The loop's own step and what follows it, without the evaluation at the end."""

    def __init__(self, session: Session) -> None:
        self.loop = Loop(session)

    def run(self, step: int) -> None:
        self.loop._step(step)
        self.loop._after_step(step)

    def close(self) -> None:
        self.loop._loader.shutdown()


@contextlib.contextmanager
def pretend_training(capability: Capability, counting: Counting) -> Iterator[None]:
    """A card, the mode in which its tensors have no numbers, and libraries that do not notice."""
    products = torch.get_float32_matmul_precision()
    with contextlib.ExitStack() as patches:
        patches.enter_context(pretend_card(capability, counting.waited))
        # transformers leaves out checks of a mask's numbers where it sees a fake tensor; on a card it makes them.
        patches.enter_context(mock.patch.object(masking_utils, "is_tracing", return_value=False))
        # Compared on the host before a model goes to the card, with numbers that we have not.
        patches.enter_context(mock.patch.object(packing, "can_pack", return_value=None))
        attention = PretendAttention(capability)
        patches.enter_context(mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attention))
        # A card's tensors go through multi-tensor functions; torch knows them by their class.
        patches.enter_context(mock.patch.object(_foreach_utils, "_foreach_supported_types", [*FOREACH, FakeTensor]))
        patches.enter_context(counting.fake)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)


def session_on_card(experiment: Experiment, model: nn.Module, home: Path) -> Session:
    """As `set_up` makes it, from sizes alone: without text, tokenizer or weights."""
    ranks = Ranks(0, 1, CARD)
    precision = choose_precision(experiment.train.precision, CARD)
    precision.engage()
    _move(model)
    frozen = apply_freezing(model, experiment.method)
    task = made_up_task(experiment, model)
    total = task.plan.total_steps(experiment.train.max_steps, experiment.train.epochs)
    model.train()
    if experiment.train.checkpoint_activations:
        checkpoint_activations(model)
    config = as_dict(experiment)
    return Session(
        folder=RunFolder(home),
        run=RunRecord(preset=experiment.id, config=config, config_hash=config_hash(config), seed=experiment.seed),
        experiment=experiment,
        ranks=ranks,
        stop=StopRequest(),
        recorder=Recorder(RunFolder(home), total, active=False),
        precision=precision,
        task=task,
        model=model,
        frozen=frozen,
        unfreezing=UnfreezeSchedule.of(experiment, len(attention_layers(model)), total),
        optimiser=build_optimiser(model, experiment, total),
        scaler=precision.scaler(),
        total=total,
        threads=1,
        checks=Checks(),
        memory=MemoryMeter(CARD),
    )


def _move(model: Any) -> None:
    """To the card; torch makes new parameters of such tensors, so those that are tied are tied again."""
    before = sum(1 for _ in model.parameters())
    model.to_empty(device=CARD)
    model.tie_weights()
    assert sum(1 for _ in model.parameters()) == before


def made_up_task(experiment: Experiment, model: Any) -> Task[Any]:
    """Batches as long as the recipe's: sentences like SST-2's, or text of any tokens."""
    data, draw = experiment.data, np.random.default_rng(0)
    vocab = int(model.config.vocab_size)
    if data.classes is None:
        tokens = draw.integers(0, vocab, data.max_length * EXAMPLES + 1).astype(np.uint16)
        text = LanguageData("made up", tokens, tokens[: data.max_length * 2 + 1], 0, "made up")
        return LanguageTask(experiment, text, None)
    examples = like_sst2(EXAMPLES, vocab)
    sentences = ClassificationData("made up", examples, {"validation": examples}, data.classes, 0, "made up")
    return ClassificationTask(experiment, sentences, model, padding=0)
