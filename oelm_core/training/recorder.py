"""What a run writes while it trains: metrics, log lines, progress, samples, predictions; the cut before a resume."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import MetricsWriter
from oelm_core.training.evaluation import Evaluation
from oelm_core.training.timing import formatted

PROGRESS_EVERY = 0.5  # seconds
SYSTEM_EVERY = 10.0


class Records:
    """Writes into the run folder. Ranks other than 0 are given `active=False` and write nothing."""

    def __init__(self, folder: RunFolder, total: int = 0, active: bool = True) -> None:
        self.folder, self.total, self.active = folder, total, active
        self._metrics = MetricsWriter(folder.metrics) if active else None
        self._last_progress = 0.0
        self._last_system = 0.0
        self.phase = "starting"

    def say(self, line: str) -> None:
        """A line in training.log."""
        if self.active:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)

    def event(self, step: int, what: str, message: str) -> None:
        self.say(message)
        if self._metrics:
            self._metrics.event(step, what, message)

    def train(self, step: int, left: float | None, **values: float) -> None:
        if not self._metrics:
            return
        self._metrics.write("train", step, **values)
        self._maybe_system(step)
        rest = f"  left {formatted(left)}" if left is not None else ""
        self.say(
            f"step {step}/{self.total}  loss {values['loss']:.4f}  lr {values['lr']:.3g}"
            f"  grad {values['grad_norm']:.3g}  {values['step_time']:.4f} s/step"
            f"  {values['tokens_per_s']:.0f} tokens/s{rest}"
        )

    def evaluation(self, step: int, found: Evaluation, seconds: float, best: bool) -> None:
        if not self._metrics:
            return
        self._metrics.write("eval", step, **found.values, seconds=round(seconds, 3))
        if best:
            folder = self.folder.path / found.kind
            folder.mkdir(exist_ok=True)
            _write_plain(folder / f"step-{step}.json", {"step": step, **found.details})
        shown = "  ".join(f"{name} {value:.4f}" for name, value in found.values.items())
        self.say(f"step {step} validation  {shown}  ({seconds:.1f} s){'  best so far' if best else ''}")

    def samples(self, step: int, texts: list[dict[str, str]]) -> None:
        if not self.active or not texts:
            return
        lines = [json.dumps({"t": round(time.time(), 3), "step": step, **text}, ensure_ascii=False) for text in texts]
        with open(self.folder.samples, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.say(f"step {step} sample  {texts[0]['prompt']} | {texts[0]['text'][:200]!r}")

    def progress(self, step: int, *, phase: str | None = None, force: bool = False) -> None:
        """progress.json, at most twice a second unless forced."""
        now = time.time()
        self.phase = phase or self.phase
        if self.active and (force or now - self._last_progress >= PROGRESS_EVERY):
            self._last_progress = now
            content = {"step": step, "total": self.total or None, "t": round(now, 3), "phase": self.phase}
            _write_plain(self.folder.path / "progress.json", content)

    def _maybe_system(self, step: int) -> None:
        now = time.monotonic()
        if self._metrics and now - self._last_system >= SYSTEM_EVERY:
            self._last_system = now
            self._metrics.write("system", step, **system_figures())

    def flush_to_disk(self) -> None:
        if self._metrics:
            self._metrics.flush_to_disk()

    def reopen(self) -> None:
        """After a cut the metrics are another file under the same name."""
        if self._metrics:
            self._metrics.close()
            self._metrics = MetricsWriter(self.folder.metrics)

    def close(self) -> None:
        if self._metrics:
            self._metrics.close()
            self._metrics = None


def system_figures() -> dict[str, float]:
    """CPU use in percent and memory in bytes of this process; of its GPU too where there is one."""
    import psutil
    import torch

    process = psutil.Process()
    figures = {"cpu": process.cpu_percent(), "host_memory": float(process.memory_info().rss)}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        figures["memory"] = float(torch.cuda.memory_allocated())
        figures["memory_reserved"] = float(torch.cuda.memory_reserved())
        with contextlib.suppress(Exception):  # NVML may be missing or the card may not say
            figures["util"] = float(torch.cuda.utilization())
    return figures


def _write_plain(path: Path, content: Any) -> None:
    """Written beside and renamed; not flushed, since losing the last one costs nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n")
    os.replace(temporary, path)


def cut_after(folder: RunFolder, step: int, eval_due: bool = False) -> None:
    """Removes what was recorded past a step, and torn last lines: a resumed run writes it again.

    `eval_due`: the step's evaluation comes first after the resume, so an earlier record of it goes too.
    """
    evaluated = step - 1 if eval_due else step
    _cut_lines(folder.metrics, lambda record: evaluated if record.get("kind") == "eval" else step)
    _cut_lines(folder.samples, lambda _: evaluated)
    for kept in (folder.predictions, folder.losses):
        if kept.is_dir():
            for file in kept.iterdir():
                match = re.match(r"^step-(\d+)\.json$", file.name)
                if match is None or int(match[1]) > evaluated:
                    file.unlink()
    for look in (folder.path / "attention").glob("step-*.json"):
        if int(look.stem.removeprefix("step-")) > evaluated:
            look.unlink()


def _cut_lines(path: Path, last: Callable[[dict[str, Any]], int]) -> None:
    """Keeps the lines up to the step that `last` names for each."""
    if not path.is_file():
        return
    temporary = path.with_name(f".{path.name}.cut")
    with open(path, "rb") as old, open(temporary, "wb") as new:
        for line in old:
            if line.endswith(b"\n") and _kept(line, last):
                new.write(line)
        new.flush()
        os.fsync(new.fileno())
    os.replace(temporary, path)


def _kept(line: bytes, last: Callable[[dict[str, Any]], int]) -> bool:
    try:
        record = json.loads(line)
        return bool(record["step"] <= last(record))
    except (ValueError, KeyError, TypeError):
        return False
