"""Whether a card computes what a CPU computes: in every precision, after a resume, and compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor

from oelm_core.errors import BadInput
from oelm_core.formatting import percent
from oelm_core.proof.finding import Finding
from oelm_core.proof.subjects import Trained, folder_of, train, train_folder
from oelm_core.runs.folder import RunFolder
from oelm_core.training import checkpoint
from oelm_core.training.precision import choose_precision

STEPS = 20
# How far the mean gradient of any weight may be off after 20 steps. An attention that is wrong by a tenth moves it by a
# tenth; rounding to tf32 or fp16 by 0.0002 to 0.002, to bf16 by 0.007 to 0.05.
BOUNDS = {"fp32": 0.005, "tf32": 0.02, "bf16": 0.15, "fp16": 0.02}
AFTER_SKIPS = 0.5
"""In fp16 where steps were skipped: the card is then some steps behind, and only nonsense is told from numbers."""
OF_A_RESUME = 0.02
"""Of the way that the weights went: on a card sums differ from time to time; another dropout gives a half or more."""


def gpt(device: torch.device) -> Finding:
    return _against_cpu("gpt", device)


def bert(device: torch.device) -> Finding:
    return _against_cpu("bert", device)


def _against_cpu(name: str, device: torch.device) -> Finding:
    """Without dropout, for devices draw differently."""
    settings = (f"train.max_steps={STEPS}", "model.dropout=0")
    reference = train(name, torch.device("cpu"), *settings, "train.precision=fp32").mean_gradients()
    words, bounds, figures, ok = [], [], {}, True
    for precision, bound in BOUNDS.items():
        if not _has(device, precision):
            continue
        trained = train(name, device, *settings, f"train.precision={precision}")
        if trained.skipped:
            bound = AFTER_SKIPS
        off, where = worst(reference, trained.mean_gradients())
        figures[precision] = off
        skips = f", {trained.skipped} steps skipped" if trained.skipped else ""
        words.append(f"{precision} off by {percent(off, 3)}{skips}" + (f" ({where})" if off > bound else ""))
        bounds.append(f"{precision} {percent(bound, 1)}")
        ok = ok and off <= bound
    return Finding(ok, "; ".join(words), f"mean gradient of every weight: {', '.join(bounds)}", figures=figures)


def worst(reference: dict[str, Tensor], found: dict[str, Tensor]) -> tuple[float, str]:
    """(largest relative difference of a tensor, its name). What is not finite is infinitely wrong."""
    if reference.keys() != found.keys():
        return float("inf"), "other weights train"
    off = {name: _relative(found[name], reference[name]) for name in reference}
    name = max(off, key=off.__getitem__)
    return off[name], name


def _relative(found: Tensor, reference: Tensor) -> float:
    difference = float((found.double() - reference.double()).norm() / reference.double().norm().clamp_min(1e-30))
    return difference if difference == difference else float("inf")


def _has(device: torch.device, precision: str) -> bool:
    try:
        choose_precision(precision, device)
    except BadInput:
        return False
    return True


def resume(device: torch.device) -> Finding:
    """With dropout, whose draws a resume must continue."""
    settings = ("train.max_steps=10", "train.checkpoint_every=5", "train.keep_checkpoints=5", "train.precision=fp32")
    words, largest, bound = [], 0.0, 0.0 if device.type == "cpu" else OF_A_RESUME
    for name in ("gpt", "bert"):
        folder = folder_of(name, *settings)
        straight = train_folder(folder, device)
        half = checkpoint.verify(folder.checkpoints / "step-5")
        if isinstance(half, str):
            return Finding(False, f"{name}: the checkpoint of step 5: {half}", "a checkpoint that can be read back")
        start = half.tensors("model")
        resumed = train_folder(_only_to_step_5(folder), device)
        off = apart(straight, resumed, start)
        words.append(f"{name} off by {percent(off, 3)}")
        largest = max(largest, off)
    limit = "equal to the last bit" if bound == 0 else f"{percent(bound, 0)} of the way the weights went"
    return Finding(largest <= bound, "; ".join(words), limit, figures={"off": largest})


def _only_to_step_5(folder: RunFolder) -> RunFolder:
    """The same run as a stop after its fifth step would have left it."""
    other = Path(f"{folder.path}-resumed")
    shutil.copytree(folder.path, other, symlinks=True)
    copied = RunFolder(other)
    shutil.rmtree(copied.checkpoints / "step-10")
    checkpoint.point(copied.checkpoints, "latest", 5)
    return copied


def apart(straight: Trained, resumed: Trained, start: dict[str, Tensor]) -> float:
    """Distance between two ends, as a share of the way from the start."""
    one, other = straight.weights(), resumed.weights()
    gap = sum(float((one[name].double() - other[name].double()).square().sum()) for name in one)
    way = sum(float((one[name].double() - start[name].double()).square().sum()) for name in one)
    share = (gap / max(way, 1e-30)) ** 0.5
    return share if share == share else float("inf")


def compiled(device: torch.device) -> Finding:
    """A few steps of the GPT with train.compile against the same without, on a card also with its graphs."""
    settings = ("train.max_steps=3", "model.dropout=0", "train.precision=fp32", "train.accumulate=1")
    plain = train("gpt", device, *settings).mean_gradients()
    before, skipped = _counted("stats", "unique_graphs"), _counted("inductor", "cudagraph_skips")
    ways = ["true", "graphs"] if device.type == "cuda" else ["true"]
    found = {
        way: worst(plain, train("gpt", device, *settings, f"train.compile={way}").mean_gradients()) for way in ways
    }
    if _counted("stats", "unique_graphs") == before:
        return Finding(False, "nothing was compiled", "compiled layers")
    bound = BOUNDS["fp32"]
    way, (off, where) = max(found.items(), key=lambda one: one[1])
    named = f" ({where}, compile: {way})" if off > bound else ""
    skipped = _counted("inductor", "cudagraph_skips") - skipped
    without = f"; CUDA graphs that torch skipped: {skipped}" if skipped else ""
    return Finding(
        off <= bound, f"off by {percent(off, 3)}{named}{without}", f"mean gradient of every weight: {percent(bound, 1)}"
    )


def _counted(kind: str, what: str) -> int:
    """By torch's compiler, in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters[kind][what])
