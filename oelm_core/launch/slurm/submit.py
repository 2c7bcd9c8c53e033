"""Submitting a run to Slurm: the folder, the script, the intent, sbatch; and submitting it again to continue."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from oelm_core.config.slurm import Site
from oelm_core.errors import BadInput, LabError, Refused, refusing
from oelm_core.home import home, runs_dir
from oelm_core.launch.request import RunRequest, queued_state
from oelm_core.launch.slurm import job_states, submission
from oelm_core.launch.slurm.commands import about_names, call
from oelm_core.launch.slurm.job import CARDS_ASKED
from oelm_core.launch.slurm.site import explain, load_site
from oelm_core.launch.spawn import importable
from oelm_core.runs import ledger
from oelm_core.runs.folder import RunFolder, create, remove_tree
from oelm_core.runs.schema import RunRecord, RunState, Submission
from oelm_core.runs.status import ENDED, LIVE
from oelm_core.runs.store import Run, find_run, list_runs

_NOT_SENT = re.compile(r"unable to contact|connect failure|connection refused|configuration source", re.IGNORECASE)
"""Troubles before the request left; any other may have lost only the answer."""


class AnswerLost(Refused):
    """sbatch was cut off and Slurm cannot be asked: the job may or may not be there, so the folder stays."""


def start(request: RunRequest, root: Path | None = None) -> RunFolder:
    """Makes a run folder with its job script and submits it; no folder is left behind when Slurm refuses.

    `request.beside` is ignored: Slurm picks the cards.
    """
    root = (root or runs_dir()).absolute()
    device = _device(request.device)
    site = load_site(request.experiment.slurm, request.slurm)
    if shutil.which("sbatch") is None:
        call("sbatch")  # raises the sentence
    head = find_run(request.after, root) if request.after else None
    record = request.record("slurm", after=head.id if head else None, beside=None)
    folder = create(root, record, _queued())
    try:
        waits_for, unmet = _dependency(head, request.after_any)
        _write_script(folder, site, device, request.per_run, Path.cwd())
        if unmet:
            ended = replace(_queued(), state="stopped", reason="dependency", message=unmet, ended=time.time())
            folder.write(ended)
        else:
            _submit(folder, site, waits_for, root)
    except AnswerLost:  # the job may be there
        ledger.append(ledger.about_run("launched", folder.id, record), root)
        raise
    except LabError:
        remove_tree(folder.path)  # no folder that pretends to be queued
        raise
    ledger.append(ledger.about_run("launched", folder.id, record), root)
    return folder


def resume(folder: RunFolder, force: bool = False, settings: Iterable[str] = ()) -> None:
    """Submits a run that ended early again, by the script in its folder (edits count); `settings` make a new one."""
    _refuse_unless_over(folder, force)
    record = folder.read(RunRecord) or RunRecord(config={})
    settings = list(settings)
    site = load_site(record.setting("slurm"), settings)
    if settings or not submission.script_path(folder).is_file():
        cwd = Path(record.cwd or Path.cwd())
        _write_script(folder, site, record.devices_asked or "auto", record.per_run, cwd)
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
    conditions = [*waits_for, *(["afterany:" + ":".join(before)] if before else [])]
    intent = submission.intend(folder, lane)
    if state is not None:
        folder.write(state)
    options = ["--parsable", f"--job-name={intent.name}"]
    options += [f"--dependency={','.join(conditions)}"] if conditions else []
    answer = call("sbatch", *options, str(submission.script_path(folder)), patience=60)
    job = answer.out.strip().partition(";")[0] if answer.ok else _find(intent, answer.error, answer.unreachable)
    if not job:
        submission.withdraw(folder, intent)
        raise Refused(explain(answer.error, site))
    submission.record(folder, replace(intent, job=job))


def _find(intent: Submission, error: str, unreachable: bool) -> str | None:
    """The job of a submission whose answer was lost; None when there surely is none."""
    if not unreachable or _NOT_SENT.search(error):
        return None
    deadline = time.monotonic() + 30
    while True:
        known = about_names([intent.name])
        if known.problem is None:
            found = known.jobs.get(intent.name)
            return found.id if found else None
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
        head = job_states.overlay([head], job_states.SlurmCache())[0]
    if head.state in ENDED:
        if head.state == "finished" or after_any:
            return [], None
        return [], f"It waited for {head.id}, which ended as {head.state_and_reason}."
    submitted = submission.last(head.folder)
    if head.launcher != "slurm" or submitted is None or submitted.job is None:
        return [], None
    return [f"{'afterany' if after_any else 'afterok'}:{submitted.job}"], None


def _device(device: str) -> str:
    kind = device.strip().lower()
    if kind not in ("auto", "cpu"):
        raise BadInput(
            f"--device {device}: under Slurm write auto or cpu; it picks the cards, --per-run says how many."
        )
    return kind


def _write_script(folder: RunFolder, site: Site, device: str, per_run: int, cwd: Path) -> None:
    text = render_script(site, folder, device=device, per_run=per_run, cwd=cwd)
    path = submission.script_path(folder)
    with refusing(f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


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
    for lane, job in _jobs_under_way(root, own):
        lanes[lane % max_jobs].append(job)
    shortest = min(lanes, key=lambda number: len(lanes[number]))
    return shortest, lanes[shortest]


def _jobs_under_way(root: Path, own: str) -> list[tuple[int, str]]:
    """(lane, job) of every run of this folder that Slurm still has, oldest first."""
    ours = [run for run in reversed(list_runs(root)) if run.launcher == "slurm" and run.id != own]
    found = []
    for run in job_states.overlay(ours, job_states.SlurmCache()):
        submitted = submission.last(run.folder) if run.state not in ENDED else None
        if submitted is not None and submitted.job is not None:
            found.append((submitted.lane or 0, submitted.job))
    return found


def render_script(
    site: Site,
    folder: RunFolder,
    *,
    device: str,
    per_run: int,
    cwd: Path,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
) -> str:
    """The script; `device` is auto or cpu, for Slurm picks the cards."""
    interpreter = shlex.split(site.python) if site.python else [python]
    command = [*interpreter, "-m", "oelm_core.launch.runner", f"--run-folder={folder.path}"]
    cards = per_run if device != "cpu" and site.gres else 0
    options = _options(site, folder, cards, per_run, cwd)
    lines = [
        "#!/bin/bash",
        f"# Run {folder.id} of OELM Lab. Edit it and submit it again with `oelm resume {folder.id}`,",
        "# or by hand with sbatch: it continues from the newest checkpoint.",
        *(f"#SBATCH {option}" for option in options),
        "",
        *(f"export {key}={shlex.quote(value)}" for key, value in _variables(site, folder, cards, environment).items()),
        *([""] if site.setup else []),
        *site.setup,
        "",
        "# exec: the runner takes this shell's place, so Slurm's signals reach it",
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def _options(site: Site, folder: RunFolder, cards: int, per_run: int, cwd: Path) -> list[str]:
    """`cards`: of one node; 0 for a run on processors."""
    output = str(folder.path / "slurm" / "job.log").replace("%", "%%")
    options = [
        f"--job-name={folder.id}",
        f"--chdir={_quoted(str(cwd))}",
        f"--output={_quoted(output)}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR2@{site.signal_seconds}",
        "--kill-on-invalid-dep=yes",
        f"--nodes={site.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus * per_run}",
    ]
    if cards:
        options.append(_cards_option(site, cards))
    if site.memory_per_card:
        options.append(_memory_option(site.memory_per_card, cards, per_run, by_card=site.cards_by != "gres"))
    for name, value in (
        ("partition", site.partition),
        ("account", site.account),
        ("qos", site.qos),
        ("constraint", site.constraint),
        ("mem", site.memory),
        ("time", site.time),
    ):
        if value is not None:
            options.append(f"--{name}={_quoted(value)}")
    return [*options, *site.extra]


def _cards_option(site: Site, cards: int) -> str:
    """As the site has it; a type written as gpu:a100 is a100:2 for --gpus, which knows of nothing but cards."""
    if site.cards_by == "gres":
        return f"--gres={site.gres}:{cards}"
    kind = (site.gres or "").partition(":")[2]
    count = cards * site.nodes if site.cards_by == "gpus" else cards
    return f"--{site.cards_by}={kind + ':' if kind else ''}{count}"


def _memory_option(amount: str, cards: int, per_run: int, *, by_card: bool) -> str:
    """--mem-per-gpu where cards are asked for by --gpus; --mem counts for a node, so there it is multiplied out."""
    if cards and by_card:
        return f"--mem-per-gpu={amount}"
    digits = amount.rstrip("KMGT")
    return f"--mem={int(digits) * per_run}{amount[len(digits) :]}"


def _variables(site: Site, folder: RunFolder, cards: int, environment: dict[str, str] | None) -> dict[str, str]:
    """What the runner must know on the node, whoever submits the script and from where."""
    ours = importable(dict(os.environ) if environment is None else environment)
    variables: dict[str, str] = {key: ours[key] for key in ("PYTHONPATH", "PYTHONSAFEPATH") if key in ours}
    variables["OELM_HOME"] = str(home())
    variables["OELM_JOB_OF"] = folder.id
    variables["OELM_MAX_REQUEUES"] = str(site.max_requeues)
    variables[CARDS_ASKED] = str(cards)
    return variables


def _quoted(text: str) -> str:
    """sbatch reads quotes in its option lines, but knows nothing of a shell."""
    return f'"{text}"' if any(letter.isspace() or letter in "#'" for letter in text) else text
