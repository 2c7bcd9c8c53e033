"""Reads one of the author's output folders; what it does not say stays unknown."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from oelm_core.errors import BadInput
from oelm_core.published.import_checkpoint import CheckpointCounts, count_checkpoint
from oelm_core.published.import_log import LogContent, read_log
from oelm_core.published.import_model import Network, model_section, recognise
from oelm_core.published.import_names import rate_in_name, recipe_name, seed_in_name
from oelm_core.published.import_settings import SHAPE, TRAIN, AuthorConfig, known_fields, read_settings, unreadable
from oelm_core.runs.schema import Misfit, decode
from oelm_core.small_files import FileKind, read_small_file

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

LOGS = ("training.log", "training_restart.log")
CHECKPOINTS = ("best.pt", "best_model.pt", "latest.pt", "best.safetensors", "model.safetensors")
METHODS = {
    "baseline": "baseline",
    "gpt": "baseline",
    "oelm": "oelm-freeze",
    "oelm_freeze": "oelm-freeze",
    "oelm_random": "oelm-random",
    "oelm_nofreeze": "oelm-nofreeze",
}
FREEZES = {"oelm-freeze": ["key", "query"], "oelm-random": ["key", "query"], "oelm-nofreeze": [], "baseline": []}
INITS: dict[str, dict[str, Any]] = {
    "normal": {"init": "gaussian", "scale": 0.02},
    "orthogonal": {"init": "head-qr", "scale": "unit"},
}
"""The author's two starts of Q and K."""


class TimingStats(Struct):
    """timing_stats.json, of the GPT scripts and of the BERT scripts: the same figures under two names."""

    model_type: str | None = None
    mode: str | None = None
    init_method: str | None = None
    dataset: str | None = None
    total_wall_time: float | None = None
    pure_training_time: float | None = None
    total_validation_time: float | None = None
    num_validations: int | None = None
    epoch_times: list[float] | None = None
    """The later scripts validate after each."""
    num_steps_measured: int | None = None
    mean_step_time: float | None = None
    std_step_time: float | None = None
    median_step_time: float | None = None
    p95_step_time: float | None = None
    p99_step_time: float | None = None
    mean_time_per_step: float | None = None
    std_time_per_step: float | None = None
    median_time: float | None = None
    p95_time: float | None = None
    p99_time: float | None = None
    final_perplexity: float | None = None
    """exp of the best loss, whatever its name says."""
    best_val_loss: float | None = None


class AuthorResults(Struct):
    """results.json of the later scripts; accuracies are in percent."""

    model_type: str | None = None
    dataset: str | None = None
    best_accuracy: float | None = None
    final_val_accuracy: float | None = None
    final_val_loss: float | None = None
    total_time_seconds: float | None = None
    avg_step_time: float | None = None


@dataclass
class AuthorFolder:
    """Everything one folder says; None for a file that is missing or cannot be read."""

    path: Path
    stats: TimingStats | None = None
    timing_file: bytes = b""
    """timing_stats.json as it is."""
    results: AuthorResults | None = None
    config: AuthorConfig = dataclasses.field(default_factory=AuthorConfig)
    """From config.json, results.json, a checkpoint's arguments, the log and the folder's name, in this order."""
    has_config_file: bool = False
    log: LogContent = dataclasses.field(default_factory=LogContent)
    logs: list[bytes] = dataclasses.field(default_factory=list)
    """As they are."""
    counts: CheckpointCounts | None = None
    checkpoint_bytes: int | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str = ""

    @property
    def kind(self) -> str:
        """gpt, bert or later: which of the author's programs wrote it."""
        if self.stats and (self.stats.mode is not None or self.stats.mean_time_per_step is not None):
            return "bert"
        if self.results or self.has_config_file:
            return "later"
        if (self.stats and self.stats.model_type is not None) or self._has_scores("perplexity"):
            return "gpt"
        return "bert" if self._has_scores("accuracy") else "unknown"

    def _has_scores(self, metric: str) -> bool:
        return any(metric in line.values for line in self.log.evals)

    @property
    def metric(self) -> str:
        return "perplexity" if self.kind == "gpt" else "accuracy"

    @property
    def seed(self) -> int | None:
        return self.config.seed

    @property
    def recipe(self) -> str:
        """The folder's name without what tells replicates apart."""
        return recipe_name(self.path, self.seed)


def looks_like_output(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in ("timing_stats.json", "results.json", *LOGS))


def read_folder(path: Path) -> AuthorFolder:
    """Reads the folder's files; a torn one is noted and left out."""
    folder = AuthorFolder(path)
    digest = hashlib.sha256()
    content = {name: _read_json(folder, name, digest) for name in ("timing_stats.json", "config.json", "results.json")}
    folder.stats = _record(folder, "timing_stats.json", content["timing_stats.json"], TimingStats)
    folder.results = _record(folder, "results.json", content["results.json"], AuthorResults)
    for name in LOGS:
        written = _read_file(folder, name, "log")
        if written is not None:
            digest.update(name.encode() + written)
            folder.logs.append(written)
            folder.log = read_log(written, folder.log)
            if folder.log.odd:
                folder.notes.append(unreadable(name, "Validation", f"no step or no number in '{folder.log.odd}'"))
    if not (folder.stats or folder.results or folder.log.evals):
        bad = "; ".join(note.removesuffix("; it is left out.") for note in folder.notes)
        raise BadInput(f"{path}: nothing to import; {bad or 'its files hold no timing, no results and no validation'}.")
    _read_checkpoint(folder)
    folder.has_config_file = content["config.json"] is not None
    _gather_settings(folder, content["config.json"], (content["results.json"] or {}).get("config"))
    folder.fingerprint = digest.hexdigest()
    return folder


