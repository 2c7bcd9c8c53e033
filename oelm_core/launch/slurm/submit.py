"""Handing a run to Slurm: the folder, the script, the intent, sbatch; and handing it over again to go on."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from oelm_core.config import Experiment, as_dict
from oelm_core.config.slurm import Site
from oelm_core.errors import BadInput, LabError, Refused
from oelm_core.launch.local import describe, queued
from oelm_core.launch.slurm import ask, job_states, lanes, script, submission
from oelm_core.launch.slurm.command import call
from oelm_core.launch.slurm.rejection import explain
from oelm_core.launch.slurm.site import load_site
from oelm_core.launch.slurm.submission import Submission
from oelm_core.runs.folder import RunFolder, create_from, remove_tree, runs_dir
from oelm_core.runs.status import ENDED, LIVE
from oelm_core.runs.store import Run, find_run

_NOT_SENT = re.compile(r"unable to contact|connect failure|connection refused|configuration source", re.IGNORECASE)
"""Silence before the request left; any other silence may have lost only the answer."""


class AnswerLost(Refused):
    """sbatch was cut off and Slurm cannot be asked: the job may or may not be there, so the folder stays."""


def start(
    experiment: Experiment,
    *,
    seed: int | None = None,
    device: str = "auto",
    per_run: int = 1,
    study: str | None = None,
    after: str | None = None,
    after_any: bool = False,
    pause: float = 0.0,
    beside: str | None = None,
    command: list[str] | None = None,
    root: Path | None = None,
    overrides: Iterable[str] = (),
) -> RunFolder:
    """Makes a run folder with its job script and submits it; no folder is left behind when Slurm refuses.

    `overrides` are `--slurm key=value` texts. `beside` is accepted and ignored: Slurm picks the cards.
    """
    root = (root or runs_dir()).absolute()
    asked = _device(device)
    site = load_site(experiment.slurm, overrides)
    if shutil.which("sbatch") is None:
        call("sbatch")  # raises the sentence
    head = find_run(after, root) if after else None
    config = {**as_dict(experiment), "seed": experiment.seed if seed is None else seed}
    request = {
        "devices_asked": asked,
        "per_run": per_run,
        "after": head.id if head else None,
        "after_any": after_any,
        "pause": pause,
        "beside": None,
        "launcher": "slurm",
        "worker": os.environ.get("OELM_WORKER"),
    }
    content = describe(experiment.id, study, config, request, command)
    folder = create_from(root, experiment.id, config["seed"], {"run": content, "state": _queued()})
    try:
        waits_for, unmet = _dependency(head, after_any)
        _write_script(folder, site, asked, per_run, Path.cwd())
        if unmet:
            _end(folder, unmet)
            return folder
        _submit(folder, site, waits_for, root)
    except AnswerLost:
        raise
    except LabError:
        remove_tree(folder.path)  # no folder that pretends to be queued
        raise
    return folder


def start_study(
    study: str,
    arms: Sequence[Experiment],
    seeds: Sequence[int],
    *,
    started: Callable[[RunFolder], None] = lambda folder: None,
    **options: Any,
) -> list[RunFolder]:
    """Submits every arm of every seed, arms interleaved: A B A B. `started` hears of each; options as for `start`."""
    folders: list[RunFolder] = []
    for seed in seeds:
        for arm in arms:
            try:
                folder = start(arm, seed=seed, study=study, **options)
            except Refused as refused:
                if not folders:
                    raise
                total = len(seeds) * len(arms)
                raise Refused(f"{refused} {len(folders)} of {total} runs were submitted and stay queued.") from None
            folders.append(folder)
            started(folder)
    return folders


def resume(
    run: Run | RunFolder, force: bool = False, *, overrides: Iterable[str] = (), root: Path | None = None
) -> RunFolder:
    """Submits a run that ended early again, with the script in its folder (edits count) or, if overridden, anew."""
    folder = run if isinstance(run, RunFolder) else run.folder
    _refuse_unless_over(folder, force)
    content = folder.read_dict("run") or {}
    overrides = list(overrides)
    site = load_site((content.get("config") or {}).get("slurm"), overrides)
    if overrides or not submission.script_path(folder).is_file():
        cwd = Path(str(content.get("cwd") or Path.cwd()))
        asked = str(content.get("devices_asked") or "auto")
        _write_script(folder, site, asked, int(content.get("per_run") or 1), cwd)
    before = folder.read_dict("state")
    try:
        _submit(folder, site, [], (root or folder.path.parent).absolute(), state=_queued(before))
    except AnswerLost:
        raise
    except LabError:
        if before is not None:
            folder.write_dict("state", before)
        raise
    return folder


def _refuse_unless_over(folder: RunFolder, force: bool) -> None:
    last = submission.last(folder)
    if last is not None and last.being_sent:
        raise Refused(f"{folder.id} is just being submitted; see `oelm runs`.")
    truth = job_states.run_status(folder)  # adopts a job whose submission was cut short
    if truth.state in LIVE and truth.state == "queued" and last is not None and last.job is None:
        adopted = submission.last(folder)
        if adopted is not None and adopted.job is not None:
            raise Refused(f"{folder.id} is already in Slurm as job {adopted.job}; nothing was submitted again.")
    if truth.state in LIVE:
        raise Refused(f"{folder.id} is {truth.state}; stop it before resuming it. {truth.message or ''}".strip())
    if truth.state == "finished":
        raise Refused(f"{folder.id} has finished; there is nothing to resume.")
    if truth.state == "unknown" and not force:
        raise Refused(f"{folder.id} may still run: {truth.message or ''} --force submits it all the same.")


def _submit(
    folder: RunFolder, site: Site, waits_for: list[str], root: Path, state: dict[str, Any] | None = None
) -> Submission:
    """Intent first, then sbatch: whatever dies in between, the job is found again by its name, never sent twice."""
    lane, before = lanes.choose(site.max_jobs, root, folder.id)
    conditions = [*waits_for, *(["afterany:" + ":".join(before)] if before else [])]
    intent = submission.intend(folder, lane)
    if state is not None:
        folder.write_dict("state", state)
    options = ["--parsable", f"--job-name={intent.name}"]
    options += [f"--dependency={','.join(conditions)}"] if conditions else []
    answer = call("sbatch", *options, str(submission.script_path(folder)), patience=60)
    job = answer.out.strip().partition(";")[0] if answer.ok else _find(intent, answer.error, answer.unreachable)
    if not job:
        submission.withdraw(folder, intent)
        raise Refused(explain(answer.error, site))
    handed = dataclasses.replace(intent, job=job)
    submission.record(folder, handed)
    return handed


def _find(intent: Submission, error: str, unreachable: bool) -> str | None:
    """The job of a submission whose answer was lost; None when there surely is none."""
    if not unreachable or _NOT_SENT.search(error):
        return None
    deadline = time.monotonic() + 30
    while True:
        told = ask.about_names([intent.name])
        if told.silence is None:
            found = told.words.get(intent.name)
            return found.job if found else None
        if time.monotonic() > deadline:
            raise AnswerLost(
                f"Slurm's answer to the submission of {intent.name} was lost ({error}). If the job is there, "
                f"`oelm runs` finds it by its name; if not, `oelm resume` submits it."
            )
        time.sleep(2.0)


def _dependency(head: Run | None, after_any: bool) -> tuple[list[str], str | None]:
    """(conditions for sbatch, why it can never start). The runner looks again itself when it starts."""
    if head is None:
        return [], None
    if head.launcher == "slurm":
        head = job_states.overlay([head], job_states.Desk())[0]
    if head.state in ENDED:
        if head.state == "finished" or after_any:
            return [], None
        return [], f"It waited for {head.id}, which ended as {head.state}{f' ({head.reason})' if head.reason else ''}."
    handed = submission.last(head.folder)
    if head.launcher != "slurm" or handed is None or handed.job is None:
        return [], None
    return [f"{'afterany' if after_any else 'afterok'}:{handed.job}"], None


def _device(device: str) -> str:
    asked = device.strip().lower()
    if asked not in ("auto", "cpu"):
        raise BadInput(
            f"--device {device}: under Slurm write auto or cpu; it picks the cards, --per-run says how many."
        )
    return asked


def _write_script(folder: RunFolder, site: Site, device: str, per_run: int, cwd: Path) -> None:
    text = script.render(site, folder, device=device, per_run=per_run, cwd=cwd)
    path = submission.script_path(folder)
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}.") from None


def _queued(before: dict[str, Any] | None = None) -> dict[str, Any]:
    """state.json of a run in Slurm's hands; what was reached before stays to be seen."""
    kept: dict[str, Any] = {key: before[key] for key in ("step", "total", "attempt") if before and key in before}
    return {**queued(), **kept, "launcher": "slurm"}


def _end(folder: RunFolder, why: str) -> None:
    state = {**_queued(), "state": "stopped", "reason": "dependency", "message": why, "ended": time.time()}
    folder.write_dict("state", state)
