"""`oelm bench loop`: the worker around its step, threads that wait, growing records, precision, generation, compile."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oelm_core.bench.claims import Claim, Effort, Section, Table, percent, seconds
from oelm_core.bench.sizes import MEDIUM, SMALL, TINY
from oelm_core.bench.statistics import paired_ratio
from oelm_core.bench.variants import Recipe, ratio, take_turns
from oelm_core.errors import LabError
from oelm_core.runs.metrics import read_metrics
from oelm_core.training.waiting import SPIN

OVERHEAD, WAIT = 0.01, 0.02
COLD = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""So that a warm-up is one, also the second time."""
OURS = "a moment (ours)"
DEFAULT = "long (the default)"
SPINNING = {OURS: SPIN, DEFAULT: "300000", "not at all": "0"}
"""libgomp's turns of waiting before a thread sleeps; its default as its manual has it."""


def measure(effort: Effort) -> Section:
    section = Section("loop", "The worker around its step")
    _worker(section, effort)
    _waiting(section, effort)
    _records(section, effort)
    _precision(section, effort)
    _generation(section, effort)
    _compile(section, effort)
    return section


def _worker(section: Section, effort: Effort) -> None:
    """A real worker on the demo's GPT, whose steps are so short that everything around them shows."""
    with tempfile.TemporaryDirectory(prefix="oelm-bench-") as home:
        folder = Path(home) / "runs" / "bench"
        steps = 30 if effort.quick else 100
        _write_run(folder, steps)
        environment = {**os.environ, "OELM_HOME": home, "OELM_DEVICE": "cpu", "OELM_THREADS": str(effort.threads)}
        with open(folder / "training.log", "wb") as log:
            command = [sys.executable, "-m", "oelm_core.training.worker", f"--run-folder={folder}"]
            code = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
        if code:
            last = (folder / "training.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(f"bench loop: the worker ended with code {code}: {' '.join(last)}")
        records = [r for r in read_metrics(folder / "metrics.jsonl", "train") if r["step"] < steps]
        wait = json.loads((folder / "result.json").read_text())["timing"]["data_wait_share"]
    share, around, step = overhead(records)
    section.raw["worker"] = {"overhead_share": share, "seconds_around": around, "step": step, "data_wait_share": wait}
    section.claims += [
        Claim(
            "worker: everything around the step (metrics, log, heartbeat, clock)",
            "under 1 %",
            f"{percent(share)}: {seconds(around)} beside a step of {seconds(step)}",
            share < OVERHEAD,
        ),
        Claim("worker: waiting for data", "under 2 % of the step", f"{100 * wait:.2f} %", wait < WAIT),
    ]


def _write_run(folder: Path, steps: int) -> None:
    """A run of a demo-sized GPT on generated stories, validated once at its end."""
    from oelm_core.config import as_dict, build_experiment
    from oelm_core.runs.folder import write_json

    train = {"batch_size": 16, "max_steps": steps, "eval_every": steps, "lr": 1e-3, "samples": 0}
    shape = {"layers": 4, "d_model": 128, "heads": 4, "d_ff": 512, "vocab": 202, "positions": 128}
    content = {
        "id": "bench",
        "title": "The worker's own cost",
        "family": "gpt",
        "model": {"name": "demo-gpt", "shape": shape, "start": "scratch"},
        "data": {"name": "demo-stories", "max_length": 128},
        "method": {"name": "baseline"},
        "train": train,
    }
    experiment = build_experiment(content, "bench")
    folder.mkdir(parents=True)
    run = {"schema": 1, "id": "bench", "preset": experiment.id, "config_hash": "bench", "seed": 42}
    write_json(folder / "run.json", {**run, "config": as_dict(experiment)})


def overhead(records: list[dict[str, Any]]) -> tuple[float, float, float]:
    """(share of time outside the steps, seconds outside per step, seconds of a step), over all log intervals.

    An interval lasts from one train record to the next; its steps took what the worker's own clock says.
    """
    lasted, stepping, steps = 0.0, 0.0, 0
    for before, after in itertools.pairwise(records[1:]):
        count = after["step"] - before["step"]
        lasted += after["t"] - before["t"]
        stepping += after["step_time"] * count
        steps += count
    if not steps or lasted <= 0:
        raise LabError("bench loop: the worker wrote too few train records to tell.")
    outside = max(0.0, lasted - stepping)
    return outside / lasted, outside / steps, stepping / steps


def _waiting(section: Section, effort: Effort) -> None:
    """How long threads spin before they sleep: as the worker has it, as libgomp has it, not at all."""
    size = SMALL.as_dict()
    recipes = {
        name: Recipe("oelm_core.bench.ours:gpt", size, (), {"GOMP_SPINCOUNT": turns})
        for name, turns in SPINNING.items()
    }
    rows, told = [], []
    for where, neighbours in (("alone", 0), (f"beside {effort.threads} busy processes", effort.threads)):
        with busy(neighbours):
            found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads, repeat=2)
        for name, one in found.items():
            against = "" if name == OURS else str(paired_ratio(one.wall, found[OURS].wall))
            rows.append([where, name, seconds(one.median_wall), against])
        default = found[DEFAULT].median_wall / found[OURS].median_wall
        told.append(f"{where} the default takes {default:.2f} times our time")
        section.raw[f"waiting, {where}"] = {name: one.as_dict() for name, one in found.items()}
    note = (
        "A step of a demo-sized GPT, wall clock. The worker lets threads spin for a moment (GOMP_SPINCOUNT) unless the"
        " environment says otherwise: spinning long takes the core from the thread that is waited for, sleeping at once"
        " costs a wake-up for every small operation."
    )
    note += " " + "; ".join(told) + "."
    section.tables.append(Table("Threads that wait", ["where", "spin", "step", "ratio to ours"], rows, note))


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


