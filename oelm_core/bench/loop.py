"""`oelm bench loop`: the worker around its step, threads that wait, records that grow; and what choices.py measures."""

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

from oelm_core.bench import choices
from oelm_core.bench.claims import Claim, Effort, Section, Table, percent, seconds
from oelm_core.bench.experiments import experiment
from oelm_core.bench.sizes import SMALL
from oelm_core.bench.statistics import paired_ratio
from oelm_core.bench.variants import Recipe, children, take_turns, turns
from oelm_core.config import Experiment, as_dict
from oelm_core.errors import LabError
from oelm_core.runs.folder import write_json
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import MetricLine
from oelm_core.training.waiting import SPIN

OVERHEAD, WAIT = 0.01, 0.02
OURS = "a moment (ours)"
DEFAULT = "long (the default)"
SPINNING = {OURS: SPIN, DEFAULT: "300000", "not at all": "0"}
"""libgomp's turns of waiting before a thread sleeps; its default as its manual has it."""


def measure(effort: Effort) -> Section:
    section = Section("loop", "The worker around its step")
    _worker(section, effort)
    _waiting(section, effort)
    _records(section, effort)
    choices.measure(section, effort)
    return section


def _worker(section: Section, effort: Effort) -> None:
    """Real workers on small models, whose steps are so short that everything around them shows."""
    steps = 30 if effort.quick else 60
    often = {"max_steps": steps, "eval_every": steps, "samples": 0}
    reviews = {"name": "demo-sentiment", "text": ["sentence"], "classes": 2}
    runs = {
        "gpt": experiment("gpt", SMALL, data={"name": "demo-stories"}, train=often),
        "packed bert": experiment("bert", SMALL.but(batch=32), data=reviews, train={**often, "batching": "packed"}),
    }
    found = {name: _train(run, effort) for name, run in runs.items()}
    section.raw["worker"] = found
    told = [
        f"{name} {percent(one['around_share'])}: {seconds(one['around'])} beside a step of {seconds(one['step'])}"
        for name, one in found.items()
    ]
    section.claims.append(
        Claim(
            "worker: everything around the step (metrics, log, heartbeat, clock)",
            "under 1 %",
            ", ".join(told),
            max(one["around_share"] for one in found.values()) < OVERHEAD,
        )
    )
    waits = {name: one["data_wait_share"] for name, one in found.items()}
    said = ", ".join(f"{name} {100 * wait:.2f} %" for name, wait in waits.items())
    section.claims.append(Claim("worker: waiting for data", "under 2 % of the step", said, max(waits.values()) < WAIT))


def _train(wanted: Experiment, effort: Effort) -> dict[str, float]:
    """What a worker's own records say about a run."""
    with tempfile.TemporaryDirectory(prefix="oelm-bench-") as home:
        folder = Path(home) / "runs" / "bench"
        folder.mkdir(parents=True)
        run = {"schema": 1, "id": "bench", "preset": wanted.id, "config_hash": "bench", "seed": 42}
        write_json(folder / "run.json", {**run, "config": as_dict(wanted)})
        environment = {**os.environ, "OELM_HOME": home, "OELM_THREADS": str(effort.threads)}
        with open(folder / "training.log", "wb") as log:
            command = [sys.executable, "-m", "oelm_core.training.worker", f"--run-folder={folder}"]
            code = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
        if code:
            last = (folder / "training.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise LabError(f"bench loop: the worker ended with code {code}: {' '.join(last)}")
        records = [r for r in read_metrics(folder / "metrics.jsonl", "train") if r.step < (wanted.train.max_steps or 0)]
        wait = json.loads((folder / "result.json").read_text())["timing"]["data_wait_share"]
    share, around, step = overhead(records)
    return {"around_share": share, "around": around, "step": step, "data_wait_share": wait}


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


def _waiting(section: Section, effort: Effort) -> None:
    """How long threads spin before they sleep: as the worker has it, as libgomp has it, not at all."""
    size = SMALL.as_dict()
    recipes = {
        name: Recipe("oelm_core.bench.ours:gpt", size, {"GOMP_SPINCOUNT": spins}) for name, spins in SPINNING.items()
    }
    rows, told = [], []
    with children(recipes, effort.threads) as alive:
        for child in alive.values():
            child.ready()
        for where, neighbours in (("alone", 0), (f"beside {effort.threads} busy processes", effort.threads)):
            with busy(neighbours):
                found = turns(alive, rounds=effort.rounds(3))
            for name, one in found.items():
                against = "" if name == OURS else str(paired_ratio(one.wall, found[OURS].wall))
                rows.append([where, name, seconds(one.median_wall), against])
            default = found[DEFAULT].median_wall / found[OURS].median_wall
            told.append(f"{where} the default takes {default:.2f} times our time")
            section.keep(f"waiting, {where}", found)
    note = (
        "A step of a demo-sized GPT, wall clock. The worker lets threads spin for a moment (GOMP_SPINCOUNT) unless the"
        " environment says otherwise: spinning long takes the core from the thread that is waited for, sleeping at once"
        " costs a wake-up for every small operation."
    )
    note += f" {'; '.join(told)}.".replace(" alone", " Alone", 1)
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
    size = 5 if effort.quick else 100
    maker = "oelm_core.bench.worker_parts:record_writing"
    recipes = {"empty": Recipe(maker, {"megabytes": 0}), "long": Recipe(maker, {"megabytes": size})}
    found = take_turns(recipes, rounds=effort.rounds(40), threads=effort.threads)
    times = paired_ratio(found["long"].wall, found["empty"].wall)
    section.claims.append(
        Claim(
            f"a train record when metrics and log already have {size} MB each",
            "no slower: the interval reaches down to 1",
            f"{times} of {seconds(found['empty'].median_wall)}",
            times.low <= 1,
        )
    )
    section.keep("records", found)
