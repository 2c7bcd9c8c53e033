"""What differs between the families: a task gives the loop the batches of a step, their loss, their evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oelm_core.config import Experiment
from oelm_core.data import classification, language, packing, token_files
from oelm_core.data.classification import ClassificationData
from oelm_core.data.language import LanguageData, sequence_count, sequences
from oelm_core.data.test_source import is_path
from oelm_core.runs.schema import DataFacts, Predictions, Sample
from oelm_core.training.distributed import Ranks
from oelm_core.training.evaluation import Evaluation, TestText
from oelm_core.training.precision import Precision
from oelm_core.training.schedule import BatchPlan, dropout_seed, seed_draws, share
from oelm_core.training.sentence_scores import SentenceScorer
from oelm_core.training.supervision import StopRequest
from oelm_core.training.text_scores import TextScorer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROBED, PROBED_TOKENS = 4, 64  # texts whose attention is looked at, and how much of each running text
PROMPT_WORDS = 6  # tokens of a validation text that a sample starts from
SAMPLE_TOKENS = 120
SAMPLE_RANK = 1 << 20  # draws of samples never coincide with a rank's dropout

Part = TypeVar("Part")
"""What a task's forward pass takes."""


@dataclass(frozen=True)
class StepBatch(Generic[Part]):
    """One optimiser step's data on one rank."""

    parts: list[Part]
    """One per forward pass."""
    units: int
    """Examples or predicted tokens of the whole step, over all forward passes and ranks: the loss's denominator."""
    examples: int
    tokens: int
    """Real tokens of the whole step, padding not counted."""


class Task(Protocol[Part]):
    """One for classification, one for language modelling."""

    plan: BatchPlan
    note: str | None
    """Something the reader of the log should know, such as packing that could not be used."""
    test: TestText | None
    """What `data.test` names."""
    fixed_shapes: bool
    """Whether the batches of all steps are of one size, but for an epoch's last."""

    def load(self, step: int, ranks: Ranks) -> StepBatch[Part]:
        """The step's data in host memory: a pure function of the step. Runs in a background thread."""

    def loss(self, model: nn.Module, part: Part, units: int) -> Tensor:
        """Summed loss of a forward pass divided by the step's units."""

    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        """Figures over the whole validation set. Raises Interrupted when a stop is asked for."""

    def samples(self, model: nn.Module, step: int, precision: Precision) -> list[Sample]:
        """Generated texts; empty for classifiers."""

    def probe(self, model: nn.Module) -> tuple[dict[str, Tensor], Tensor | None]:
        """A few validation texts, always the same, as the model's inputs; and which of their tokens are real."""

    def describe(self) -> DataFacts:
        """What was read, for checks.json and result.json."""


def load_task(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerFast,
    model: nn.Module,
    cache: Path,
    say: Callable[[str], None],
) -> Task[Any]:
    """Classification where the data have classes, language modelling where not."""
    if experiment.data.classes is None:
        return LanguageTask(experiment, language.load(experiment, tokenizer, cache, say), tokenizer)
    data = classification.load(experiment, tokenizer, cache, say)
    return ClassificationTask(experiment, data, model, _padding(tokenizer))


def load_scored(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerFast,
    model: nn.Module,
    cache: Path,
    say: Callable[[str], None],
    path: str,
    split: str | None,
) -> TestText:
    """Other text than the experiment's own, for a model that is only scored: nothing of its training text is read."""
    data, place = experiment.data, path if is_path(path) else f"./{path}"
    find = language.find_scored if data.classes is None else classification.find_scored
    if Path(place).expanduser().is_dir():
        split = find(place, split, "--data")
    shown = f"{path} ({split})" if split else path
    if data.classes is None:
        tokens = language.load_scored(data, place, split, tokenizer, cache, say, "--data")
        return TextScorer(experiment).test_text(tokens, token_files.end_token(tokenizer), tokenizer, shown)
    examples = classification.load_scored(data, place, split, tokenizer, cache, say, "--data")
    return SentenceScorer(experiment, examples, model, _padding(tokenizer)).test_text(examples, shown)


def _padding(tokenizer: PreTrainedTokenizerFast) -> int:
    return (tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id) or 0


