"""What a card's memory takes: out of memory and back, and the largest batch of the recipes that matter."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oelm_core import models
from oelm_core.config import Experiment, override
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.formatting import measured_time, size
from oelm_core.proof.finding import Finding
from oelm_core.proof.subjects import SHAPE, at, folder_of, stepping
from oelm_core.training.failures import is_out_of_memory, out_of_memory_sentence
from oelm_core.training.precision import Precision, choose_precision
from oelm_core.training.session import build_optimiser
from oelm_core.training.timing import Stopwatch

ROOM = 64 << 20
"""Bytes that are left when the card is made to look full."""
SLACK = 16 << 20
"""Bytes by which what is held may grow over a failure: workspaces that libraries keep."""
RECIPES = {"GPT-01": "GPT-01", "BERT-base": "sst2-baseline"}
"""What is measured, and the preset that it is the model and the length of."""
MOST, MOST_ON_CPU = 1024, 4


def out_of_memory(device: torch.device) -> Finding:
    """Forced by torch's own limit, so that nobody else on the card is harmed."""
    bound = "recognised, and the next step trains"
    with at(folder_of("gpt"), device) as session, stepping(session) as step:
        step(1)
        before = _held(device)
        error = _force(device)
        if error is None:
            return Finding(False, "a request that cannot be met was met", bound)
        if not is_out_of_memory(error):
            return Finding(False, f"not recognised: {type(error).__name__}: {str(error).splitlines()[0]}", bound)
        words = out_of_memory_sentence(error, None).partition(";")[0]
        del error
        step(2)
        grown = _held(device) - before
        if grown > SLACK:
            return Finding(False, f"{size(grown)} more are held after it", bound)
    return Finding(True, words, bound)


def _force(device: torch.device) -> BaseException | None:
    """The error of a request that no memory can meet."""
    try:
        if device.type != "cuda":
            torch.empty(1 << 55, dtype=torch.uint8)
            return None
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, (torch.cuda.memory_reserved(device) + ROOM) / total), device
        )
        torch.empty(2 * ROOM + torch.cuda.memory_reserved(device), dtype=torch.uint8, device=device)
    except (RuntimeError, MemoryError) as error:
        return error.with_traceback(None)  # its frames would hold what was allocated
    finally:
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, device)
            torch.cuda.empty_cache()
    return None


def _held(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


# -- the largest batch -------------------------------------------------------------------------------------------------


def largest_batches(device: torch.device) -> Finding:
    """Of one forward pass at full length, in the precision that `amp` takes; with the time of a step at 1 and at 8."""
    words, fixes, figures, ok = [], [], {}, True
    for title, preset in RECIPES.items():
        experiment = _recipe(preset, device)
        trial = Trial(experiment, device)
        most = largest(trial.fits, MOST if device.type == "cuda" else MOST_ON_CPU)
        own = experiment.train.batch_size
        figures[f"{title} batch"] = float(most)
        figures |= {f"{title} seconds at {batch}": seconds for batch, seconds in trial.seconds.items()}
        took = f", {measured_time(trial.seconds[most])} a step" if most else ""
        words.append(f"{title} {most}{'+' if most == MOST else ''} at length {experiment.data.max_length}{took}")
        ok = ok and most > 0
        if 0 < most < own and device.type == "cuda":
            fixes.append(
                f"{title}: its recipe's batch of {own} needs train.batch_size={most} and more train.accumulate"
            )
        del trial
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return Finding(ok, "; ".join(words), "at least 1", "; ".join(fixes), figures)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest batch that fits, to an eighth: by doubling, then by halving the gap. 0 where not even 1 does.

    >>> largest(lambda batch: batch <= 37, 1024), largest(lambda batch: True, 64), largest(lambda batch: False, 64)
    (36, 64, 0)
    """
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    if high > most:
        return low
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _recipe(preset: str, device: torch.device) -> Experiment:
    """From its sizes alone, nothing is downloaded. A CPU takes sizes that cost it nothing."""
    found = override(load_folders([SHIPPED]).experiment(preset), ["model.start=scratch"])
    if device.type == "cuda":
        return found
    tiny = [f"model.shape.{key}={value}" for key, value in SHAPE.items()]
    return override(found, [*tiny, f"data.max_length={SHAPE['positions']}"])


class Trial:
    """A model of a recipe, and what it does with batches of any size."""

    def __init__(self, experiment: Experiment, device: torch.device) -> None:
        self.experiment, self.device = experiment, device
        self.model: Any = models.build(experiment, device=str(device), seed=0).train()
        self.optimiser = build_optimiser(self.model, experiment, 100)
        self.precision: Precision = choose_precision("amp", device)
        self.scaler = self.precision.scaler()
        self.seconds: dict[int, float] = {}
        """Of a warm step, by batch."""

    def fits(self, batch: int) -> bool:
        """Whether two steps of this batch can be made; the second is timed."""
        try:
            self._step(batch)
            watch = Stopwatch(self.device)
            watch.mark()
            self._step(batch)
            watch.mark()
            self.seconds[batch] = watch.seconds()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            self.optimiser.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return True

    def _step(self, batch: int) -> None:
        with self.precision.autocast():
            loss = self._loss(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)

    def _loss(self, batch: int) -> Tensor:
        """Of tokens that are all real, so that every sequence has its full length."""
        data, vocab = self.experiment.data, int(self.model.config.vocab_size)
        tokens = torch.arange(batch * data.max_length, device=self.device).reshape(batch, -1) % (vocab - 8) + 5
        if data.classes is None:
            count = tokens.numel()
            found: Tensor = self.model(input_ids=tokens, shift_labels=tokens, num_items_in_batch=count).loss
        else:
            found = self.model(input_ids=tokens, labels=tokens[:, 0] % data.classes).loss
        return found
