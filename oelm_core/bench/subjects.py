"""What `oelm bench` measures: a step of GPT and of BERT, where its time goes, which settings pay, the worker around it.

benchmarks/ holds the same tables, with more variants in them, against what we claim.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from oelm_core.bench import steps
from oelm_core.bench.profile import profile_step
from oelm_core.bench.report import BenchSection, BenchTable, Effort
from oelm_core.bench.steps import DYNAMIC, FORMATS, PACKED, Gemm, device, experiment
from oelm_core.bench.turns import ENOUGH, Make, Measured, Ratio, in_child, ratio, take_turns
from oelm_core.config import Experiment, as_dict
from oelm_core.errors import LabError
from oelm_core.formatting import count, measured_time, percent, size, whole
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import MetricLine, Result, RunRecord
from oelm_core.training.precision import Precision, choose_precision

GEMM = "GEMM"
FROZEN = "packed, Q/K frozen"
COLD = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""So that a warm-up is one, also the second time."""


def measure_gpt(effort: Effort) -> BenchSection:
    sizes = gpt_sizes(effort)
    section = BenchSection("gpt", gpt_title(sizes, effort))
    trained = partial(steps.gpt, sizes)
    arms = {"baseline": trained, "Q/K frozen": partial(steps.gpt, sizes, frozen=True)}
    note = f"By arithmetic alone, freezing Q and K saves at most {flops.ideal_ratio(sizes):.4f}x of such a step."
    compare_steps(section, "A training step", arms, effort, note, rounds=12)
    profile_step(section, "baseline", trained)
    return section


def gpt_sizes(effort: Effort) -> StepSizes:
    """Batch 2: all variants at once must fit into memory, and many rounds into minutes."""
    return (steps.TINY if effort.quick else steps.MEDIUM).but(batch=2)


def gpt_title(sizes: StepSizes, effort: Effort) -> str:
    model = "A tiny GPT" if effort.quick else "GPT Medium-512"
    return f"{model}, a training step of {sizes.batch} x {sizes.length} tokens"


def measure_bert(effort: Effort) -> BenchSection:
    sizes = bert_sizes(effort)
    section = BenchSection("bert", bert_title(sizes, effort))
    limit = flops.ideal_ratio(sizes, classifier=True)
    compare_batching(section, sizes, effort, f"By arithmetic, freezing Q and K saves at most {limit:.4f}x.")
    profile_step(section, PACKED, partial(steps.bert, sizes, batches=1))
    return section


def bert_sizes(effort: Effort) -> StepSizes:
    return steps.TINY_BERT if effort.quick else steps.BERT_BASE


def bert_title(sizes: StepSizes, effort: Effort) -> str:
    return f"{'A tiny encoder' if effort.quick else 'BERT-base'}, a training step of {sizes.batch} short sentences"


def measure_loop(effort: Effort) -> BenchSection:
    section = BenchSection("loop", "The worker around its step")
    time_workers(section, effort)
    compare_precisions(section, effort)
    compare_compiling(section, effort, gpt_sizes(effort).but(batch=1))
    return section


# -- steps -----------------------------------------------------------------------------------------------------------


def compare_batching(
    section: BenchSection,
    sizes: StepSizes,
    effort: Effort,
    note: str,
    more: Mapping[str, Make] | None = None,
    *,
    rounds: int = 6,
) -> dict[str, Measured]:
    """Adds the table of a packed step beside a padded one, one with Q/K frozen, and `more`."""
    makes: dict[str, Make] = {
        PACKED: partial(steps.bert, sizes),
        **(more or {}),
        FROZEN: partial(steps.bert, sizes, frozen=True),
        DYNAMIC: partial(steps.bert, sizes, batching=DYNAMIC),
    }
    reading = (
        "Sentences as long as SST-2's, 13 tokens in the mean and 60 at most. Six batches, chosen to be as long as the"
        " average, another in each round. Dynamic fills to the batch's longest, packed puts several into a row with a"
        f" mask between them; filled to {sizes.length}, a step has {sizes.tokens:,} tokens."
    )
    return compare_steps(section, "Batches without padding", makes, effort, f"{reading} {note}", rounds=rounds)