def _rank_share(chosen: np.ndarray, ranks: Ranks) -> tuple[np.ndarray, float]:
    """A rank's examples of a forward pass, and their weight in the loss.

    A rank without examples still runs one, at no weight, so that every rank does the same collectives.
    """
    mine = share(chosen, ranks.rank, ranks.world)
    return (mine, 1.0) if len(mine) else (chosen[:1], 0.0)


# -- classification ----------------------------------------------------------------------------------------------------


class SentencePart(NamedTuple):
    batch: packing.Batch
    weight: float


class ClassificationTask:
    """Sentences, cross-entropy over classes, accuracy and its kin.

    Batches are packed, padded to their longest, or padded to data.max_length, as train.batching says.
    """

    def __init__(self, experiment: Experiment, data: ClassificationData, model: nn.Module, padding: int) -> None:
        self.experiment, self.data, self.padding = experiment, data, padding
        train = experiment.train
        self.plan = BatchPlan(len(data.train), train.batch_size, train.accumulate, experiment.seed)
        self.scorer = SentenceScorer(experiment, data.train, model, padding)
        self.note = self.scorer.note
        self.fixed_shapes = self.scorer.batching == "padded"
        self.test = None if data.test is None else self.scorer.test_text(data.test, str(experiment.data.test))

    def load(self, step: int, ranks: Ranks) -> StepBatch[SentencePart]:
        parts = []
        whole = self.plan.step(step)
        for chosen in self.plan.micro_batches(step):
            mine, weight = _rank_share(chosen, ranks)
            batch = self.scorer.batch(self.data.train, mine)
            parts.append(SentencePart(batch.pin() if ranks.device.type == "cuda" else batch, weight))
        return StepBatch(parts, len(whole), len(whole), int(self.data.train.lengths[whole].sum()))

    def loss(self, model: nn.Module, part: SentencePart, units: int) -> Tensor:
        batch = part.batch.to(next(model.parameters()).device)
        scores = packing.logits(model, batch)
        return F.cross_entropy(scores.float(), batch.labels, reduction="sum") * (part.weight / units)

    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        """The first validation split decides what is best; figures of another (MNLI's mismatched) carry its name."""
        values: dict[str, float] = {}
        kept: dict[str, Predictions] = {}
        for split, examples in self.data.validation.items():
            figures, predictions = self.scorer.score(examples, model, ranks, precision, stop)
            prefix = f"{split}_" if kept else ""
            values.update({f"{prefix}{name}": value for name, value in figures.items()})
            kept[split] = predictions
        first, *_ = kept.values()
        first.mismatched = kept.get("mismatched")
        return Evaluation(values, first)

    def samples(self, model: nn.Module, step: int, precision: Precision) -> list[Sample]:
        return []

    def probe(self, model: nn.Module) -> tuple[dict[str, Tensor], Tensor | None]:
        examples = next(iter(self.data.validation.values()))
        batch = packing.pad(examples, np.arange(min(PROBED, len(examples))), self.padding)
        batch = batch.to(next(model.parameters()).device)
        return packing.inputs_of(model, batch), batch.mask

    def describe(self) -> DataFacts:
        counts = {split: len(examples) for split, examples in self.data.validation.items()}
        lengths = self.data.train.lengths
        return DataFacts(
            name=self.data.name,
            fingerprint=self.data.fingerprint,
            train_examples=len(self.data.train),
            eval_examples=next(iter(counts.values())),
            eval_splits=counts,
            classes=self.data.classes,
            tokens_mean=float(lengths.mean()),
            tokens_max=int(lengths.max()),
            at_max_length=self.data.at_max_length,
            batching=self.scorer.batching,
        )


# -- language modelling ------------------------------------------------------------------------------------------------


class TextPart(NamedTuple):
    inputs: Tensor  # int64 [sequences, length]
    targets: Tensor
    weight: float


