"""How a run ended badly, as one sentence and a reason that readers can count on."""

from __future__ import annotations

import contextlib
import errno
import re
from typing import NamedTuple

import psutil
import torch

from oelm_core.config import Train
from oelm_core.devices.card_errors import CardError, card_error
from oelm_core.errors import LabError
from oelm_core.formatting import size


class NonFinite(LabError):
    """The loss or a gradient stopped being a number."""

    reason = "nonfinite"

    def __init__(self, message: str, elsewhere: bool = False) -> None:
        """elsewhere: whether the loss of this rank was finite, and another's was not."""
        super().__init__(message)
        self.elsewhere = elsewhere


class DiskFull(LabError):
    """A checkpoint could not be written; the one before it is still good."""

    reason = "disk"


class Failure(NamedTuple):
    """Why an exception ended a run."""

    reason: str
    message: str
    unexpected: bool = False
    """Whether the traceback belongs in the log."""


def failure_of(error: BaseException, train: Train | None) -> Failure:
    if isinstance(error, LabError):
        return Failure(error.reason, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Failure("disk", f"the disk is full ({error.filename or error}); the last checkpoint is still usable.")
    if isinstance(error, SystemExit):
        return Failure("error", f"the training code called sys.exit({error.code or 0}).", unexpected=True)
    found = _of_a_card(error)
    if found is not None and found.reason == "oom":
        return Failure("oom", out_of_memory_sentence(error, train))
    if found is not None:
        return Failure(found.reason, f"{found.words}; {found.advice}.", unexpected=True)
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return Failure("error", f"{type(error).__name__}: {first_line}", unexpected=True)


def is_out_of_memory(error: BaseException) -> bool:
    """In any of its spellings: of torch's allocators, of CUDA itself, of cuBLAS, cuDNN and NCCL."""
    found = _of_a_card(error)
    return found is not None and found.reason == "oom"


def _of_a_card(error: BaseException) -> CardError | None:
    """What the error, or the one that torch wrapped in it, says of a card: only its words tell one from another."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return CardError("oom", str(error), "")
    found = card_error(str(error)) if isinstance(error, RuntimeError) else None
    if found is None and error.__cause__ is not None:
        return _of_a_card(error.__cause__)
    return found


def out_of_memory_sentence(error: BaseException, train: Train | None) -> str:
    """What was asked for, what was free, and which setting to lower."""
    asked = re.search(r"(?:allocate|allocate memory: you tried to allocate) ([\d.]+ ?\w+)", str(error))
    wanted = f"asked for {asked[1]}" if asked else "asked for more than there was"
    free = _free()
    advice = "lower train.batch_size and raise train.accumulate by the same factor"
    if train is not None and train.batch_size > 1:
        half = train.batch_size // 2
        advice = (
            f"lower train.batch_size from {train.batch_size} to {half} and raise train.accumulate from"
            f" {train.accumulate} to {train.accumulate * train.batch_size // half}, which keeps the recipe's batch"
        )
    if train is not None and not train.checkpoint_activations:
        advice += "; train.checkpoint_activations=true needs less too, at the price of a second forward pass"
    if train is not None and train.compile == "graphs":
        advice += "; both need train.compile=true in place of graphs"
    return f"out of memory: {wanted}, free was {free}; {advice}."


def _free() -> str:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # after some errors a card answers nothing any more
            free, total = torch.cuda.mem_get_info()
            return f"{size(free)} of {size(total)} on {torch.cuda.get_device_name()}"
        return "unknown"
    memory = psutil.virtual_memory()
    return f"{size(memory.available)} of {size(memory.total)} of host memory"
