"""Looks at the machine and says, check by check, what was found and how to fix what is missing."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from oelm_core.devices import torch_builds
from oelm_core.devices.presence import sign_of_cards
from oelm_core.devices.torch_builds import CardFacts, TorchFacts
from oelm_core.errors import BadInput, LabError, Refused
from oelm_core.formatting import size
from oelm_core.home import home

Grade = Literal["good", "warn", "bad"]
ROOM = 20 * 2**30
"""Bytes that should be free where runs are kept."""


@dataclass(frozen=True)
class Diagnosis:
    """One check: what was looked at, what was found, and what to do about it."""

    name: str
    grade: Grade
    found: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        return {"check": self.name, "grade": self.grade, "found": self.found, "fix": self.fix}


def examine() -> Iterator[Diagnosis]:
    """Every check in turn, each as soon as it is known. One that breaks is itself found bad; the others continue."""
    for check in (_python, _torch, _nvml, _suspects, _leases, _home, _ledger, _cache, _datasets, _slurm, _terminal):
        try:
            yield from check()
        except LabError as error:  # a home that cannot be used is found by each that needs one
            yield Diagnosis(check.__name__.strip("_"), "bad", str(error))
        except Exception as error:
            name = check.__name__.strip("_")
            yield Diagnosis(name, "bad", f"the check itself failed: {type(error).__name__}: {error}")


def _python() -> Iterator[Diagnosis]:
    yield Diagnosis("python", "good", f"{platform.python_version()} at {sys.executable}")


# In a process of its own: a torch that does not fit the driver may take the whole interpreter down.
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
print(json.dumps({
    "version": torch.__version__, "built_for": torch.version.cuda, "cuda": cuda,
    "kernels": torch.cuda.get_arch_list() or flags.split(),
    "names": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
    "bf16": cuda and torch.cuda.is_bf16_supported(), "threads": torch.get_num_threads(),
}))
"""