class LanguageTask:
    """Next-token loss, perplexity, generated samples.

    A training example is one of the text's non-overlapping sequences of data.max_length tokens. The network is a
    `models.LanguageModel`.
    """

    def __init__(self, experiment: Experiment, data: LanguageData, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """tokenizer: what samples are decoded with; none are made without it."""
        self.experiment, self.data, self.tokenizer = experiment, data, tokenizer
        self.length = experiment.data.max_length
        train = experiment.train
        count = sequence_count(data.train, self.length)
        self.plan = BatchPlan(count, train.batch_size, train.accumulate, experiment.seed)
        self.scorer = TextScorer(experiment)
        self.validation = self.scorer.text(data.validation, data.end_token, tokenizer)
        source = str(experiment.data.test)
        self.test = None if data.test is None else self.scorer.test_text(data.test, data.end_token, tokenizer, source)
        self.note: str | None = None
        self.fixed_shapes = True

    def load(self, step: int, ranks: Ranks) -> StepBatch[TextPart]:
        parts = []
        count = len(self.plan.step(step))
        for chosen in self.plan.micro_batches(step):
            mine, weight = _rank_share(chosen, ranks)
            inputs, targets = map(torch.from_numpy, sequences(self.data.train, mine, self.length))
            if ranks.device.type == "cuda":
                inputs, targets = inputs.pin_memory(), targets.pin_memory()
            parts.append(TextPart(inputs, targets, weight))
        return StepBatch(parts, count * self.length, count, count * self.length)

    def loss(self, model: nn.Module, part: TextPart, units: int) -> Tensor:
        inputs, targets, weight = part
        device = next(model.parameters()).device
        loss: Tensor = model(
            input_ids=inputs.to(device, non_blocking=True),
            shift_labels=targets.to(device, non_blocking=True),
            num_items_in_batch=units,
        ).loss
        return loss * weight

    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        return self.scorer.score(self.validation, model, ranks, precision, stop)

    @torch.no_grad()
    def samples(self, model: Any, step: int, precision: Precision) -> list[Sample]:
        if self.tokenizer is None:
            return []
        device = next(model.parameters()).device
        positions = int(getattr(model.config, "max_position_embeddings", self.length))
        texts = []
        for number, prompt in enumerate(self._prompts(self.experiment.train.samples)):
            ids = torch.from_numpy(prompt.astype(np.int64))[None].to(device)
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), precision.autocast():
                seed_draws(dropout_seed(self.experiment.seed, step, SAMPLE_RANK + number), device)
                out = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=min(SAMPLE_TOKENS, positions - ids.shape[1]),
                    do_sample=True,
                    temperature=0.8,
                    top_k=min(50, int(model.config.vocab_size)),
                    eos_token_id=self.data.end_token,
                    pad_token_id=self.data.end_token,
                    synced_gpus=False,  # the first rank writes alone, also where the model is shared out among ranks
                )
            decode = self.tokenizer.decode
            text = str(decode(out[0, ids.shape[1] :], skip_special_tokens=True))
            texts.append(Sample(step=step, prompt=str(decode(ids[0])), text=text))
        return texts

    def _prompts(self, count: int) -> list[np.ndarray]:
        """The first words of the first validation documents."""
        text = np.asarray(self.data.validation[:100_000])
        ends = np.flatnonzero(text == self.data.end_token)
        starts = [0, *(ends + 1).tolist()]
        prompts = [text[start : start + PROMPT_WORDS] for start in starts]
        return [p for p in prompts if len(p) == PROMPT_WORDS and not (p == self.data.end_token).any()][:count]

    def probe(self, model: nn.Module) -> tuple[dict[str, Tensor], Tensor | None]:
        length = min(self.length, PROBED_TOKENS)
        count = min(PROBED, sequence_count(self.data.validation, length))
        inputs, _ = sequences(self.data.validation, np.arange(count), length)
        return {"input_ids": torch.from_numpy(inputs).to(next(model.parameters()).device)}, None

    def describe(self) -> DataFacts:
        whole = sequence_count(self.data.validation, self.length)
        return DataFacts(
            name=self.data.name,
            fingerprint=self.data.fingerprint,
            train_examples=self.plan.examples,
            train_tokens=len(self.data.train),
            eval_examples=whole + (len(self.data.validation) - 1 > whole * self.length),
            eval_tokens=len(self.data.validation) - 1,
        )
