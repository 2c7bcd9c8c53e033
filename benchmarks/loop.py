"""The worker around its step: what `oelm bench loop` measures held against its claims, and records that grow."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.calls import Calls
from benchmarks.claims import ClaimSection
from benchmarks.gpt import SIZES
from benchmarks.threads import busy
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import MEDIUM, SMALL, TINY, device, experiment, gpt, network, token_batch
from oelm_core.bench.subjects import compare_compiling, compare_precisions, time_workers
from oelm_core.bench.turns import children, over_rounds, paired_ratio, ratio, take_turns, turns
from oelm_core.config.sections import Train
from oelm_core.data.language import LanguageData
from oelm_core.formatting import measured_time, percent, size
from oelm_core.method.flops import StepSizes
from oelm_core.runs.folder import RunFolder
from oelm_core.training.distributed import Ranks
from oelm_core.training.precision import choose_precision
from oelm_core.training.recorder import Recorder
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import LanguageTask
from oelm_core.training.worker import SPIN

OVERHEAD, WAIT = 1.0, 0.02
TIE = 1.05
"""What differs by less is equally fast."""
OURS, DEFAULT = "a moment (ours)", "long (the default)"
SPINNING = {OURS: SPIN, DEFAULT: "300000", "not at all": "0"}
"""libgomp's turns of waiting before a thread sleeps; its default as its manual has it."""


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("loop", "The worker around its step")
    _worker_claims(section, effort)
    _waiting(section, effort)
    _record_claim(section, effort)
    _precision_claim(section, effort)
    _generation_claim(section, effort)
    _validation_claim(section, effort)
    _compile_claim(section, effort)
    return section


def _worker_claims(section: ClaimSection, effort: Effort) -> None:
    found = time_workers(section, effort)
    for name, one in found.items():
        section.claim_ratio(
            f"worker, {name}: everything around the step (metrics, log, heartbeat, clock)",
            f"at most {OVERHEAD:.0f} %",
            over_rounds([100 * share for share in one.around_shares], " %"),
            at_most=OVERHEAD,
            remark=f"{measured_time(one.around)} beside a step of {measured_time(one.step)}",
        )
    waits = ", ".join(f"{name} {percent(one.data_wait_share)}" for name, one in found.items())
    longest = max(one.data_wait_share for one in found.values())
    section.claim("worker: waiting for data", "under 2 % of the step", waits, longest < WAIT)


def _waiting(section: ClaimSection, effort: Effort) -> None:
    """How long threads spin before they sleep: as the worker has it, as libgomp has it, not at all."""
    environments = {name: {"GOMP_SPINCOUNT": spins} for name, spins in SPINNING.items()}
    rows, remarks = [], []
    with children(dict.fromkeys(SPINNING, partial(gpt, SMALL)), effort.threads, environments) as alive:
        for child in alive.values():
            child.ready()
        for where, neighbours in (("alone", 0), (f"beside {effort.threads} busy processes", effort.threads)):
            with busy(neighbours):
                found = turns(alive, rounds=2)
            for name, one in found.items():
                against = "" if name == OURS else str(paired_ratio(one.wall, found[OURS].wall))
                rows.append([where, name, measured_time(one.median_wall), against])
            default = found[DEFAULT].median_wall / found[OURS].median_wall
            remarks.append(f"{where} the default takes {default:.2f} times our time")
            section.keep(f"waiting, {where}", found)
    note = (
        "A step of a demo-sized GPT, wall clock. The worker lets threads spin for a moment (GOMP_SPINCOUNT) unless the"
        " environment says otherwise: spinning long takes the core from the thread that is waited for, sleeping at once"
        " costs a wake-up for every small operation."
    )
    note += f" {'; '.join(remarks)}.".replace(" alone", " Alone", 1)
    section.tables.append(BenchTable("Threads that wait", ["where", "spin", "step", "ratio to ours"], rows, note))


