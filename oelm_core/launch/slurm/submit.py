"""Submitting a run to Slurm: the folder, the script, the intent, sbatch; and submitting it again to continue."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from oelm_core.config.slurm import Site
from oelm_core.errors import BadInput, LabError, Refused
from oelm_core.home import runs_dir
from oelm_core.launch.request import RunRequest, queued_state
from oelm_core.launch.slurm import job_states, submission
from oelm_core.launch.slurm.array import array_limit, write_array
from oelm_core.launch.slurm.commands import Answer, about_names, array_of, call, task_name
from oelm_core.launch.slurm.script import write_script
from oelm_core.launch.slurm.site import check_nodes, explain, load_site
from oelm_core.runs import attempts, ledger
from oelm_core.runs.folder import RunFolder, create, remove_tree
from oelm_core.runs.schema import RunRecord, RunState
from oelm_core.runs.status import ENDED, LIVE
from oelm_core.runs.store import Run, find_run, list_runs

_NOT_SENT = re.compile(
    r"unable to contact|connect failure|connection refused|configuration source|configuration file", re.IGNORECASE
)
"""Troubles before the request left; any other may have lost only the answer."""


class AnswerLost(Refused):
    """sbatch was cut off and Slurm cannot be asked: the job may or may not be there, so the folder stays."""


class _Wanted(NamedTuple):
    """One run that was asked for, with what its job needs."""

    number: int
    request: RunRequest
    device: str
    site: Site

    @property
    def requirements(self) -> tuple[object, ...]:
        """What the tasks of one array have in common."""
        asked = self.request
        return self.site.model_dump_json(), self.device, asked.per_run, asked.after, asked.after_any


def start(request: RunRequest, root: Path | None = None) -> RunFolder:
    """Makes a run folder with its job script and submits it; no folder is left behind when Slurm refuses."""
    return start_all([request], root=root)[0]


def start_all(
    requests: Sequence[RunRequest],
    started: Callable[[RunFolder], object] = lambda folder: None,
    root: Path | None = None,
) -> list[RunFolder]:
    """Submits every run, those with the same requirements as one job array; `started` hears of each that is queued.

    `request.beside` is ignored: Slurm picks the cards.
    """
    root = (root or runs_dir()).absolute()
    wanted = [_wanted(number, request) for number, request in enumerate(requests)]
    if shutil.which("sbatch") is None:
        call("sbatch")  # raises the sentence
    for site in {one.site.model_dump_json(): one.site for one in wanted}.values():
        check_nodes(site)
    made: dict[int, RunFolder] = {}
    for batch in _batches(wanted):
        try:
            folders = _start_batch(batch, root)
        except Refused as refusal:
            if not made:
                raise
            begun = f"{len(made)} of {len(requests)} runs were submitted and stay queued."
            raise Refused(f"{refusal} {begun}") from None
        for one, folder in zip(batch, folders, strict=True):
            made[one.number] = folder
            started(folder)
    return [made[number] for number in sorted(made)]


def _wanted(number: int, request: RunRequest) -> _Wanted:
    site = load_site(request.experiment.slurm, [*request.slurm, *_nodes(request.nodes)])
    return _Wanted(number, request, _device(request.device), site)


def _batches(wanted: list[_Wanted]) -> list[list[_Wanted]]:
    """Arrays of runs that need the same, each as large as Slurm allows; where there are none, run by run in order."""
    groups: dict[tuple[object, ...], list[_Wanted]] = {}
    for one in wanted:
        groups.setdefault(one.requirements if one.site.arrays else (one.number,), []).append(one)
    limit = array_limit() if any(len(group) > 1 for group in groups.values()) else 0
    if limit < 2:
        return [[one] for one in wanted]
    return [group[first : first + limit] for group in groups.values() for first in range(0, len(group), limit)]


def _start_batch(batch: list[_Wanted], root: Path) -> list[RunFolder]:
    """One job, or one array. No folder is left behind when Slurm refuses it."""
    request, site, device = batch[0].request, batch[0].site, batch[0].device
    head = find_run(request.after, root) if request.after else None
    waits_for, unmet = _dependency(head, request.after_any)
    records = [one.request.record("slurm", after=head.id if head else None, beside=None) for one in batch]
    folders: list[RunFolder] = []
    try:
        for record in records:
            folders.append(create(root, record, _queued()))
            write_script(folders[-1], site, device, request.per_run, Path.cwd())
        if unmet:
            for folder in folders:
                folder.write(replace(_queued(), state="stopped", reason="dependency", message=unmet, ended=time.time()))
        elif len(batch) == 1:
            _submit(folders[0], site, waits_for, root)
        else:
            script = write_array(folders, site, device, request.per_run, Path.cwd())
            _submit_array(folders, script, site, waits_for, root)
    except AnswerLost:  # the jobs may be there
        _tell_ledger(folders, records, root)
        raise
    except LabError:
        for folder in folders:
            remove_tree(folder.path)  # no folder that pretends to be queued
        raise
    _tell_ledger(folders, records, root)
    return folders


def _tell_ledger(folders: list[RunFolder], records: list[RunRecord], root: Path) -> None:
    for folder, record in zip(folders, records, strict=True):
        ledger.append(ledger.about_run("launched", folder.id, record), root)


def resume(folder: RunFolder, force: bool = False, settings: Iterable[str] = (), per_run: int | None = None) -> None:
    """Submits a run that ended early again, by the script in its folder (edits count).

    `settings`, or another number of devices on each node, make a new one.
    """
    _refuse_unless_over(folder, force)
    record = folder.read(RunRecord) or RunRecord(config={})
    settings = list(settings)
    site = load_site(record.setting("slurm"), [*_nodes(record.nodes), *settings])
    check_nodes(site)
    if settings or per_run is not None or not submission.script_path(folder).is_file():
        cwd = Path(record.cwd or Path.cwd())
        per_run = per_run or attempts.per_run(folder, record)
        write_script(folder, site, record.devices_asked or "auto", per_run, cwd)
    before = folder.read(RunState)
    try:
        _submit(folder, site, [], folder.path.parent.absolute(), state=_queued(before))
    except AnswerLost:
        raise
    except LabError:
        if before is not None:
            folder.write(before)
        raise
    ledger.append(ledger.about_run("resumed", folder.id, record), folder.path.parent)


def _refuse_unless_over(folder: RunFolder, force: bool) -> None:
    last = submission.last(folder)
    if last is not None and submission.being_sent(last):
        raise Refused(f"{folder.id} is just being submitted; see `oelm runs`.")
    status = job_states.run_status(folder)  # adopts a job whose submission was cut short
    adopted = submission.last(folder)
    if status.state == "queued" and last and last.job is None and adopted and adopted.job is not None:
        raise Refused(f"{folder.id} is already in Slurm as job {adopted.job}; nothing was submitted again.")
    if status.state in LIVE:
        raise Refused(f"{folder.id} is {status.state}; stop it before resuming it. {status.message or ''}".strip())
    if status.state == "finished":
        raise Refused(f"{folder.id} has finished; there is nothing to resume.")
    if status.state == "unknown" and not force:
        raise Refused(f"{folder.id} may still run: {status.message or ''} --force submits it all the same.")


def _submit(folder: RunFolder, site: Site, waits_for: list[str], root: Path, state: RunState | None = None) -> None:
    """Intent first, then sbatch: whatever dies in between, the job is found again by its name, never sent twice."""
    lane, before = choose_lane(site.max_jobs, root, folder.id)
    intent = submission.intend(folder, lane)
    if state is not None:
        folder.write(state)
    job = _send(submission.script_path(folder), intent.name, [*waits_for, *_behind(before)])
    if isinstance(job, Answer):
        submission.withdraw(folder, intent)
        raise Refused(explain(job.error, site))
    submission.record(folder, replace(intent, job=job))


def _submit_array(folders: list[RunFolder], script: Path, site: Site, waits_for: list[str], root: Path) -> None:
    """The same for many. With `max_jobs` the array keeps to it by itself, behind everything that is under way."""
    before = _jobs_under_way(root, {folder.id for folder in folders}) if site.max_jobs else []
    name = f"{folders[0].id}.1"
    intents = [submission.intend(folder, None, task_name(name, task)) for task, folder in enumerate(folders)]
    job = _send(script, name, [*waits_for, *_behind(list(dict.fromkeys(array_of(job) for _, job in before)))])
    for task, (folder, intent) in enumerate(zip(folders, intents, strict=True)):
        if isinstance(job, Answer):
            submission.withdraw(folder, intent)
        else:
            submission.record(folder, replace(intent, job=f"{job}_{task}"))
    if isinstance(job, Answer):
        raise Refused(explain(job.error, site))


def _behind(jobs: list[str]) -> list[str]:
    return ["afterany:" + ":".join(jobs)] if jobs else []


def _send(script: Path, name: str, conditions: list[str]) -> str | Answer:
    """The number of the job; Slurm's answer where there surely is none."""
    options = ["--parsable", f"--job-name={name}"]
    options += [f"--dependency={','.join(conditions)}"] if conditions else []
    answer = call("sbatch", *options, str(script), patience=60)
    job = answer.out.strip().partition(";")[0] if answer.ok else _find(name, answer.error, answer.unreachable)
    return job or answer


