"""A made-up lab for the screen's tests: fixed clock, run folders in every state, four cards, the shipped presets."""

from __future__ import annotations

import asyncio
import json
import math
import random
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace
from textual import _wait

from oelm_core.compare.comparison import Finding
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.devices.card import Card, CardProcess
from oelm_core.devices.machine import Cpu, Disk, MachineSnapshot, Memory
from oelm_core.method.facts import Count
from oelm_core.published.facts import CatalogueFacts
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Notes, RunState
from oelm_core.runs.status import Observer
from oelm_core.runs.store import Run, read_run
from oelm_tui.app import OelmApp
from oelm_tui.snapshots.cards import Machine
from oelm_tui.snapshots.sampler import Sources
from tests.run_factory import START, predictions_with, write_run

_wait.SLEEP_GRANULARITY, _wait.SLEEP_IDLE = 0.005, 0.001  # of Textual's pilot; `settle` asks the threads themselves
NOW = START + 20_000.0
GIB = 2**30


ARMS = ["sst2-baseline", "sst2-oelm", "sst2-random", "mnli-baseline", "mnli-oelm", "XNLI-01", "XNLI-02"]
ARMS += [f"GPT-0{number}" for number in range(1, 6)]
DEMO = ["demo-bert-baseline", "demo-bert-oelm", "demo-gpt-baseline", "demo-gpt-oelm"]


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The author's arms and the demo's alone, in words of our own: new presets and texts change no picture."""
    whole = load_folders([SHIPPED])
    arms = {name: whole.experiments[name] for name in (*ARMS, *DEMO)}
    asked = {"title": "A study", "question": "What does it cost?"}
    words = {"about": "What this arm is for, in a sentence or two that fill more than one line of the form."}
    return Catalogue(
        {name: arm.model_copy(update={"title": f"The arm {name}", **words}) for name, arm in arms.items()},
        {name: whole.studies[name].model_copy(update=asked) for name in ("sst2", "gpt-tinystories")},
    )


def cards() -> tuple[Card, ...]:
    def card(index: int, use: int, memory: float, heat: int, user: str = "", run: str | None = None) -> Card:
        processes = (CardProcess(4000 + index, user=user),) if user else ()
        numbers = (use, int(memory * GIB), 24 * GIB, heat, 180.0)
        return Card(index, f"GPU-{index}", "RTX A5000", *numbers, processes=processes, lease=run)

    return (
        card(0, 97, 22.1, 78, "user4"),
        card(1, 88, 18.2, 74, "user4"),
        card(2, 95, 3.9, 66, run=run_id("GPT-01", 1)),
        card(3, 0, 0.3, 35),
    )


def run_id(preset: str, number: int, seed: int = 42) -> str:
    return f"{preset}-s{seed}-20260202-{number // 60:04d}{number % 60:02d}-{number:04x}"


@lru_cache(maxsize=1)
def machine() -> Machine:
    """Always the same object: the history of its use then has one point, however often it is looked at."""
    cpu, memory = Cpu(32, 37.0, (0.0, 0.0, 0.0)), Memory(int(0.41 * 128 * GIB), 128 * GIB, 0)
    disk = Disk("/lab", int(0.62 * 1868 * GIB), 1868 * GIB, 710 * GIB)
    return Machine(MachineSnapshot("gpu43", NOW, cpu, memory, disk, cards()))


def write_lab(root: Path) -> Path:
    """Seven runs: two GPT arms running, one waiting, one failed, a finished SST-2 pair, one stopped."""
    arms = catalogue().experiments
    runs = root / "runs"
    labels = [0, 1] * 436
    for number, name, curve, wrong in (
        (4, "sst2-baseline", [0.90, 0.9289, 0.9255], range(62)),  # 810 of 872 right
        (5, "sst2-oelm", [0.88, 0.9117, 0.9094], range(20, 97)),
    ):
        kept = predictions_with(labels, wrong)
        write_run(runs, arms[name], number=number, curve=curve, labels=labels, predictions=kept)
    live(write_run(runs, arms["GPT-01"], number=1, state="running", reason=None, without=["result"]), 62_000, 4.51)
    live(write_run(runs, arms["GPT-02"], number=2, state="running", reason=None, without=["result"]), 61_200, 5.04)
    waiting = write_run(runs, arms["GPT-03"], number=3, state="waiting", reason=None, without=["result", "metrics"])
    change(waiting, state="waiting", message="waiting: after GPT-01", step=0, total=100_000, devices=[])
    failed = write_run(runs, arms["mnli-oelm"], number=6, seed=43, state="failed", reason="oom", without=["result"])
    message = "asked for 2.1 GB, 0.4 GB free of 24 GB; lower train.batch_size"
    change(failed, message=message, step=1200, total=36_816, ended=NOW - 3600, devices=["1"])
    failed.folder.log.write_bytes(FAILED_LOG)
    stopped = write_run(runs, arms["XNLI-02"], number=7, state="stopped", reason="user", without=["result"])
    change(stopped, step=30_000, total=73_632, ended=NOW - 7200)
    stopped.folder.write(Notes(tags=["paper"], note="go on after the deadline"))
    return root


FAILED_LOG = b"""\
[13:00:01] mnli-oelm on GPU 1, batch 32, fp32
[13:00:09] step 1100/36816 loss 0.8112
[13:00:12] step 1200/36816 loss 0.8020
Traceback (most recent call last):
  File "worker.py", line 12, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.1 GiB [not markup]