def _record_claim(section: ClaimSection, effort: Effort) -> None:
    megabytes = 5 if effort.quick else 100
    makes = {"empty": partial(record_writing, 0), "long": partial(record_writing, megabytes)}
    found = take_turns(makes, rounds=effort.rounds(40), threads=effort.threads)
    times = paired_ratio(found["long"].wall, found["empty"].wall)
    section.claim_ratio(
        f"a train record when metrics and log already have {megabytes} MB each",
        f"no slower, give or take {TIE - 1:.0%}",
        times,
        at_most=TIE,
        remark=f"of {measured_time(found['empty'].median_wall)}",
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
    found, chosen = compare_precisions(section, effort)
    fastest = min(found, key=lambda name: found[name].median)
    tied = found[chosen.name].median <= TIE * found[fastest].median
    what = "amp takes the format this device is fastest in, and says so"
    section.claim(what, fastest, chosen.name, tied and bool(chosen.note))


def _generation_claim(section: ClaimSection, effort: Effort) -> None:
    sizes, tokens = (TINY, 8) if effort.quick else (MEDIUM, 16)
    makes = {
        name: partial(generation, sizes, cache=cache, tokens=tokens)
        for name, cache in (("cache", True), ("none", False))
    }
    found = take_turns(makes, rounds=effort.rounds(3), threads=effort.threads)
    faster = ratio(found, "none", "cache")
    section.claim_ratio("generate with a key/value cache against without", "faster", faster, at_least=1.0)
    section.keep("generation", found)


def generation(sizes: StepSizes, *, cache: bool, tokens: int) -> Calls:
    model = network("gpt", sizes).eval()
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
    sizes = TINY if effort.quick else MEDIUM.but(batch=2)
    makes = {
        "validation, 1 at once or what fits": partial(validation, sizes, at_once=1, fixed=False),
        f"validation, {sizes.batch} at once": partial(validation, sizes, at_once=sizes.batch, fixed=True),
        "forward with gradients, 1 at once": partial(forward_with_gradients, sizes),
    }
    found = take_turns(makes, rounds=effort.rounds(2), threads=effort.threads)
    usual, joined, with_gradients = found.values()
    times = {joined.name: str(paired_ratio(joined.seconds, usual.seconds))}
    rows = [[name, measured_time(one.median), times.get(name, ""), size(one.memory)] for name, one in found.items()]
    note = (
        f"The trainer's own validation of {sizes.batch} x {sizes.length} tokens. On a GPU it joins batches until they"
        " no longer fit; on a CPU it leaves them as the recipe has them, and the ratio says what more at once would do."
    )
    columns = ["way", "time", "ratio to the first", "peak memory"]
    section.tables.append(BenchTable("Validation", columns, rows, note))
    section.keep("validation", found)
    held = f"{size(usual.memory)} against {size(with_gradients.memory)}"
    section.claim("validation keeps nothing for gradients", "less memory", held, usual.memory < with_gradients.memory)


def validation(sizes: StepSizes, *, at_once: int, fixed: bool) -> Calls:
    """The trainer's own validation of a batch of sequences: so many at once, or from so many on what fits."""
    model = network("gpt", sizes).eval()
    text = token_batch(sizes)[0].flatten().cpu().numpy().astype(np.uint16)
    text = np.append(text, text[:1])  # every sequence has a next token
    train = {"eval_batch_size": at_once} if fixed else {}
    task = LanguageTask(
        experiment("gpt", sizes.but(batch=at_once), train=train), LanguageData("bench", text, text, 0, ""), None
    )
    ranks, chosen, stop = Ranks(0, 1, device()), choose_precision("fp32", device()), StopRequest()
    return Calls(lambda: task.evaluate(model, ranks, chosen, stop))


def forward_with_gradients(sizes: StepSizes) -> Calls:
    """What validation would be if it did not switch them off."""
    model = network("gpt", sizes).eval()
    inputs, targets = token_batch(sizes)

    def call() -> None:
        for part, wanted in zip(inputs.split(1), targets.split(1), strict=True):
            model.token_losses(part, wanted)

    return Calls(call)


def _compile_claim(section: ClaimSection, effort: Effort) -> None:
    what = "torch.compile (an option, off by default)"
    found = compare_compiling(section, effort, TINY if effort.quick else SIZES)
    if found is None:
        section.claim(what, "measured with its warm-up", "no C++ compiler here", None)
        return
    faster, first = ratio(found, "as shipped", "compiled"), measured_time(found["compiled"].warm_up_wall)
    section.claim(
        what,
        "measured with its warm-up, off unless asked for",
        f"{faster} as fast, first steps {first}",
        Train.model_fields["compile"].default is False,
    )
