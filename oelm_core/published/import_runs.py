"""Import of the author's output folders as read-only runs: listed, plotted and compared like our own."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.errors import BadInput, Refused
from oelm_core.published.import_author import Folder, config_of, looks_like_output, read_folder, result_of
from oelm_core.runs.folder import RunFolder, runs_dir, write_json
from oelm_core.runs.store import Run, read_run

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

__all__ = ["Imported", "import_folders"]


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

    One that cannot be imported is handed back as the sentence that says why, and the others go on.
    """
    root = root or runs_dir()
    for path in paths:
        try:
            outputs = _outputs(path)
        except BadInput as why:
            yield why
            continue
        for output in outputs:
            try:
                yield _import(output, catalogue, root)
            except BadInput as why:
                yield why


def _outputs(path: Path) -> list[Path]:
    if not path.is_dir():
        raise BadInput(f"{path}: there is no such folder to import.")
    if looks_like_output(path):
        return [path]
    inner = [folder for folder in sorted(path.rglob("*")) if folder.is_dir() and looks_like_output(folder)]
    if not inner:
        raise BadInput(f"{path}: no timing_stats.json, results.json or training.log in it or below it.")
    return inner


def _import(path: Path, catalogue: Catalogue, root: Path) -> Imported:
    folder = read_folder(path.resolve())
    before = _imported_before(root, folder.fingerprint)
    if before is not None:
        return Imported(read_run(before), False, ())
    config = _with_preset(config_of(folder), folder, catalogue)
    seed = folder.config.get("seed", folder.log.seed)
    result = result_of(folder)
    notes = _unknowns(folder, config, seed)
    created = _created(folder)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    run_id = f"{config['id']}-s{seed or 0}-{stamp}-{folder.fingerprint[:4]}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
        try:
            _fill(draft, folder, config, result, run_id, seed, created, notes)
            draft.chmod(0o755)
            os.rename(draft, root / run_id)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise Refused(f"cannot import {path} into {root}: {error.strerror or error}.") from None
    return Imported(read_run(RunFolder(root / run_id)), True, tuple(notes))


def _imported_before(root: Path, fingerprint: str) -> RunFolder | None:
    for path in root.glob(f"*-{fingerprint[:4]}") if root.is_dir() else ():
        content = RunFolder(path).read_dict("run") or {}
        if content.get("imported") and content["imported"].get("fingerprint") == fingerprint:
            return RunFolder(path)
    return None


def _with_preset(config: dict[str, Any], folder: Folder, catalogue: Catalogue) -> dict[str, Any]:
    """Names the preset when the folder is called by its id and nothing in it speaks against; takes no settings over."""
    name = folder.path.name.lower()
    matching = [
        experiment
        for experiment in catalogue.experiments.values()
        if re.match(rf"{re.escape(experiment.id.lower())}(?![a-z0-9-])", name)
        and config["data"].get("name") in (None, experiment.data.name)
        and config["family"] in ("unknown", experiment.family)
    ]
    if matching:
        chosen = max(matching, key=lambda experiment: len(experiment.id))
        if config["method"]["name"] == "unknown":
            folder.notes.append(f"the method is taken from the folder's name, {chosen.id}.")
            config["method"]["name"] = chosen.method.name
        config |= {"id": chosen.id, "title": chosen.title, "baseline": chosen.baseline}
        return config | _model(folder, catalogue)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.path.name).strip("-.") or "imported"
    return {**config, "id": slug} | _model(folder, catalogue)


def _model(folder: Folder, catalogue: Catalogue) -> dict[str, Any]:
    """The model, when the checkpoint's tensors have the sizes of one in the catalogue."""
    if folder.counts is None:
        return {}
    widths = {shape for shape in folder.counts.shapes.values() if len(shape) == 2}
    for experiment in catalogue.experiments.values():
        shape = experiment.model.shape
        if shape and {(shape.vocab, shape.d_model), (shape.positions, shape.d_model)} <= widths:
            layers = {int(n) for name in folder.counts.shapes for n in re.findall(r"\.(\d+)\.", name)}
            if layers and max(layers) + 1 == shape.layers:
                return {"model": {"name": experiment.model.name, "shape": shape.model_dump()}}
    return {}


def _unknowns(folder: Folder, config: dict[str, Any], seed: int | None) -> list[str]:
    notes = list(folder.notes)
    if seed is None:
        notes.append("the seed is unknown.")
    absent = [label for label, (part, key) in _ASKED.items() if config[part].get(key) in (None, "unknown")]
    if absent:
        notes.append(f"unknown: {', '.join(absent)}.")
    if folder.counts is None:
        notes.append("the number of parameters is unknown.")
    return notes


_ASKED = {
    "data set": ("data", "name"),
    "model": ("model", "name"),
    "method": ("method", "name"),
    "initialisation": ("method", "init"),
    "learning rate": ("train", "lr"),
    "batch": ("train", "batch_size"),
}


def _created(folder: Folder) -> float:
    """When it began, by its log (which names no time zone; taken as UTC), else by its files' age."""
    if folder.log.first is not None:
        return float(folder.log.first)
    ages = [file.stat().st_mtime for file in folder.path.iterdir() if file.is_file()]
    return float(int(min(ages))) if ages else 0.0


def _fill(
    draft: Path,
    folder: Folder,
    config: dict[str, Any],
    result: dict[str, Any],
    run_id: str,
    seed: int | None,
    created: float,
    notes: list[str],
) -> None:
    finished = bool(folder.stats or folder.results) or folder.log.completed
    state = "finished" if finished else "failed" if folder.log.failed else "stopped"
    reason = {"finished": "completed", "failed": "error"}.get(state)
    message = None if finished else "Imported; its files do not say how it ended."
    steps = [record["step"] for record in folder.log.evals]
    step = max(steps, default=int(folder.stats.get("num_steps_measured") or 0))
    origin = {"fingerprint": folder.fingerprint, "from": str(folder.path), "kind": folder.kind, "notes": notes}
    write_json(
        draft / "run.json",
        {"schema": 1, "id": run_id, "preset": config["id"], "study": None, "config": config, "seed": seed}
        | {"config_hash": f"imported-{folder.fingerprint[:8]}", "command": None, "host": None, "created": created}
        | {"git_commit": None, "versions": {}, "devices_asked": None, "launcher": "import", "imported": origin},
    )
    write_json(
        draft / "state.json",
        {"state": state, "reason": reason, "message": message, "host": None, "pid": None, "workers": []}
        | {"devices": [], "step": step, "total": folder.log.total, "started": created, "heartbeat": created},
    )
    for name in ("attempts", "checkpoints"):
        (draft / name).mkdir()
    _write_metrics(draft / "metrics.jsonl", folder, created)
    write_json(draft / "result.json", result)
    if folder.stats:
        write_json(draft / "timing_stats.json", {"imported": True, **result["timing"], **result["seconds"]})
        (draft / "imported").mkdir()
        write_json(draft / "imported" / "timing_stats.json", folder.stats)
    with open(draft / "training.log", "wb") as out:
        for log in folder.logs:
            out.write(log.read_bytes())
    write_json(draft / "notes.json", {"tags": ["imported"], "note": " ".join(notes)})


def _write_metrics(path: Path, folder: Folder, created: float) -> None:
    records = [{"kind": "train", **record} for record in folder.log.train]
    records += [{"kind": "eval", **record} for record in folder.log.evals]
    records.sort(key=lambda record: (record["step"], record["kind"] == "eval"))
    lines = [json.dumps({**record, "t": record.get("t") or created}) for record in records]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