def _records(section: Section, effort: Effort) -> None:
    size = 5 if effort.quick else 300
    maker = "oelm_core.bench.worker_parts:record_writing"
    recipes = {"empty": Recipe(maker, {"megabytes": 0}), "long": Recipe(maker, {"megabytes": size})}
    found = take_turns(recipes, rounds=effort.rounds(20), threads=effort.threads)
    times = paired_ratio(found["long"].wall, found["empty"].wall)
    section.claims.append(
        Claim(
            f"a train record when the metrics file already has {size} MB",
            "no slower",
            f"{times} of {seconds(found['empty'].median_wall)}",
            times.value <= 1.05,
        )
    )
    section.raw["records"] = {name: one.as_dict() for name, one in found.items()}


def _precision(section: Section, effort: Effort) -> None:
    about = take_turns({"amp": Recipe("oelm_core.bench.worker_parts:precision")}, rounds=1, threads=effort.threads)[
        "amp"
    ].about
    fastest = min(about["products"], key=lambda name: about["products"][name])
    rows = [[name, seconds(value)] for name, value in about["products"].items()]
    note = f"`amp` here takes {about['chosen']}: {about['said']}."
    section.tables.append(Table("A product of 512 x 512 in each format", ["format", "time"], rows, note))
    section.claims.append(
        Claim(
            "amp takes the format this device is fastest in, and says so",
            fastest,
            about["chosen"],
            about["chosen"] == fastest and bool(about["said"]),
        )
    )
    section.raw["precision"] = about


def _generation(section: Section, effort: Effort) -> None:
    size = (TINY if effort.quick else MEDIUM).as_dict()
    maker, tokens = "oelm_core.bench.worker_parts:generation", 8 if effort.quick else 24
    recipes = {
        name: Recipe(maker, {"cache": cache, "tokens": tokens, "sizes": size})
        for name, cache in (("cache", True), ("none", False))
    }
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads)
    faster = ratio(found, "none", "cache")
    section.claims.append(
        Claim("generate with a key/value cache against without", "faster", f"{faster}", faster.low > 1)
    )
    section.raw["generation"] = {name: one.as_dict() for name, one in found.items()}
    few = {**size, "batch": 2}
    kept = {
        name: Recipe("oelm_core.bench.worker_parts:evaluation", {"gradients": on, "sizes": few})
        for name, on in (("validation", False), ("forward with gradients", True))
    }
    found = take_turns(kept, rounds=effort.rounds(2), threads=effort.threads)
    rows = [[name, seconds(one.median), f"{one.memory / 1e6:,.0f} MB"] for name, one in found.items()]
    section.tables.append(Table("Validation", ["", "a batch", "peak memory"], rows, "The same batch, forward only."))
    less = found["validation"].memory < found["forward with gradients"].memory
    section.claims.append(
        Claim("validation keeps nothing for gradients", "less memory", " against ".join(r[2] for r in rows), less)
    )


def _compile(section: Section, effort: Effort) -> None:
    """torch.compile as an option: its step against ours as shipped, and the seconds before its first step.

    Compiled layers do without our own attention and dropout, which torch's compiler cannot see into.
    """
    import shutil

    from oelm_core.config.sections import Train

    what = "torch.compile (an option, off by default)"
    if not shutil.which("g++") and not shutil.which("clang++"):
        section.claims.append(Claim(what, "measured with its warm-up", "no C++ compiler here", None))
        return
    size = (TINY if effort.quick else MEDIUM.but(batch=2)).as_dict()
    imports = ("oelm_core.models.gpt", "oelm_core.freezing")
    recipes = {
        "as shipped": Recipe("oelm_core.bench.ours:gpt", size, imports),
        "compiled": Recipe("oelm_core.bench.ours:gpt", {**size, "compiled": True}, imports, COLD),
    }
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads, warmup=2)
    times, first = ratio(found, "as shipped", "compiled"), found["compiled"].first_wall
    verdict = "worth it here" if times.low > 1 else "not worth it here"
    section.claims.append(
        Claim(
            what,
            "measured with its warm-up, off unless asked for",
            f"{times}, first steps {seconds(first)}; {verdict}",
            Train.model_fields["compile"].default is False,
        )
    )
    section.raw["compile"] = {name: one.as_dict() for name, one in found.items()}
