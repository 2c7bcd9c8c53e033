"""Import of output folders as read-only runs, listed, plotted and compared like our own.

They are of the author's programs, or of a Trainer, TensorBoard, W&B or MLflow.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from oelm_core.compare.settings import shown
from oelm_core.errors import BadInput
from oelm_core.home import runs_dir
from oelm_core.published.import_author import AuthorFolder, config_of, looks_like_output, read_folder
from oelm_core.published.import_draft import Draft
from oelm_core.published.import_logged import draft_of
from oelm_core.published.import_names import without_rate
from oelm_core.published.import_scores import result_of
from oelm_core.published.import_tools import read_tool, tool_of
from oelm_core.runs import ledger
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.schema import Notes, Origin, RunRecord, RunState, encode_file, encode_metric, setting
from oelm_core.runs.store import Run, read_run

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


@dataclass(frozen=True)
class Imported:
    """One folder's run: new, or the one it became before. `notes` say what could not be known."""

    run: Run
    created: bool
    notes: tuple[str, ...]


def import_folders(
    paths: Iterable[Path], catalogue: Catalogue, root: Path | None = None
) -> Iterator[Imported | BadInput]:
    """Each output folder, or each inside a folder of them, as a run; importing again changes nothing.

    One that cannot be imported is handed back as the sentence that says why, and the others go on. All are read before
    the first is written: what is a sweep shows only among several.
    """
    root = root or runs_dir()
    read = [found for path in paths for found in _read(path, catalogue)]
    sweeps = _sweeps([found for found in read if not isinstance(found, BadInput)])
    for found in read:
        if isinstance(found, BadInput):
            yield found
        else:
            yield _import(found, sweeps.get(_sweep_hash(found), []), root)


def _read(path: Path, catalogue: Catalogue) -> Iterator[Draft | BadInput]:
    try:
        outputs = _outputs(path)
    except BadInput as why:
        yield why
        return
    for output, kind in outputs:
        try:
            place = output.resolve()
            drafts = [draft_of(run, catalogue) for run in read_tool(place, kind)] if kind else []
            drafts = drafts or [_of_author(read_folder(place), catalogue)]
        except BadInput as why:
            yield why
            continue
        for draft in drafts:
            draft.config = _with_preset(draft, catalogue)
            draft.notes = [*draft.notes, *_unknowns(draft)]
            yield draft


def _outputs(path: Path) -> list[tuple[Path, str | None]]:
    """Folders to import, each with the tool that wrote it; None for the author's programs."""
    if not path.is_dir():
        raise BadInput(f"{path}: there is no such folder to import.")
    found = [*_found_below(path)]
    if not found:
        raise BadInput(
            f"{path}: no timing_stats.json, results.json or training.log in it or below it, no trainer_state.json of a"
            " Trainer, and no run of TensorBoard, W&B or MLflow."
        )
    return found


def _found_below(path: Path) -> Iterator[tuple[Path, str | None]]:
    """The folder itself, else those below it in their order. What lies inside a tool's run is of that run."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            is_author = looks_like_output(folder)
            kind = None if is_author else tool_of(folder)
            inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:  # not for us to read
            continue
        if is_author or kind:
            yield folder, kind
        if not kind and not (is_author and folder == path):
            waiting += map(Path, reversed(inner))


def _of_author(folder: AuthorFolder, catalogue: Catalogue) -> Draft:
    """A folder of the author's programs."""
    result, created = result_of(folder), _created(folder)
    files = {}
    if folder.stats:
        ours = {**asdict(result.timing), **asdict(result.seconds)}
        known = {key: value for key, value in ours.items() if value is not None}
        files["timing_stats.json"] = encode_file({"imported": True, **known})
        files["imported/timing_stats.json"] = folder.timing_file
    return Draft(
        path=folder.path,
        kind=folder.kind,
        fingerprint=folder.fingerprint,
        recipe=folder.recipe,
        config=config_of(folder, catalogue),
        result=result,
        state=_state(folder, created),
        created=created,
        seed=folder.seed,
        lines=sorted([*folder.log.train, *folder.log.evals], key=lambda line: (line.step, line.kind == "eval")),
        notes=folder.notes,
        log=b"".join(folder.logs),
        files=files,
    )


def _import(draft: Draft, rates: list[float], root: Path) -> Imported:
    before = _imported_before(root, draft.fingerprint)
    if before is not None:
        return Imported(read_run(before), False, ())
    config, notes = draft.config, list(draft.notes)
    if rates:
        which = ", ".join(shown("lr", rate) for rate in rates)
        notes.append(f"a sweep: {len(rates)} learning rates ({which}) of one recipe; the best is the best of them.")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(draft.created))
    record = RunRecord(
        id=f"{config['id']}-s{draft.seed or 0}-{stamp}-{draft.fingerprint[:4]}",
        preset=config["id"],
        config=config,
        config_hash=_recipe_hash(config, draft.recipe),
        seed=draft.seed,
        devices_asked=None,
        launcher="import",
        created=draft.created,
        imported=Origin(draft.fingerprint, str(draft.path), draft.kind, notes, rates),
    )
    made = create(root, record, draft.state, lambda folder: _fill(folder, draft, notes))
    run = read_run(made)
    end = ledger.LedgerEnd(run.state, run.reason, run.metric_name, run.metric_value)
    ledger.append(ledger.about_run("imported", run.id, record, end), root)
    return Imported(run, True, tuple(notes))