def _find(name: str, error: str, unreachable: bool) -> str | None:
    """The job of a submission whose answer was lost; None when there surely is none."""
    if not unreachable or _NOT_SENT.search(error):
        return None
    deadline = time.monotonic() + 30
    while True:
        known = about_names([name, task_name(name, 0)])
        if known.problem is None:
            return next((array_of(job.id) for job in known.jobs.values()), None)
        if time.monotonic() > deadline:
            raise AnswerLost(
                f"Slurm's answer to the submission of {name} was lost ({error}). If the job is there, "
                f"`oelm runs` finds it by its name; if not, `oelm resume` submits it."
            )
        time.sleep(2.0)


def _dependency(head: Run | None, after_any: bool) -> tuple[list[str], str | None]:
    """(conditions for sbatch, why it can never start). The runner looks again itself when it starts."""
    if head is None:
        return [], None
    if head.launcher == "slurm":
        head = job_states.overlay([head], job_states.SlurmCache())[0]
    if head.state in ENDED:
        if head.state == "finished" or after_any:
            return [], None
        return [], f"It waited for {head.id}, which ended as {head.state_and_reason}."
    submitted = submission.last(head.folder)
    if head.launcher != "slurm" or submitted is None or submitted.job is None:
        return [], None
    return [f"{'afterany' if after_any else 'afterok'}:{submitted.job}"], None


