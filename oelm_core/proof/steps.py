"""How a step runs: on which attention kernel, without waiting for the card, and timed rightly."""

from __future__ import annotations

import contextlib
import statistics
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oelm_core.formatting import percent
from oelm_core.proof.finding import Finding
from oelm_core.proof.subjects import at, folder_of, stepping
from oelm_core.training.timing import Stopwatch

FUSED = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
    "_scaled_dot_product_flash_attention_for_cpu": "flash on a CPU",
}
"""Attention that keeps no map of all pairs of tokens, by torch's name. The plain way is no operation of its own."""
KINDS = (("gpt", None), ("bert", "packed"), ("bert", "padded"), ("bert", "dynamic"))
"""Subjects and how their batches are made."""
WARM, WATCHED = 3, 5
CLOCKS_AGREE = 0.05
LONG_ENOUGH = 0.02
"""Seconds of work between two looks at the clocks."""


def attention_kernels(device: torch.device) -> Finding:
    """By the operations of a step, in the precision that `amp` takes here."""
    words, ok = [], True
    for name, batching in KINDS:
        seen = _operations(name, batching, device)
        kernels = [title for operation, title in FUSED.items() if operation in seen]
        words.append(f"{_title(name, batching)}: {', '.join(kernels) or 'the plain one'}")
        ok = ok and bool(kernels)
    return Finding(ok, "; ".join(words), "a fused kernel")


def _operations(name: str, batching: str | None, device: torch.device) -> set[str]:
    settings = _settings(batching) + ["model.dropout=0"] * (device.type == "cpu")  # no kernel of a CPU has dropout
    with at(folder_of(name, *settings), device) as session, stepping(session) as step:
        step(1)
        with _Watching() as seen:
            step(2)
    return seen.names


class _Watching(TorchDispatchMode):
    """Notes the names of the operations that reach a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.names.add(operation.overloadpacket.__name__)
        return operation(*arguments, **(named or {}))


def _settings(batching: str | None) -> list[str]:
    return ["train.precision=amp", *([f"train.batching={batching}"] if batching else [])]


def _title(name: str, batching: str | None) -> str:
    return f"{name} {batching}" if batching else name


# -- waiting -----------------------------------------------------------------------------------------------------------


class Waited(RuntimeError):
    """Something asked a device for a number."""


class _NoNumbers(TorchDispatchMode):
    """Stands in for CUDA's own watch where there is none: what would have to wait for a card is refused."""

    ASKING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim")

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if operation.overloadpacket.__name__ in self.ASKING:
            raise Waited(f"{operation.overloadpacket.__name__} waits for the device")
        return operation(*arguments, **(named or {}))


@contextlib.contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """Whatever makes the host wait for the device raises."""
    if device.type != "cuda":
        with _NoNumbers():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def host_waits(device: torch.device) -> Finding:
    waits = []
    for name, batching in KINDS:
        with at(folder_of(name, *_settings(batching)), device) as session, stepping(session) as step:
            for number in range(1, WARM + 1):
                step(number)
            try:
                with no_waiting(device):
                    for number in range(WARM + 1, WARM + WATCHED + 1):
                        step(number)
            except RuntimeError as error:
                waits.append(f"{_title(name, batching)}: {first_line(error)} at {where(error)}")
    kinds = ", ".join(_title(*kind) for kind in KINDS)
    measured = "; ".join(waits) or f"none in {WATCHED} steps of {kinds}"
    return Finding(not waits, measured, "no step waits for the card")


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def where(error: BaseException) -> str:
    """The last line outside torch that led to an error: oelm_core/models/gpt.py:120."""
    frames = traceback.extract_tb(error.__traceback__)
    others = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    ours = [frame for frame in frames if not frame.filename.startswith(others)]
    last = (ours or frames)[-1]
    return f"{'/'.join(last.filename.split('/')[-3:])}:{last.lineno}"


# -- the clock ---------------------------------------------------------------------------------------------------------


def event_clock(device: torch.device) -> Finding:
    """The loop's stopwatch, which never waits, beside a clock that waits for the device."""
    side = 4096 if device.type == "cuda" else 512
    matrix = torch.ones(side, side, device=device)
    turns, seconds = 1, 0.0
    while True:
        began = time.perf_counter()
        _work(matrix, turns)
        seconds = time.perf_counter() - began
        if seconds >= LONG_ENOUGH:
            break
        turns *= 2
    ratios = []
    for _ in range(7):
        watch = Stopwatch(device)
        _wait(device)
        began = time.perf_counter()
        watch.mark()
        for _ in range(turns):
            matrix @ matrix
        watch.mark()
        _wait(device)
        seconds = time.perf_counter() - began
        ratios.append(watch.seconds() / seconds)
    ratio = statistics.median(ratios)
    measured = f"events say {percent(ratio, 1)} of {1000 * seconds:.0f} ms by the synchronised clock"
    return Finding(
        abs(ratio - 1) <= CLOCKS_AGREE, measured, f"within {percent(CLOCKS_AGREE, 0)}", figures={"ratio": ratio}
    )


def _work(matrix: torch.Tensor, turns: int) -> None:
    _wait(matrix.device)
    for _ in range(turns):
        matrix @ matrix
    _wait(matrix.device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