def compare_steps(
    section: BenchSection, title: str, makes: Mapping[str, Make], effort: Effort, note: str, *, rounds: int
) -> dict[str, Measured]:
    """Adds the table of these variants' steps, each against the first of them; `note` ends its remarks."""
    side = 256 if effort.quick else 2048
    with_gemm: dict[str, Make] = {**makes, GEMM: partial(Gemm, side)}
    found = take_turns(with_gemm, rounds=effort.rounds(rounds), within=60, threads=effort.threads)
    section.keep("steps", found)
    gemm = found[GEMM].about["flops"] / found.pop(GEMM).median
    first, *_ = found
    rows = [
        [
            name,
            whole(one.about["tokens_a_step"]),
            measured_time(one.median),
            measured_time(one.median_wall),
            count(one.about["real_tokens"] / one.median_wall),
            "" if name == first else str(ratio(found, name, first)),
            size(one.memory),
            percent(one.about["flops"] / one.median / gemm, 1),
        ]
        for name, one in found.items()
    ]
    reading = (
        f"{len(found[first].seconds)} rounds in turns. Tokens a second: without padding. Ratio: how many times the time"
        " of the first, median of the rounds with its 95 % interval. Memory: most held above the libraries, in the"
        " variant's own process. MFU:"
        f" counted FLOPs per second of the clock over those of a {side}-square product in the same rounds"
        f" ({gemm / 1e9:.0f} GFLOP a second)."
    )
    columns = ["variant", "tokens a step", "step", "wall", "tokens/s", f"ratio to {first}", "peak memory", "MFU"]
    section.tables.append(BenchTable(title, columns, rows, f"{reading} {note}"))
    return found


# -- the worker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerTimes:
    """Seconds of a step and around it, and the shares of the time spent around it and waiting for data."""

    step: float
    around: float
    around_shares: list[float]
    """Of each log interval."""
    data_wait_share: float


def time_workers(section: BenchSection, effort: Effort) -> dict[str, WorkerTimes]:
    """Real workers on small models, whose steps are so short that everything around them shows."""
    last = 30 if effort.quick else 120
    short = {"max_steps": last, "eval_every": last, "samples": 0}
    reviews = {"name": "demo-sentiment", "text": ["sentence"], "classes": 2}
    runs = {
        "gpt": experiment("gpt", steps.SMALL, data={"name": "demo-stories"}, train=short),
        "packed bert": experiment("bert", steps.SMALL.but(batch=32), data=reviews, train=short),
    }
    found = {name: _train(run, effort) for name, run in runs.items()}
    section.raw["worker"] = {name: asdict(one) for name, one in found.items()}
    rows = [
        [
            name,
            measured_time(one.step),
            measured_time(one.around),
            percent(statistics.median(one.around_shares)),
            percent(one.data_wait_share),
        ]
        for name, one in found.items()
    ]
    note = "By the worker's own records, on small models. Around the step: metrics, log, heartbeat, the clock itself."
    columns = ["run", "step", "around it", "share", "waiting for data"]
    section.tables.append(BenchTable("What the worker adds to its steps", columns, rows, note))
    return found


def _train(wanted: Experiment, effort: Effort) -> WorkerTimes:
    """What a worker's own records say about a run."""
    with tempfile.TemporaryDirectory(prefix="oelm-bench-") as home:
        folder = RunFolder(Path(home) / "runs" / "bench")
        folder.path.mkdir(parents=True)
        folder.write(RunRecord(id="bench", preset=wanted.id, config=as_dict(wanted), config_hash="bench", seed=42))
        environment = {**os.environ, "OELM_HOME": home, "OELM_THREADS": str(effort.threads)}
        with open(folder.log, "wb") as log:
            command = [sys.executable, "-m", "oelm_core.training.worker", f"--run-folder={folder.path}"]
            code = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
        if code:
            last = folder.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(f"bench loop: the worker ended with code {code}: {' '.join(last)}")
        records = [r for r in read_metrics(folder.metrics, "train") if r.step < (wanted.train.max_steps or 0)]
        result = folder.read(Result)
    shares, around, step = overhead(records)
    wait = result.timing.data_wait_share if result else None
    return WorkerTimes(step, around, shares, wait or 0.0)


