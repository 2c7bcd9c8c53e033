"""Language modelling as the loop sees it: sequences of tokens, next-token loss, perplexity, generated samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oelm_core.config import Experiment
from oelm_core.data.language import LanguageData, sequence_count, sequences
from oelm_core.training import evaluation
from oelm_core.training.batches import Plan, share
from oelm_core.training.distributed import Ranks
from oelm_core.training.draws import dropout_seed, seed_draws
from oelm_core.training.eval_batching import LargestBatch
from oelm_core.training.evaluation import Evaluation
from oelm_core.training.precision import Precision
from oelm_core.training.signals import Interrupted, StopRequest
from oelm_core.training.tasks import StepBatch

PROMPT_WORDS = 6  # tokens of a validation text that a sample starts from
SAMPLE_TOKENS = 120
PROBED, PROBED_TOKENS = 4, 64  # texts whose attention is looked at, and how much of each
SAMPLE_RANK = 1 << 20  # draws of samples never coincide with a rank's dropout


class LanguageTask:
    """A training example is one of the text's non-overlapping sequences of data.max_length tokens."""

    def __init__(self, experiment: Experiment, data: LanguageData, tokenizer: Any) -> None:
        self.experiment, self.data, self.tokenizer = experiment, data, tokenizer
        self.length = experiment.data.max_length
        train = experiment.train
        self.plan = Plan(sequence_count(data.train, self.length), train.batch_size, train.accumulate, experiment.seed)
        self.eval_batch = train.eval_batch_size or train.batch_size
        self.largest = LargestBatch(most=1 if train.eval_batch_size else None)
        self.note: str | None = None

    def load(self, step: int, ranks: Ranks) -> StepBatch:
        parts = []
        count = len(self.plan.step(step))
        for chosen in self.plan.micro_batches(step):
            mine = share(chosen, ranks.rank, ranks.world)
            inputs, targets = map(
                torch.from_numpy, sequences(self.data.train, mine if len(mine) else chosen[:1], self.length)
            )
            if ranks.device.type == "cuda":
                inputs, targets = inputs.pin_memory(), targets.pin_memory()
            parts.append((inputs, targets, 1.0 if len(mine) else 0.0))
        return StepBatch(parts, count * self.length, count, count * self.length)

    def loss(self, model: nn.Module, part: Any, units: int) -> Tensor:
        inputs, targets, weight = part
        device = next(model.parameters()).device
        loss: Tensor = model(
            input_ids=inputs.to(device, non_blocking=True),
            shift_labels=targets.to(device, non_blocking=True),
            num_items_in_batch=units,
        ).loss
        return loss * weight

    @torch.no_grad()
    def evaluate(self, model: nn.Module, ranks: Ranks, precision: Precision, stop: StopRequest) -> Evaluation:
        """Every validation token but the first is predicted once; the last sequence may be short."""
        text, length = self.data.validation, self.length
        whole = sequence_count(text, length)
        batches = [np.arange(s, min(s + self.eval_batch, whole)) for s in range(0, whole, self.eval_batch)]

        def forward(chosen: np.ndarray) -> Tensor:
            if stop.number and ranks.world == 1:
                raise Interrupted
            inputs, targets = map(torch.from_numpy, sequences(text, chosen, length))
            return self._sums(model, inputs, targets, ranks.device, precision)

        mine = list(self.largest.over(batches[ranks.rank :: ranks.world], forward))
        sums = np.zeros(whole)
        for part in ranks.gather([(chosen, loss.cpu().numpy()) for chosen, loss in mine]):
            for chosen, losses in part:
                sums[chosen] = losses
        tokens = np.full(whole, length)
        rest = np.asarray(text[whole * length :], np.int64)
        if len(rest) > 1:
            inputs, targets = torch.from_numpy(rest[None, :-1]), torch.from_numpy(rest[None, 1:])
            last = self._sums(model, inputs, targets, ranks.device, precision).cpu().numpy()
            sums, tokens = np.append(sums, last), np.append(tokens, len(rest) - 1)
        values = evaluation.language(sums, tokens)
        return Evaluation(values, "losses", {"losses": sums.tolist(), "tokens": tokens.tolist()})

    def _sums(self, model: Any, inputs: Tensor, targets: Tensor, device: torch.device, precision: Precision) -> Tensor:
        """Summed loss of each sequence `[B]`, float64."""
        with precision.autocast():
            losses: Tensor = model.token_losses(inputs.to(device), targets.to(device))
        return losses.double().sum(-1)

    @torch.no_grad()
    def samples(self, model: Any, step: int, precision: Precision) -> list[dict[str, str]]:
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
                )
            decode = self.tokenizer.decode
            told = decode(out[0, ids.shape[1] :], skip_special_tokens=True)
            texts.append({"prompt": decode(ids[0]), "text": told})
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

    def describe(self) -> dict[str, Any]:
        whole = sequence_count(self.data.validation, self.length)
        return {
            "name": self.data.name,
            "fingerprint": self.data.fingerprint,
            "train_examples": self.plan.examples,
            "train_tokens": len(self.data.train),
            "eval_examples": whole + (len(self.data.validation) - 1 > whole * self.length),
            "eval_tokens": len(self.data.validation) - 1,
        }