def _torch() -> Iterator[Diagnosis]:
    cards = driver_and_cards()
    try:
        ended = subprocess.run([sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        yield Diagnosis("torch", "bad", "importing it takes more than two minutes", "look at the file system it is on")
        return
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        fix = torch_builds.install_line(TorchFacts("0", None), cards.driver, cards.cards)
        yield Diagnosis("torch", "bad", f"cannot be imported: {last}", fix)
        return
    said = json.loads(ended.stdout.splitlines()[-1])
    facts = TorchFacts(said["version"], said["built_for"], tuple(said["kernels"]), len(said["names"]))
    yield Diagnosis("torch", "good", f"{facts.version}, {said['threads']} CPU threads")
    if said["cuda"]:
        precision = "bf16" if said["bf16"] else "fp16"
        yield Diagnosis("device", "good", f"{', '.join(said['names'])} (CUDA {facts.cuda}, {precision})")
    elif facts.cuda:
        yield Diagnosis("device", "warn", f"CPU only: torch is built for CUDA {facts.cuda} but finds no GPU")
    else:
        fix = "on a GPU host install a CUDA build of torch; the demo needs none"
        yield Diagnosis("device", "warn", "CPU only: this torch has no CUDA", "" if cards.cards else fix)
    verdict = torch_builds.judge(facts, cards.driver, cards.cards)
    if cards.cards or verdict.fix:
        yield Diagnosis("build", "bad" if verdict.fix else "good", *verdict)


class Driver(NamedTuple):
    """The driver and its cards, as NVML lists them; nothing where there is none."""

    driver: str | None = None
    cards: tuple[CardFacts, ...] = ()
    problem: str | None = None


def driver_and_cards() -> Driver:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(problem=str(error))
    try:
        cards = tuple(map(_card, range(pynvml.nvmlDeviceGetCount())))
        return Driver(pynvml.nvmlSystemGetDriverVersion(), cards)
    except pynvml.NVMLError as error:
        return Driver(problem=str(error))
    finally:
        pynvml.nvmlShutdown()


def _card(index: int) -> CardFacts:
    import pynvml

    name, capability = "a card that does not answer", None
    with contextlib.suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = pynvml.nvmlDeviceGetName(handle)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability = (int(major), int(minor))
    return CardFacts(str(index), name, capability)


def _nvml() -> Iterator[Diagnosis]:
    found = driver_and_cards()
    if found.problem is not None:
        there = sign_of_cards()
        fix = "without an NVIDIA driver only the CPU is shown; if this host has cards, ask for the driver"
        if there:
            fix = (
                f"there are cards here ({there}), so --device auto is refused; ask for the driver, or use --device cpu"
            )
        yield Diagnosis("nvml", "bad" if there else "warn", f"no GPUs to watch: {found.problem}", fix)
        return
    yield Diagnosis("nvml", "good", f"{len(found.cards)} GPUs, driver {found.driver}")


def _suspects() -> Iterator[Diagnosis]:
    from oelm_core.devices.nvml import NoDriver, read_cards
    from oelm_core.launch import suspects

    try:
        cards = [card for card in read_cards() if card.uuid]
    except NoDriver:
        return
    for card in cards:
        doubt = suspects.suspicion(str(card.uuid))
        if doubt is not None:
            found = f"{suspects.why(card.label, doubt)}: {doubt.message}"
            fix = f"look for Xid lines in dmesg; then, or after a reset: oelm gpus --trust {card.label}"
            yield Diagnosis("suspect", "warn", found, fix)


def _leases() -> Iterator[Diagnosis]:
    """Whether two runs, of whichever users, are kept off one card."""
    from oelm_core.launch.lease import lease_dir
    from oelm_core.launch.shared_folder import lock_problem, network_of, no_locks
    from oelm_core.runs.process import name_of

    try:
        folder = lease_dir()
    except Refused as refusal:
        yield Diagnosis("leases", "bad", str(refusal), "until then no run starts here")
        return
    problem, network, found = lock_problem(folder), network_of(folder), folder.stat()
    if problem:
        yield Diagnosis("leases", "bad", no_locks(folder, problem), "until then no run starts here")
    elif network:
        fix = "leases are for one machine: set OELM_LEASES to a folder on a disk of its own, the same for all users"
        yield Diagnosis("leases", "warn", f"{folder} is on a network file system ({network})", fix)
    elif found.st_mode & 0o1777 != 0o1777:
        fix = f"if others train here too: {name_of(found.st_uid)} or an administrator runs `chmod 1777 {folder}`"
        yield Diagnosis("leases", "warn", f"{folder} is not open to all users (mode {found.st_mode & 0o7777:o})", fix)
    else:
        yield Diagnosis("leases", "good", f"{folder}, shared by all users")


def _home() -> Iterator[Diagnosis]:
    folder = home()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        yield Diagnosis("home", "bad", f"{existing} is not a folder", "set OELM_HOME to a folder of yours")
    elif os.access(existing, os.W_OK):
        yield _home_that_can_be_written(folder, existing)
    else:
        yield Diagnosis("home", "bad", f"{existing} cannot be written", "set OELM_HOME to a folder of yours")
    free = shutil.disk_usage(existing).free
    fix = "" if free >= ROOM else "a GPT run keeps about 1.5 GiB of checkpoints: free some, or move OELM_HOME"
    yield Diagnosis("disk", "warn" if fix else "good", f"{size(free)} free at {existing}", fix)


def _home_that_can_be_written(folder: Path, existing: Path) -> Diagnosis:
    from oelm_core.launch.shared_folder import lock_problem, network_of

    network, problem = network_of(existing), lock_problem(existing)
    found = f"runs are kept in {folder / 'runs'}" + (f", on a network file system ({network})" if network else "")
    if problem is None:
        return Diagnosis("home", "good", found)
    fix = "runs are safe there, but the ledger may lose lines and `oelm tune`, `oelm data prepare` are refused"
    return Diagnosis("home", "warn", f"{found}; locks: {problem}", fix)


def _ledger() -> Iterator[Diagnosis]:
    from oelm_core.runs.ledger import read_ledger

    ledger = read_ledger()
    for place in ledger.breaks:
        fix = "its counts of what was tried are not complete any more; restore the file from a copy if there is one"
        yield Diagnosis("ledger", "warn", f"{ledger.path}: {place}", fix)
    if ledger.unreadable:
        others = len(ledger.unreadable) - 1
        more = f", and {others:,} line{'s' * (others > 1)} more" if others else ""
        fix = "what it says is not counted; a crash leaves such a line, and so does a newer version"
        yield Diagnosis("ledger", "warn", f"{ledger.unreadable[0]}{more}", fix)
    if not ledger.breaks:
        yield Diagnosis("ledger", "good", f"{len(ledger.events)} events in {ledger.path}, the chain is whole")


def _cache() -> Iterator[Diagnosis]:
    cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", "", "false")
    endpoint = os.environ.get("HF_ENDPOINT")
    notes = [f"Hugging Face cache {cache}{'' if cache.exists() else ' (not there yet)'}"]
    notes += ["offline"] * offline + [f"mirror {endpoint}"] * bool(endpoint)
    yield Diagnosis("cache", "good", ", ".join(notes))


def _datasets() -> Iterator[Diagnosis]:
    from oelm_core.data.sets import SETS, available

    here = [name for name in SETS if available(name)[0]]
    missing = [name for name in SETS if name not in here]
    if here:
        yield Diagnosis("datasets", "good", f"on this machine: {', '.join(here)}")
    if missing:
        fix = "they are fetched at the first run; on a node without network see: oelm data list"
        yield Diagnosis("datasets", "warn", f"not on this machine: {', '.join(missing)}", fix)


def _slurm() -> Iterator[Diagnosis]:
    from oelm_core.launch.slurm.site import discover, load_site

    try:
        load_site()
    except BadInput as mistake:
        yield Diagnosis("slurm", "bad", str(mistake), "until it is fixed, --launcher slurm starts nothing")
    found = discover()
    if found.problem:
        yield Diagnosis("slurm", "warn", f"it is here but says: {found.problem}", "is slurmctld up?")
        return
    site = home() / "slurm.yaml"
    needs_site = bool(found.proposal) and not site.exists()
    fix = f"write {site}; for example:\n{found.proposal}" if needs_site else ""
    yield Diagnosis("slurm", "warn" if needs_site else "good", "; ".join(found.findings), fix)


def _terminal() -> Iterator[Diagnosis]:
    columns, lines = shutil.get_terminal_size((0, 0))
    term = os.environ.get("TERM", "unset")
    colours = "no colour" if "NO_COLOR" in os.environ else os.environ.get("COLORTERM") or f"TERM={term}"
    found = f"{columns}x{lines}, {colours}" if columns else f"no terminal here, {colours}"
    if columns and (columns < 60 or lines < 20):
        yield Diagnosis("terminal", "warn", found, "the screen needs 60x20 at least: enlarge the window")
    elif term in ("dumb", "unset") and columns:
        yield Diagnosis("terminal", "warn", found, "set TERM, for example: export TERM=xterm-256color")
    else:
        yield Diagnosis("terminal", "good", found)
    encoding = (sys.stdout.encoding or "").lower()
    if "utf" not in encoding:
        fix = "export LANG=C.UTF-8 for curves and marks; without it the screen draws in ASCII"
        yield Diagnosis("terminal", "warn", f"encoding {encoding or 'unknown'}", fix)