"""


def change(run: Run, **values: object) -> None:
    state = run.folder.read(RunState)
    assert state is not None
    run.folder.write(replace(state, **{"host": "gpu43", "boot_id": "b", "heartbeat": NOW - 1, **values}))


def live(run: Run, step: int, best: float) -> None:
    """A long run in the middle: a thousand training records up to now, evaluations every 1000 steps."""
    change(
        run, state="running", step=step, total=100_000, devices=[{"GPT-01": "2", "GPT-02": "3"}.get(run.preset, "0")]
    )
    chance = random.Random(run.preset)
    records = []
    for number in range(1, 1001):
        at = step * number // 1000
        loss = math.log(best) + 2.2 * math.exp(-at / 9000) + chance.gauss(0, 0.05)
        records.append(
            {"t": NOW - (step - at) * 0.0837, "step": at, "kind": "train", "loss": loss, "lr": 1e-3 * (1 - at / 1e5)}
            | {"step_time": 0.0837 + chance.gauss(0, 0.002), "tokens_per_s": 48_900.0, "tokens": at * 4096}
        )
    for at in range(1000, step, 1000):
        ppl = best * (1 + 1.2 * math.exp(-at / 12_000)) / (1 + 1.2 * math.exp(-step / 12_000))
        t = NOW - (step - at) * 0.0837
        records.append({"t": t, "step": at, "kind": "eval", "perplexity": ppl, "loss": math.log(ppl), "seconds": 3.0})
        records.append({"t": t, "step": at, "kind": "system", "util": 95 + chance.gauss(0, 2), "memory": 3.9 * GIB})
    records.sort(key=lambda record: (record["step"], record["kind"] != "train"))
    run.folder.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    run.folder.log.write_text(
        "".join(f"[14:02:{n % 60:02d}] step {step - 100 + n}/100000 loss {1.78 + n / 1000:.4f}\n" for n in range(100))
    )
    text = "Once upon a time there was a girl named Lily. She found her red ball under the bed."
    samples = [{"t": NOW, "step": at, "prompt": "Once upon a time", "text": text} for at in (60_000, 61_000)]
    run.folder.samples.write_text("".join(json.dumps(sample) + "\n" for sample in samples))


def sources(root: Path) -> Sources:
    def runs() -> list[Run]:
        here = Observer("gpu43", "b", NOW, lambda *_: True, stranger=lambda *_: False)
        folder = root / "runs"
        found = [read_run(RunFolder(path), here) for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(found, key=lambda run: (run.created, run.id), reverse=True)

    return Sources(runs, machine=machine, now=lambda: NOW)


def make_app(root: Path, readonly: bool = False) -> OelmApp:
    return OelmApp(readonly=readonly, sources=sources(root), load=catalogue, every=60.0, facts=facts)


def facts(catalogue: Catalogue, presets: str, wanted: str | None, begun: list) -> Iterator[CatalogueFacts]:
    """The same two findings whatever the catalogue."""
    yield CatalogueFacts({name: Count(44_896_768, 41_751_040, 3_145_728) for name in ARMS})
    why = "total parameters given as 82M; counted, they are 44,896,768."
    yield CatalogueFacts(findings=[Finding("breaks", "parameters", ("GPT-02",), why, source="a report")])


async def wait_until(pilot, holds) -> None:
    for _ in range(400):
        if holds():
            return
        await pilot.pause(0.02)
    raise AssertionError("it never came to hold")


async def settle(pilot, rounds: int = 3) -> None:
    """Waits until the threads have said all they have to say and the screen has drawn it."""
    app = pilot.app
    for _ in range(rounds):
        for _ in range(200):
            threads = [*app.threads.values(), *(view.thread for view in app.screen.query("LogView"))]
            threads += [app.screen.thread] if hasattr(app.screen, "thread") else []
            known = app.snapshot is not None and app.snapshot.catalogue is not None
            answered = app.keys.idle and getattr(app.screen, "is_drawn", True)
            if known and answered and all(thread.idle for thread in threads):
                break
            await asyncio.sleep(0.01)
        await pilot.pause()


def copy_lab(template: Path, to: Path) -> Path:
    shutil.copytree(template, to, symlinks=True)
    return to


def drive(root: Path, script, size: tuple[int, int] = (120, 36), readonly: bool = False) -> OelmApp:
    """Runs an async script(app, pilot) against the lab, after its first snapshot and presets are on the screen."""
    app = make_app(root, readonly)

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            await script(app, pilot)

    asyncio.run(main())
    return app


async def press(pilot, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await settle(pilot)


def text_of(app: OelmApp) -> str:
    """What is on the screen, as plain text."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines)


def said(app: OelmApp) -> str:
    """The toasts so far, unwrapped."""
    return "\n".join(note.message for note in app._notifications)
