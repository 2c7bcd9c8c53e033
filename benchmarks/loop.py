"""The worker around its step: what `oelm bench loop` measures held against its claims, and records that grow."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from benchmarks.claims import ClaimSection
from oelm_core.bench.loop import (
    compare_compiling,
    compare_precisions,
    compare_validation,
    compare_waiting,
    time_workers,
    validation_sizes,
)
from oelm_core.bench.report import Effort
from oelm_core.bench.steps import MEDIUM, TINY, Calls, gpt_model, token_batch
from oelm_core.bench.turns import paired_ratio, ratio, take_turns
from oelm_core.config.sections import Train
from oelm_core.formatting import measured_time, percent, size
from oelm_core.method.flops import StepSizes
from oelm_core.runs.folder import RunFolder
from oelm_core.training.recorder import Recorder

OVERHEAD, WAIT = 0.01, 0.02
TIE = 1.05
"""Formats whose products differ by less are equally fast."""


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("loop", "The worker around its step")
    _worker_claims(section, effort)
    compare_waiting(section, effort)
    _record_claim(section, effort)
    _precision_claim(section, effort)
    _generation_claim(section, effort)
    _validation_claim(section, effort)
    _compile_claim(section, effort)
    return section


def _worker_claims(section: ClaimSection, effort: Effort) -> None:
    found = time_workers(section, effort)
    around = ", ".join(
        f"{name} {percent(one.around_share, 1)}: {measured_time(one.around)} beside a step of {measured_time(one.step)}"
        for name, one in found.items()
    )
    section.claim(
        "worker: everything around the step (metrics, log, heartbeat, clock)",
        "under 1 %",
        around,
        max(one.around_share for one in found.values()) < OVERHEAD,
    )
    waits = ", ".join(f"{name} {percent(one.data_wait_share)}" for name, one in found.items())
    longest = max(one.data_wait_share for one in found.values())
    section.claim("worker: waiting for data", "under 2 % of the step", waits, longest < WAIT)


def _record_claim(section: ClaimSection, effort: Effort) -> None:
    megabytes = 5 if effort.quick else 100
    makes = {"empty": partial(record_writing, 0), "long": partial(record_writing, megabytes)}
    found = take_turns(makes, rounds=effort.rounds(40), threads=effort.threads)
    times = paired_ratio(found["long"].wall, found["empty"].wall)
    section.claim(
        f"a train record when metrics and log already have {megabytes} MB each",
        "no slower: the interval reaches down to 1",
        f"{times} of {measured_time(found['empty'].median_wall)}",
        times.low <= 1,
    )
    section.keep("records", found)


def record_writing(megabytes: int) -> Calls:
    """What the loop writes at a log interval; the folder's metrics and log already have so many megabytes each."""
    kept = tempfile.TemporaryDirectory(prefix="oelm-bench-")
    folder = RunFolder(Path(kept.name))
    line = b'{"t": 1.0, "step": 1, "kind": "train", "loss": 3.14159, "lr": 0.0001, "grad_norm": 1.0}\n'
    for path in (folder.metrics, folder.log):
        with open(path, "ab") as file:
            for _ in range(megabytes):
                file.write(line * (1_000_000 // len(line)))
            os.dup2(file.fileno(), sys.stdout.fileno())  # the log comes last: it is the worker's standard output
    recorder = Recorder(folder, total=1000)
    values = dict.fromkeys(("loss", "lr", "grad_norm", "step_time", "tokens_per_s", "examples_per_s", "data_wait"), 1.0)

    def write() -> None:
        recorder.train(1, 1.0, **values)
        recorder.progress(1)

    return Calls(write, 1000, kept)


def _precision_claim(section: ClaimSection, effort: Effort) -> None:
    found = compare_precisions(section, effort)
    fastest = min(found.seconds, key=lambda name: found.seconds[name])
    tied = found.seconds[found.chosen] <= TIE * found.seconds[fastest]
    what = "amp takes the format this device is fastest in, and says so"
    section.claim(what, fastest, found.chosen, tied and bool(found.reason))


def _generation_claim(section: ClaimSection, effort: Effort) -> None:
    sizes, tokens = (TINY, 8) if effort.quick else (MEDIUM, 16)
    makes = {
        name: partial(generation, sizes, cache=cache, tokens=tokens)
        for name, cache in (("cache", True), ("none", False))
    }
    found = take_turns(makes, rounds=effort.rounds(3), threads=effort.threads)
    faster = ratio(found, "none", "cache")
    section.claim("generate with a key/value cache against without", "faster", str(faster), faster.low > 1)
    section.keep("generation", found)


def generation(sizes: StepSizes, *, cache: bool, tokens: int) -> Calls:
    model = gpt_model(sizes).eval()
    inputs, _ = token_batch(sizes)
    prompt = inputs[:1, : max(4, sizes.length // 4)]
    return Calls(
        lambda: model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            use_cache=cache,
            pad_token_id=0,
        )
    )


def _validation_claim(section: ClaimSection, effort: Effort) -> None:
    kept = "forward with gradients, 1 at once"
    found = compare_validation(section, effort, {kept: partial(forward_with_gradients, validation_sizes(effort))})
    usual = next(iter(found.values()))
    held = f"{size(usual.memory)} against {size(found[kept].memory)}"
    section.claim("validation keeps nothing for gradients", "less memory", held, usual.memory < found[kept].memory)


def forward_with_gradients(sizes: StepSizes) -> Calls:
    """What validation would be if it did not switch them off."""
    model = gpt_model(sizes).eval()
    inputs, targets = token_batch(sizes)

    def call() -> None:
        for part, wanted in zip(inputs.split(1), targets.split(1), strict=True):
            model.token_losses(part, wanted)

    return Calls(call)


def _compile_claim(section: ClaimSection, effort: Effort) -> None:
    what = "torch.compile (an option, off by default)"
    found = compare_compiling(section, effort)
    if found is None:
        section.claim(what, "measured with its warm-up", "no C++ compiler here", None)
        return
    section.claim(
        what,
        "measured with its warm-up, off unless asked for",
        f"{found.faster} at {found.tokens}, first steps {measured_time(found.first_steps)}; {found.verdict}",
        Train.model_fields["compile"].default is False,
    )
