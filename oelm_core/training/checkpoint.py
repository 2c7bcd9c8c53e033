"""Checkpoints: safetensors and JSON, written beside, flushed, renamed, checksummed; nothing is ever unpickled."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from oelm_core.data.files import sha256
from oelm_core.errors import BadInput
from oelm_core.runs.folder import read_record, write_record
from oelm_core.runs.schema import SCHEMA, Evaluated, Reached, Record
from oelm_core.shared_files import open_shared_alike
from oelm_core.training.sharding import Tensors, part_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

REACH = (0.8, 0.9)
"""Accuracies whose first step is noted."""
_NAME = re.compile(r"^step-(\d+)$")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class Progress(msgspec.Struct):
    """Where a run is, carried from attempt to attempt. Seconds are training time, without waiting between attempts."""

    step: int = 0
    tokens: int = 0
    """Tokens trained on so far; those of skipped steps are not among them."""
    skipped: int = 0
    """Steps that fp16's loss scaling skipped because a gradient overflowed."""
    skipped_in_a_row: int = 0
    window: list[float] = []
    """Losses since the last train record, so that a record after a resume is the same number."""
    best: Evaluated | None = None
    last: Evaluated | None = None
    reached: dict[str, Reached | None] = msgspec.field(default_factory=lambda: {str(r): None for r in REACH})
    eval_due: bool = False
    """A stop came during this step's evaluation; it is done first after a resume."""
    seconds: float = 0.0
    validation_seconds: list[float] = []
    epoch_seconds: list[float] = []
    epoch_began: float = 0.0

    @property
    def best_step(self) -> int | None:
        return int(self.best["step"] or 0) if self.best else None

    def note_reached(self, accuracy: float, step: int, seconds: float) -> None:
        for level in REACH:
            if accuracy >= level and self.reached[str(level)] is None:
                self.reached[str(level)] = Reached(step, seconds)


class FileSum(msgspec.Struct):
    """What a file of a checkpoint must be."""

    bytes: int
    sha256: str


class CheckpointState(Record, kw_only=True):
    """A checkpoint's state.json: everything a resume needs beside weights and moments, and the files' checksums."""

    FILE = "state.json"

    schema: int = SCHEMA
    step: int
    preset: str | None = None
    config_hash: str | None = None
    seed: int | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    scaler: dict[str, int | float] = {}
    threads: int | None = None
    world_size: int = 1
    precision: str | None = None
    device: str | None = None
    torch: str | None = None
    files: dict[str, FileSum] = {}


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    state: CheckpointState

    @property
    def step(self) -> int:
        return self.state.step

    def tensors(self, name: str, device: str = "cpu") -> Tensors:
        return load_file(self.path / f"{name}.safetensors", device=device)


def model_tensors(model: nn.Module) -> Tensors:
    """Every weight once: a tied weight under its first name, and the buffers that belong to the model's state."""
    found = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for place, module in model.named_modules():  # not by state_dict(), which takes a sharded model apart
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                found[f"{place}.{name}".lstrip(".")] = buffer
    return found