def _nodes(count: int | None) -> list[str]:
    return [] if count is None else [f"nodes={count}"]


def _device(device: str) -> str:
    kind = device.strip().lower()
    if kind not in ("auto", "cpu"):
        raise BadInput(
            f"--device {device}: under Slurm write auto or cpu; it picks the cards, --per-run says how many."
        )
    return kind


def _queued(before: RunState | None = None) -> RunState:
    """state.json of a run in Slurm's hands; what was reached before stays to be seen."""
    state = queued_state()
    state.launcher = "slurm"
    if before is not None:
        state.step, state.total, state.attempt = before.step, before.total, before.attempt
    return state


def choose_lane(max_jobs: int | None, root: Path, own: str) -> tuple[int | None, list[str]]:
    """`max_jobs`: runs form so many lanes, each a chain of jobs, so that no more than that many run at once.

    (lane, jobs to wait for): the shortest lane, behind everything in it. (None, []) without a cap.

    A job waits for all jobs of its lane, not only for the last: when that one is cancelled while it is pending,
    those before it still hold the lane.
    """
    if max_jobs is None:
        return None, []
    lanes: dict[int, list[str]] = {number: [] for number in range(max_jobs)}
    for lane, job in _jobs_under_way(root, {own}):
        array = array_of(job)
        for number in [lane % max_jobs] if array == job else range(max_jobs):  # an array may fill every lane
            if array not in lanes[number]:
                lanes[number].append(array)
    shortest = min(lanes, key=lambda number: len(lanes[number]))
    return shortest, lanes[shortest]


def _jobs_under_way(root: Path, own: set[str]) -> list[tuple[int, str]]:
    """(lane, job) of every run of this folder that Slurm still has, oldest first."""
    ours = [run for run in reversed(list_runs(root)) if run.launcher == "slurm" and run.id not in own]
    found = []
    for run in job_states.overlay(ours, job_states.SlurmCache()):
        submitted = submission.last(run.folder) if run.state not in ENDED else None
        if submitted is not None and submitted.job is not None:
            found.append((submitted.lane or 0, submitted.job))
    return found