def _read_json(folder: AuthorFolder, name: str, digest: Any) -> dict[str, Any] | None:
    written = _read_file(folder, name, "import")
    if written is None:
        return None
    digest.update(name.encode() + written)
    if name == "timing_stats.json":
        folder.timing_file = written
    try:
        return decode(written, dict[str, Any])
    except Misfit as misfit:
        folder.notes.append(f"unreadable: {name}, {misfit}; it is left out.")
        return None


def _read_file(folder: AuthorFolder, name: str, kind: FileKind) -> bytes | None:
    """A file's content; None for one that is not there, or is no plain file in this folder, which is noted."""
    try:
        return read_small_file(_inside(folder, name), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        folder.notes.append(f"unreadable: {name}, {error.strerror}; it is left out.")
        return None


def _inside(folder: AuthorFolder, name: str) -> Path:
    """Where a file truly is; a link that leads out of the folder is kept, and then not followed."""
    try:
        there = (folder.path / name).resolve()
    except (OSError, RuntimeError):  # a link to itself
        return folder.path / name
    return there if there.is_relative_to(folder.path) else folder.path / name


R = TypeVar("R", TimingStats, AuthorResults)


def _record(folder: AuthorFolder, name: str, content: dict[str, Any] | None, kind: type[R]) -> R | None:
    if content is None:
        return None
    record, misfits = known_fields(content, kind)
    folder.notes += [unreadable(name, key, why) for key, why in misfits.items()]
    return record


def _read_checkpoint(folder: AuthorFolder) -> None:
    for name in CHECKPOINTS:
        file = _inside(folder, name)
        if file.is_file() and not file.is_symlink():
            folder.checkpoint_bytes = folder.checkpoint_bytes or file.stat().st_size
            folder.counts = folder.counts or count_checkpoint(file)
            if folder.counts is None:
                folder.notes.append(f"{name}: its parameters cannot be counted without running what is pickled in it.")


def _gather_settings(folder: AuthorFolder, config: dict[str, Any] | None, in_results: object) -> None:
    """Fills `config` from every place that tells; the more exact one wins."""
    in_checkpoint = folder.counts.settings if folder.counts else None
    sources = {"config.json": config, "results.json": in_results, "the checkpoint": in_checkpoint}
    found = []
    for name, content in sources.items():
        if isinstance(content, dict):
            settings, misfits = read_settings(content)
            folder.notes += [unreadable(name, key, why) for key, why in misfits.items()]
            found.append(settings)
        elif content is not None:
            folder.notes.append(unreadable(name, "config", "it should hold settings"))
    log = folder.log
    found.append(AuthorConfig(seed=log.seed, lr=log.lr, init_method=log.init))
    for one in fields(AuthorConfig):
        known = (value for settings in found if (value := getattr(settings, one.name)) is not None)
        setattr(folder.config, one.name, next(known, None))
    in_name = {"seed": seed_in_name(folder.path), "lr": rate_in_name(folder.path)}
    taken = {"seed": "seed", "lr": "learning rate"}
    for name, value in in_name.items():
        if value is not None and getattr(folder.config, name) is None:
            setattr(folder.config, name, value)
            folder.notes.append(f"the {taken[name]} is taken from the folder's name, {value:g}.")


def method_of(folder: AuthorFolder) -> str:
    """The method the files name. BERT's `oelm` may be random too, so its init must say which."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    written = (stats.model_type or results.model_type or folder.config.model_type or stats.mode or "").lower()
    name = METHODS.get(written, written.replace("_", "-"))
    if folder.kind == "bert" and name == "oelm-freeze":  # the author's mode `oelm` covers both starts
        return {"orthogonal": "oelm-freeze", "normal": "oelm-random"}.get(_start_of_qk(folder), "unknown")
    return name or "unknown"


def _start_of_qk(folder: AuthorFolder) -> str:
    in_stats = folder.stats.init_method if folder.stats else None
    return (in_stats or folder.config.init_method or "").lower()


def config_of(folder: AuthorFolder, catalogue: Catalogue) -> dict[str, Any]:
    """Our configuration with the parts that are known; the rest is absent."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    config = folder.config
    dataset = stats.dataset or results.dataset or config.dataset
    network = _network(folder)
    family, model = model_section(network, catalogue)
    if "name" not in model and config.model_name:
        model["name"] = config.model_name
    classes, length = config.classes or network.classes, config.max_length or config.positions
    data = {
        "name": dataset.lower() if dataset else None,
        "metric": folder.metric,
        "classes": classes if folder.metric == "accuracy" else None,
        "max_length": length,
    }
    return {
        "imported": True,
        "id": folder.recipe,
        "title": folder.recipe,
        "family": family or (folder.kind if folder.kind in ("gpt", "bert") else "unknown"),
        "baseline": None,
        "model": model | config.named("dropout"),
        "data": {name: value for name, value in data.items() if value is not None},
        "method": _method(folder),
        "train": config.named(*TRAIN),
        "clock": None,
    }


def _network(folder: AuthorFolder) -> Network:
    """By the checkpoint's tensors; else by the sizes that the settings name. Heads are told by the settings alone."""
    found = recognise(folder.counts.shapes) if folder.counts else None
    if found is None:
        return Network(**folder.config.named(*SHAPE))
    return dataclasses.replace(found, heads=folder.config.heads)


def _method(folder: AuthorFolder) -> dict[str, Any]:
    name, start = method_of(folder), INITS.get(_start_of_qk(folder))
    if start is None or (name == "baseline" and folder.kind != "bert"):
        return {"name": name}  # only the BERT program starts a baseline's Q/K anew too
    return {"name": name, **start, **({"freeze": FREEZES[name]} if name in FREEZES else {})}
