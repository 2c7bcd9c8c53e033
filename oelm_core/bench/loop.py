"""`oelm bench loop`: the worker around its step, and what its settings bring here: threads, precision, compiling."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from oelm_core.bench.report import BenchSection, BenchTable, Effort
from oelm_core.bench.steps import MEDIUM, SMALL, TINY, Calls, device, experiment, gpt, gpt_model, token_batch
from oelm_core.bench.turns import Make, Measured, Ratio, children, in_child, paired_ratio, ratio, take_turns, turns
from oelm_core.config import Experiment, as_dict
from oelm_core.data.language import LanguageData
from oelm_core.errors import LabError
from oelm_core.formatting import measured_time, percent, size
from oelm_core.method.flops import StepSizes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import MetricLine, Result, RunRecord
from oelm_core.training.distributed import Ranks
from oelm_core.training.precision import choose_precision
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import LanguageTask
from oelm_core.training.worker import SPIN

OURS = "a moment (ours)"
DEFAULT = "long (the default)"
SPINNING = {OURS: SPIN, DEFAULT: "300000", "not at all": "0"}
"""libgomp's turns of waiting before a thread sleeps; its default as its manual has it."""
COLD = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""So that a warm-up is one, also the second time."""


def measure(effort: Effort) -> BenchSection:
    section = BenchSection("loop", "The worker around its step")
    time_workers(section, effort)
    compare_waiting(section, effort)
    compare_precisions(section, effort)
    compare_validation(section, effort)
    compare_compiling(section, effort)
    return section


# -- the worker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerTimes:
    """Seconds of a step and around it, and the shares of the time spent around it and waiting for data."""

    step: float
    around: float
    around_share: float
    data_wait_share: float


def time_workers(section: BenchSection, effort: Effort) -> dict[str, WorkerTimes]:
    """Real workers on small models, whose steps are so short that everything around them shows."""
    steps = 30 if effort.quick else 60
    often = {"max_steps": steps, "eval_every": steps, "samples": 0}
    reviews = {"name": "demo-sentiment", "text": ["sentence"], "classes": 2}
    runs = {
        "gpt": experiment("gpt", SMALL, data={"name": "demo-stories"}, train=often),
        "packed bert": experiment("bert", SMALL.but(batch=32), data=reviews, train={**often, "batching": "packed"}),
    }
    found = {name: _train(run, effort) for name, run in runs.items()}
    section.raw["worker"] = {name: asdict(one) for name, one in found.items()}
    rows = [
        [
            name,
            measured_time(one.step),
            measured_time(one.around),
            percent(one.around_share),
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
    share, around, step = overhead(records)
    wait = result.timing.data_wait_share if result else None
    return WorkerTimes(step, around, share, wait or 0.0)


def overhead(records: list[MetricLine]) -> tuple[float, float, float]:
    """(share of time outside the steps, seconds outside per step, seconds of a step), over all log intervals.

    An interval lasts from one train record to the next; its steps took what the worker's own clock says.
    """
    lasted, stepping, steps = 0.0, 0.0, 0
    for before, after in itertools.pairwise(records[1:]):
        count = after.step - before.step
        lasted += after.t - before.t
        stepping += after.values["step_time"] * count
        steps += count
    if not steps or lasted <= 0:
        raise LabError("bench loop: the worker wrote too few train records to tell.")
    outside = max(0.0, lasted - stepping)
    return outside / lasted, outside / steps, stepping / steps


# -- threads ---------------------------------------------------------------------------------------------------------


def compare_waiting(section: BenchSection, effort: Effort) -> None:
    """How long threads spin before they sleep: as the worker has it, as libgomp has it, not at all."""
    environments = {name: {"GOMP_SPINCOUNT": spins} for name, spins in SPINNING.items()}
    rows, remarks = [], []
    with children(dict.fromkeys(SPINNING, partial(gpt, SMALL)), effort.threads, environments) as alive:
        for child in alive.values():
            child.ready()
        for where, neighbours in (("alone", 0), (f"beside {effort.threads} busy processes", effort.threads)):
            with busy(neighbours):
                found = turns(alive, rounds=effort.rounds(3))
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


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that keep a core busy each."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


# -- precision -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductTimes:
    """Seconds of a square product in each format, and which of them `amp` takes here, with its reason."""

    side: int
    seconds: dict[str, float]
    chosen: str
    reason: str


def compare_precisions(section: BenchSection, effort: Effort) -> ProductTimes:
    found = in_child(product_times, effort.threads)
    rows = [[name, measured_time(value)] for name, value in found.seconds.items()]
    note = f"The faster of two. `amp` here takes {found.chosen}: {found.reason}."
    title = f"A product of {found.side} x {found.side} in each format"
    section.tables.append(BenchTable(title, ["format", "time"], rows, note))
    section.raw["precision"] = asdict(found)
    return found


def product_times() -> ProductTimes:
    place = device()
    chosen = choose_precision("amp", place)
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if place.type == "cuda":
        formats["fp16"] = torch.float16
    seconds = {}
    side = 4096 if place.type == "cuda" else 512
    for name, dtype in formats.items():
        a, b = (torch.randn(side, side, device=place).to(dtype) for _ in range(2))
        seconds[name] = min([_product_seconds(a, b) for _ in range(3)][1:])
    return ProductTimes(side, seconds, chosen.name, chosen.note or "")


def _product_seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    clock = time.perf_counter if a.is_cuda else time.process_time
    if a.is_cuda:
        torch.cuda.synchronize()
    began = clock()
    a @ b
    if a.is_cuda:
        torch.cuda.synchronize()
    return clock() - began


# -- validation ------------------------------------------------------------------------------------------------------


def validation_sizes(effort: Effort) -> StepSizes:
    return TINY if effort.quick else MEDIUM.but(batch=2)


def compare_validation(
    section: BenchSection, effort: Effort, more: Mapping[str, Make] | None = None
) -> dict[str, Measured]:
    """Adds the table of validating one sequence at once, all of them, and `more`; the usual way comes first."""
    sizes = validation_sizes(effort)
    makes: dict[str, Make] = {
        "validation, 1 at once or what fits": partial(validation, sizes, at_once=1, fixed=False),
        f"validation, {sizes.batch} at once": partial(validation, sizes, at_once=sizes.batch, fixed=True),
        **(more or {}),
    }
    found = take_turns(makes, rounds=effort.rounds(2), threads=effort.threads)
    usual, joined = list(found.values())[:2]
    times = {joined.name: str(paired_ratio(joined.seconds, usual.seconds))}
    rows = [[name, measured_time(one.median), times.get(name, ""), size(one.memory)] for name, one in found.items()]
    note = (
        f"The trainer's own validation of {sizes.batch} x {sizes.length} tokens. On a GPU it joins batches until they"
        " no longer fit; on a CPU it leaves them as the recipe has them, and the ratio says what more at once would do."
    )
    columns = ["way", "time", "ratio to the first", "peak memory"]
    section.tables.append(BenchTable("Validation", columns, rows, note))
    section.keep("validation", found)
    return found


def validation(sizes: StepSizes, *, at_once: int, fixed: bool) -> Calls:
    """The trainer's own validation of a batch of sequences: so many at once, or from so many on what fits."""
    model = gpt_model(sizes).eval()
    text = token_batch(sizes)[0].flatten().cpu().numpy().astype(np.uint16)
    text = np.append(text, text[:1])  # every sequence has a next token
    train = {"eval_batch_size": at_once} if fixed else {}
    language = experiment("gpt", sizes.but(batch=at_once), data={"name": "bench"}, train=train)
    task = LanguageTask(language, LanguageData("bench", text, text, 0, ""), None)
    ranks, chosen, stop = Ranks(0, 1, device()), choose_precision("fp32", device()), StopRequest()
    return Calls(lambda: task.evaluate(model, ranks, chosen, stop))