_DECIDING = ("data.name", "method.name", "model.name", "train.lr", "train.batch_size")


def _recipe_hash(config: dict[str, Any], name: str) -> str:
    """One for all replicates of a recipe. Where the files do not tell all of it, the folders' names must agree."""
    told = all(setting(config, key, "unknown") != "unknown" for key in _DECIDING)
    lasts = setting(config, "train.epochs") or setting(config, "train.max_steps")
    kept = {part: config[part] for part in ("family", "model", "data", "method", "train")}
    text = json.dumps({**kept, "name": None if told and lasts else name.lower()}, sort_keys=True)
    return f"imported-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _sweep_hash(draft: Draft) -> str:
    """As `_recipe_hash`, whatever the learning rate."""
    train = {key: value for key, value in draft.config["train"].items() if key != "lr"}
    return _recipe_hash(draft.config | {"train": train}, without_rate(draft.recipe))


def _sweeps(drafts: Sequence[Draft]) -> dict[str, list[float]]:
    """Hash of a recipe -> its learning rates, where there are several."""
    rates: dict[str, set[float]] = {}
    for draft in drafts:
        if (rate := setting(draft.config, "train.lr")) is not None:
            rates.setdefault(_sweep_hash(draft), set()).add(rate)
    return {recipe: sorted(found) for recipe, found in rates.items() if len(found) > 1}


def _imported_before(root: Path, fingerprint: str) -> RunFolder | None:
    for path in root.glob(f"*-{fingerprint[:4]}"):
        record = RunFolder(path).read(RunRecord)
        if record and record.imported and record.imported.fingerprint == fingerprint:
            return RunFolder(path)
    return None


def _with_preset(draft: Draft, catalogue: Catalogue) -> dict[str, Any]:
    """Names the preset when the run is called by its id and nothing in it speaks against; takes no settings over."""
    config, name = draft.config, draft.recipe.lower()
    matching = [
        experiment
        for experiment in catalogue.experiments.values()
        if re.match(rf"{re.escape(experiment.id.lower())}(?![a-z0-9-])", name)
        and config["data"].get("name") in (None, experiment.data.name)
        and config["family"] in ("unknown", experiment.family)
        and setting(config, "model.name") in (None, experiment.model.name)
    ]
    if not matching:
        return config | {"id": re.sub(r"[^A-Za-z0-9._-]+", "-", draft.recipe)[:100].strip("-.") or "imported"}
    chosen = max(matching, key=lambda experiment: len(experiment.id))
    if config["method"]["name"] == "unknown":
        draft.notes.append(f"the method is taken from the folder's name, {chosen.id}.")
        config["method"]["name"] = chosen.method.name
    return config | {"id": chosen.id, "title": chosen.title, "baseline": chosen.baseline}


_WANTED = {
    "data set": "data.name",
    "model": "model.name",
    "method": "method.name",
    "initialisation": "method.init",
    "learning rate": "train.lr",
    "batch": "train.batch_size",
}


def _unknowns(draft: Draft) -> list[str]:
    notes = []
    if draft.seed is None:
        notes.append("the seed is unknown.")
    absent = [label for label, key in _WANTED.items() if setting(draft.config, key, "unknown") == "unknown"]
    if absent:
        notes.append(f"unknown: {', '.join(absent)}.")
    if draft.result.parameters.total is None:
        notes.append("the number of parameters is unknown.")
    return notes


def _created(folder: AuthorFolder) -> float:
    """When it began, by its log (which names no time zone; taken as UTC), else by its files' age."""
    if folder.log.first is not None:
        return float(folder.log.first)
    ages = [file.stat().st_mtime for file in folder.path.iterdir() if file.is_file()]
    return float(int(min(ages))) if ages else 0.0


def _state(folder: AuthorFolder, created: float) -> RunState:
    finished = folder.stats is not None or folder.results is not None or folder.log.completed
    state = "finished" if finished else "failed" if folder.log.failed else "stopped"
    measured = folder.stats.num_steps_measured if folder.stats else None
    return RunState(
        state=state,
        reason={"finished": "completed", "failed": "error"}.get(state),
        message=None if finished else "Imported; its files do not say how it ended.",
        step=max((line.step for line in folder.log.evals), default=measured or 0),
        total=folder.log.total,
        started=created,
        heartbeat=created,
    )


def _fill(folder: RunFolder, draft: Draft, notes: list[str]) -> None:
    folder.write(draft.result)
    folder.write(Notes(tags=["imported"], note=" ".join(notes)))
    for line in draft.lines:
        line.t = line.t or draft.created
    folder.metrics.write_bytes(b"".join(map(encode_metric, draft.lines)))
    folder.log.write_bytes(draft.log)
    for name, content in draft.files.items():
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_bytes(content)