def overhead(records: list[MetricLine]) -> tuple[list[float], float, float]:
    """(share of time outside the steps in each log interval, seconds outside per step, seconds of a step).

    An interval lasts from one train record to the next; its steps took what the worker's own clock says.
    """
    shares, outside, stepping, steps = [], 0.0, 0.0, 0
    for before, after in itertools.pairwise(records[1:]):
        count = after.step - before.step
        lasted, in_steps = after.t - before.t, after.values["step_time"] * count
        if lasted > 0:
            shares.append(max(0.0, lasted - in_steps) / lasted)
            outside, stepping, steps = outside + lasted - in_steps, stepping + in_steps, steps + count
    if not steps:
        raise LabError("bench loop: the worker wrote too few train records to tell.")
    return shares, max(0.0, outside) / steps, stepping / steps


# -- settings --------------------------------------------------------------------------------------------------------


def compare_precisions(section: BenchSection, effort: Effort) -> tuple[dict[str, Measured], Precision]:
    """Adds the table of a product in each format; also returns what `amp` takes here."""
    chosen = in_child(amp_here, effort.threads)
    on_gpu = chosen.device.type == "cuda"
    side = 4096 if on_gpu else 512
    makes = {name: partial(Gemm, side, name) for name in FORMATS if on_gpu or name != "fp16"}
    found = take_turns(makes, rounds=effort.rounds(6), threads=effort.threads)
    rows = [[name, measured_time(one.median)] for name, one in found.items()]
    note = f"`amp` here takes {chosen.name}: {chosen.note}."
    section.tables.append(BenchTable(f"A product of {side} x {side} in each format", ["format", "time"], rows, note))
    section.keep("precision", found)
    return found, chosen


def amp_here() -> Precision:
    return choose_precision("amp", device())


def _worth(found: Mapping[str, Measured], name: str, faster: Ratio) -> str:
    if faster.low <= 1:
        return ": not worth it here"
    longer = found[name].warm_up_wall - found["as shipped"].warm_up_wall
    each = found["as shipped"].median_wall - found[name].median_wall
    return f": its first steps are made up for after {longer / each:,.0f} more" if each > 0 else ""


def compare_compiling(section: BenchSection, effort: Effort, sizes: StepSizes) -> dict[str, Measured] | None:
    """torch.compile as an option: its step against ours as shipped. None where there is no C++ compiler.

    Compiled layers do without our own attention and dropout, which torch's compiler cannot see into.
    """
    title, columns = "torch.compile (an option, off by default)", ["step", "time", "first steps"]
    if not shutil.which("g++") and not shutil.which("clang++"):
        section.tables.append(BenchTable(title, columns, [], "Not measured: no C++ compiler here."))
        return None
    ways: dict[str, Make] = {"compiled": partial(steps.gpt, sizes, compiled=True)}
    if device().type == "cuda":
        ways["compiled, CUDA graphs"] = partial(steps.gpt, sizes, compiled="graphs")
    makes: dict[str, Make] = {"as shipped": partial(steps.gpt, sizes), **ways}
    cold = dict.fromkeys(ways, COLD)
    found = take_turns(makes, rounds=effort.rounds(ENOUGH), threads=effort.threads, warmup=2, environments=cold)
    rows = [[name, measured_time(one.median), measured_time(one.warm_up_wall)] for name, one in found.items()]
    note = f"A step of {sizes.batch} x {sizes.length} tokens."
    for name in ways:
        faster = ratio(found, "as shipped", name)
        worth = "" if effort.quick else _worth(found, name, faster)
        note += f" {name[0].upper()}{name[1:]}, it is {faster} as fast{worth}."
    section.tables.append(BenchTable(title, columns, rows, note))
    section.keep("compile", found)
    return found