# -- compiling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiling:
    """How many times as fast a compiled step is, and the seconds before it is."""

    faster: Ratio
    first_steps: float
    tokens: str

    @property
    def verdict(self) -> str:
        return "worth it here" if self.faster.low > 1 else "not worth it here"


def compare_compiling(section: BenchSection, effort: Effort) -> Compiling | None:
    """torch.compile as an option: its step against ours as shipped. None where there is no C++ compiler.

    Compiled layers do without our own attention and dropout, which torch's compiler cannot see into.
    """
    title, columns = "torch.compile (an option, off by default)", ["step", "time", "first steps"]
    if not shutil.which("g++") and not shutil.which("clang++"):
        section.tables.append(BenchTable(title, columns, [], "Not measured: no C++ compiler here."))
        return None
    sizes = TINY if effort.quick else MEDIUM.but(batch=1)
    makes: dict[str, Make] = {"as shipped": partial(gpt, sizes), "compiled": partial(gpt, sizes, compiled=True)}
    found = take_turns(
        makes, rounds=effort.rounds(3), threads=effort.threads, warmup=2, environments={"compiled": COLD}
    )
    tokens = f"{sizes.batch} x {sizes.length} tokens"
    compiling = Compiling(ratio(found, "as shipped", "compiled"), found["compiled"].first_wall, tokens)
    rows = [[name, measured_time(one.median), measured_time(one.first_wall)] for name, one in found.items()]
    note = f"A step of {tokens}. Compiled, it is {compiling.faster} as fast: {compiling.verdict}."
    section.tables.append(BenchTable(title, columns, rows, note))
    section.keep("compile", found)
    return compiling