def load_model(model: nn.Module, tensors: Tensors, where: Path) -> None:
    """Copies weights into the model; names and shapes must be exactly the model's."""
    own = model_tensors(model)
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())
        raise BadInput(f"{where}: its weights are of another model ({len(odd)} names differ, first {odd[0]}).")
    with torch.no_grad():
        for name, mine in own.items():
            if mine.shape != tensors[name].shape:
                raise BadInput(f"{where}: {name} is {list(tensors[name].shape)}, the model's is {list(mine.shape)}.")
            mine.copy_(part_of(tensors[name], mine))


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> Tensors:
    """Adam's moments and step counts under the names of the weights they belong to."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{key}": value
        for parameter, state in optimiser.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def load_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: Tensors) -> None:
    parameters = dict(model.named_parameters())
    fused_step = any(group.get("fused") for group in optimiser.param_groups)
    for name, value in tensors.items():
        owner, key = name.rsplit("|", 1)
        parameter = parameters[owner]
        if key != "step":
            loaded = part_of(value, parameter)
        else:
            loaded = value.to(parameter.device if fused_step and parameter.device.type == "cuda" else "cpu")
        optimiser.state[parameter][key] = loaded.clone()


def save(
    folder: Path, state: CheckpointState, groups: dict[str, Tensors], model_config: PretrainedConfig | None = None
) -> int:
    """Writes `step-<step>` with one safetensors file per group and returns its bytes; `latest` then points to it.

    model_config: transformers' description of the model, with which it can load the weights.
    A failure (a full disk) removes what was begun and leaves earlier checkpoints as they were.
    """
    folder.mkdir(exist_ok=True)  # not its parents: a run folder that was deleted stays deleted
    step = state.step
    final = folder / f"step-{step}"
    draft = folder / f".step-{step}-{os.urandom(4).hex()}"
    draft.mkdir()  # not mkdtemp: who may read the run may read its checkpoints
    try:
        listed = {}
        for group, tensors in groups.items():
            file = draft / f"{group}.safetensors"
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            _save_file(plain, file)
            flush(file)
            listed[file.name] = FileSum(file.stat().st_size, sha256(file))
        if model_config is not None:
            write_record(draft / "config.json", model_config.to_dict())
        write_record(draft / state.FILE, msgspec.structs.replace(state, files=listed))
        flush(draft)
        old = folder / f".step-{step}-old"
        if final.exists():  # the same step again: before its evaluation, or damaged
            os.rename(final, old)
        os.rename(draft, final)
        flush(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        put_back(folder)
        raise
    point(folder, "latest", step)
    return sum(file.stat().st_size for file in final.iterdir())


def _save_file(tensors: Tensors, file: Path) -> None:
    """safetensors reports a full disk as an error of its own; here it is an OSError like any other.

    It also makes a file for its owner alone, in place of one that is there: whom that was for, this one is for.
    """
    made = open_shared_alike(file, os.O_WRONLY)
    mode = stat.S_IMODE(os.fstat(made).st_mode)
    os.close(made)
    try:
        save_file(tensors, file, metadata={"format": "pt"})
        file.chmod(mode)
    except SafetensorError as error:
        if (number := _OS_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from None


def point(folder: Path, link: str, step: int) -> None:
    """Swaps the symlink `latest` or `best` in one move."""
    temporary = folder / f".{link}-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    os.symlink(f"step-{step}", temporary)
    os.replace(temporary, folder / link)


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint folder, complete or not, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for entry in folder.iterdir() if entry.is_dir() and (match := _NAME.match(entry.name)))


def prune(folder: Path, keep: int, best: int | None) -> None:
    """Removes all but the newest `keep` checkpoints and the best one."""
    for step in steps(folder)[:-keep]:
        if step != best:
            shutil.rmtree(folder / f"step-{step}", ignore_errors=True)


def tidy(folder: Path, step: int, best: int | None) -> None:
    """Removes damaged checkpoints past the one resumed from, and points `latest` and `best` where they belong."""
    for later in steps(folder):
        if later > step:
            shutil.rmtree(folder / f"step-{later}", ignore_errors=True)
    point(folder, "latest", step)
    if best and (folder / f"step-{best}").is_dir():
        point(folder, "best", best)


def put_back(folder: Path) -> None:
    """A checkpoint moved aside for another of the same step that never came takes its place again."""
    for old in folder.glob(".step-*-old"):
        final = folder / old.name.removeprefix(".").removesuffix("-old")
        if not final.exists():
            os.rename(old, final)


def clear_drafts(folder: Path) -> None:
    """Removes what a killed process had begun."""
    if folder.is_dir():
        put_back(folder)
        for draft in folder.glob(".step-*"):
            shutil.rmtree(draft, ignore_errors=True)


def verify(path: Path) -> Checkpoint | str:
    """The checkpoint, or why it is not complete."""
    state = read_record(path / CheckpointState.FILE, CheckpointState)
    if state is None or not state.files:
        return "its state.json is missing or unreadable"
    for name, listed in state.files.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != listed.bytes:
            return f"{name} is missing or cut short"
        if sha256(file) != listed.sha256:
            return f"{name} does not match its checksum"
    return Checkpoint(path, state)


def newest(folder: Path, say: Callable[[str], None] = lambda _: None) -> Checkpoint | None:
    """The newest complete checkpoint, verified by its checksums; damaged ones are skipped and named."""
    for step in reversed(steps(folder)):
        path = folder / f"step-{step}"
        found = verify(path)
        if isinstance(found, Checkpoint):
            return found
        say(f"checkpoint {path.name} is skipped: {found}")
    return None


def check_owner(checkpoint: Checkpoint, preset: str, config_hash: str) -> None:
    """Refuses a checkpoint that another preset or other settings wrote."""
    theirs = checkpoint.state.preset, checkpoint.state.config_hash
    if theirs != (preset, config_hash):
        raise BadInput(
            f"{checkpoint.path}: written by {theirs[0]} (settings {theirs[1]}), this run is {preset}"
            f" (settings {config_hash}); a run only resumes from its own checkpoint."
        )
