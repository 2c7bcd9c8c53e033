"""The author's training logs: validations, progress bars, clock times, the end. Carriage returns count as line ends."""

from __future__ import annotations

import calendar
import math
import re
import time
from dataclasses import dataclass, field

from oelm_core.published.import_settings import one_line
from oelm_core.runs.schema import MetricLine

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_NUMBER = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))"
_GPT_EVAL = re.compile(rf"\[Step (\d{{1,12}})\] Validation - Loss: {_NUMBER}, PPL: {_NUMBER}", re.I)
_BERT_STEP = re.compile(r"Step (\d{1,12}): Running validation")
_BERT_EVAL = re.compile(rf"Validation - Loss: {_NUMBER}, Accuracy: {_NUMBER}(?:, F1: {_NUMBER})?", re.I)
_BAR = re.compile(r"(?:Epoch\s*\[?(\d{1,9})\b[^|\r\n]*?)?\s*\d+%\|[^|]*\|\s*(\d{1,12})/(\d{1,12})\s*\[([^\]]*)\]")
_LOSS = re.compile(rf"\bloss[=:]\s*{_NUMBER}", re.I)
_RATE = re.compile(rf"\blr[=:]\s*{_NUMBER}", re.I)
_SEED = re.compile(r"\bseed['\"]?\s*[=:]\s*(\d{1,12})\b", re.I)
_GIVEN_RATE = re.compile(rf"\blearning rate: {_NUMBER}", re.I)
_START = re.compile(r"head-wise (orthogonal|normal) initiali[sz]ation", re.I)
_COMPLETED = re.compile(r"training complete", re.I)
_FAILED = re.compile(r"^(Traceback \(most recent call last\)|\S*OutOfMemoryError|\S*RuntimeError: CUDA)")
MOST_BARS = 2000


@dataclass
class LogContent:
    """What a log shows; None for what it does not say."""

    evals: list[MetricLine] = field(default_factory=list)
    """Their `t` is 0 where the log has no times."""
    train: list[MetricLine] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    seed: int | None = None
    lr: float | None = None
    init: str | None = None
    """orthogonal or normal: how the BERT program says Q and K start."""
    total: int | None = None
    completed: bool = False
    failed: bool = False
    odd: str | None = None
    """The beginning of the first line on a validation that does not say its step and scores."""


def read_log(written: bytes, content: LogContent | None = None) -> LogContent:
    """Reads a log on top of an earlier one: a restart that repeats steps replaces them."""
    content = content or LogContent()
    content.odd = None
    reader = _Reader(content)
    for line in re.split(r"[\r\n]+", written.decode("utf-8", errors="replace")):
        reader.line(line)
    content.evals = _once_per_step(content.evals)
    bars = _once_per_step(content.train)
    stride = max(1, -(-len(bars) // MOST_BARS))
    content.train = bars[::stride]
    return content


class _Reader:
    def __init__(self, content: LogContent) -> None:
        self.content = content
        self.pending: int | None = None
        self.now = content.last

    def line(self, line: str) -> None:
        content = self.content
        if (stamp := _STAMP.match(line)) and (at := _epoch(stamp[1])) is not None:
            self.now = content.last = at
            content.first = self.now if content.first is None else content.first
        if "Validation" in line or "validation" in line:
            self._validation(line)
        elif "%|" in line:
            self._bar(line)
        else:
            self._setting(line)
        content.completed = content.completed or bool(_COMPLETED.search(line))
        content.failed = content.failed or bool(_FAILED.match(line))

    def _setting(self, line: str) -> None:
        content = self.content
        if content.seed is None and (seed := _SEED.search(line)):
            content.seed = int(seed[1])
        if content.lr is None and (rate := _GIVEN_RATE.search(line)) and math.isfinite(float(rate[1])):
            content.lr = float(rate[1])
        if content.init is None and (start := _START.search(line)):
            content.init = start[1].lower()

    def _validation(self, line: str) -> None:
        if asked := _BERT_STEP.search(line):
            self.pending = int(asked[1])
        if found := _GPT_EVAL.search(line):
            self._eval(int(found[1]), loss=found[2], perplexity=found[3])
        elif (found := _BERT_EVAL.search(line)) and self.pending is not None:
            self._eval(self.pending, loss=found[1], accuracy=found[2], f1=found[3])
            self.pending = None
        elif "Validation - Loss:" in line and self.content.odd is None:
            self.content.odd = one_line(line)[:60]

    def _eval(self, step: int, **values: str | None) -> None:
        scores = {name: float(value) for name, value in values.items() if value is not None}
        self.content.evals.append(MetricLine(step, "eval", self.now or 0.0, scores))

    def _bar(self, line: str) -> None:
        bar = _BAR.search(line)
        loss = _LOSS.search(line)
        if not bar or not loss:
            return
        done, length = int(bar[2]), int(bar[3])
        epoch = int(bar[1]) if bar[1] else 1
        values = {"loss": float(loss[1])}
        if rate := _RATE.search(line):
            values["lr"] = float(rate[1])
        if bar[1] is None:
            self.content.total = max(self.content.total or 0, length)
        step = done + (epoch - 1) * length
        if step > 0:
            self.content.train.append(MetricLine(step, "train", self.now or 0.0, values))


def _epoch(stamp: str) -> float | None:
    """None for a time that no clock shows."""
    try:
        return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")))
    except ValueError:
        return None


def _once_per_step(lines: list[MetricLine]) -> list[MetricLine]:
    return [line for _, line in sorted({line.step: line for line in lines}.items())]
