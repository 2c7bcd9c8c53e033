"""What a run writes while it trains: metrics, log lines, progress, samples, predictions; the cut before a resume."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator

import psutil
import torch
from torch import Tensor

from oelm_core.config import Experiment
from oelm_core.formatting import exact_duration
from oelm_core.method.attention_stats import is_of_batch
from oelm_core.runs.evaluations import SCORE, step_file, step_of
from oelm_core.runs.folder import RunFolder, read_record, replace_file
from oelm_core.runs.metrics_file import MetricsWriter, cut_lines
from oelm_core.runs.schema import (
    Misfit,
    Predictions,
    Result,
    Sample,
    TestScore,
    WorkerProgress,
    decode,
    decode_metric,
    encode,
)
from oelm_core.training.evaluation import Evaluation

PROGRESS_EVERY = 0.5  # seconds
SYSTEM_EVERY = 10.0


def say(line: str) -> None:
    """A line in training.log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)


class Recorder:
    """Writes into the run folder. Ranks other than 0 are given `active=False` and write nothing."""

    def __init__(self, folder: RunFolder, total: int = 0, active: bool = True) -> None:
        self.folder, self.total, self.active = folder, total, active
        self._metrics = MetricsWriter(folder.metrics) if active else None
        self._last_progress = 0.0
        self._last_system = 0.0
        self._process = psutil.Process()
        self._process.cpu_percent()  # use since the call before: the first one has nothing to tell
        self.phase = "starting"

    def say(self, line: str) -> None:
        if self.active:
            say(line)

    def event(self, step: int, what: str, message: str) -> None:
        self.say(message)
        if self._metrics:
            self._metrics.event(step, what, message)

    def train(self, step: int, left: float | None, **values: float) -> None:
        if not self._metrics:
            return
        self._metrics.write("train", step, **values)
        if time.monotonic() - self._last_system >= SYSTEM_EVERY:
            self._last_system = time.monotonic()
            self._metrics.write("system", step, **system_figures(self._process))
        skipped = f"  skipped {values['skipped']:.0f}" if values.get("skipped") else ""
        rest = skipped + (f"  left {exact_duration(left)}" if left is not None else "")
        self.say(
            f"step {step}/{self.total}  loss {values['loss']:.4f}  lr {values['lr']:.3g}"
            f"  grad {values['grad_norm']:.3g}  {values['step_time']:.4f} s/step"
            f"  {values['tokens_per_s']:.0f} tokens/s{rest}"
        )

    def evaluation(self, step: int, found: Evaluation, seconds: float, best: bool) -> None:
        if not self._metrics:
            return
        self._metrics.write("eval", step, **found.values, seconds=round(seconds, 3))
        # Of every evaluation, not only of the best: choosing on one half and scoring on the other needs them all.
        found.details.step = step
        folder = self.folder.predictions if isinstance(found.details, Predictions) else self.folder.losses
        folder.mkdir(exist_ok=True)
        replace_file(step_file(folder, step), encode(found.details) + b"\n", durable=False)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in found.values.items())
        self.say(f"step {step} validation  {shown}  ({seconds:.1f} s){'  best so far' if best else ''}")

    def samples(self, step: int, texts: list[Sample]) -> None:
        if not self.active or not texts:
            return
        for text in texts:
            text.t = round(time.time(), 3)
        with open(self.folder.samples, "ab") as file:
            file.write(b"".join(encode(text) + b"\n" for text in texts))
        self.say(f"step {step} sample  {texts[0].prompt} | {texts[0].text[:200]!r}")

    def progress(self, step: int, *, phase: str | None = None, force: bool = False) -> None:
        """progress.json, at most twice a second unless forced."""
        now = time.time()
        self.phase = phase or self.phase
        if self.active and (force or now - self._last_progress >= PROGRESS_EVERY):
            self._last_progress = now
            reached = WorkerProgress(step, self.total or None, round(now, 3), self.phase)
            self.folder.write(reached, durable=False)  # losing the last one costs nothing

    def flush_to_disk(self) -> None:
        if self._metrics:
            self._metrics.flush_to_disk()

    def close(self) -> None:
        if self._metrics:
            self._metrics.close()
            self._metrics = None


def system_figures(process: psutil.Process) -> dict[str, float]:
    """CPU use since the last call, in percent, and memory in bytes of a process; of our GPU too where there is one."""
    figures = {"cpu": process.cpu_percent(), "host_memory": float(process.memory_info().rss)}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        figures["memory"] = float(torch.cuda.memory_allocated())
        figures["memory_reserved"] = float(torch.cuda.memory_reserved())
        with contextlib.suppress(Exception):  # NVML may be missing or the card may not say
            figures["util"] = float(torch.cuda.utilization())
    return figures


def keep_baseline_pattern(folder: RunFolder, experiment: Experiment, tokens: Tensor) -> str | None:
    """Copies the last attention of a finished baseline run to `attention/baseline.npz`; its id when it is new here.

    The baseline's run has the same seed, sits beside this one, and was looked at on the same tokens `[batch, tokens]`.
    A copy is never replaced: all looks of a run, before and after a resume, are held against one pattern.
    """
    own = folder.attention / "baseline.npz"
    if experiment.baseline is None or own.exists():
        return None
    for run in _finished(folder, experiment.baseline, experiment.seed):
        latest = run.attention / "latest.npz"
        if is_of_batch(latest, tokens):
            own.parent.mkdir(parents=True, exist_ok=True)
            beside = own.with_name(own.name + ".part")
            shutil.copyfile(latest, beside)
            beside.replace(own)
            return run.id
    return None


def _finished(folder: RunFolder, preset: str, seed: int) -> Iterator[RunFolder]:
    """Finished runs of a preset and seed, newest first: a run's id ends in the time it was made."""
    start = f"{preset}-s{seed}-".lower()
    names = [path.name for path in folder.path.parent.iterdir() if path.name.lower().startswith(start)]
    for name in sorted(names, key=str.lower, reverse=True):
        run = RunFolder(folder.path.parent / name)
        if run.read(Result) is not None:
            yield run


def cut_after(folder: RunFolder, step: int, eval_due: bool = False) -> None:
    """Removes what was recorded past a step, and torn last lines: a resumed run writes it again.

    `eval_due`: the step's evaluation comes first after the resume, so an earlier record of it goes too.
    """
    evaluated = step - 1 if eval_due else step

    def keeps_metric(line: bytes) -> bool:
        found = decode_metric(line)
        return found is not None and found.step <= (evaluated if found.kind == "eval" else step)

    def keeps_sample(line: bytes) -> bool:
        try:
            return decode(line, Sample).step <= evaluated
        except Misfit:
            return False

    cut_lines(folder.metrics, keeps_metric)
    cut_lines(folder.samples, keeps_sample)
    for kept in (folder.predictions, folder.losses):
        for file in kept.iterdir() if kept.is_dir() else ():
            made_at = step_of(file)
            if made_at is None or made_at > evaluated:
                file.unlink()
    scored = read_record(folder.test / SCORE, TestScore)
    if scored is not None and scored.step > evaluated:  # those weights come again, not to the last bit on every device
        shutil.rmtree(folder.test)
    for look in folder.attention.glob("step-*.json"):
        if (step_of(look) or 0) > evaluated:
            look.unlink()
