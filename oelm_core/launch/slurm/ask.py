"""Asks Slurm about many jobs at once, in the order squeue, scontrol, sacct; works where there is no sacct."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from typing import NamedTuple

from oelm_core.launch.slurm.command import Answer, call
from oelm_core.launch.slurm.job_words import Word

_FORMAT = "%i|%T|%r|%S|%L|%N|%E|%j"  # the name last: it alone may hold a bar
_FIELD = re.compile(r"(?:^|\s)(JobId|JobState|Reason|StartTime|NodeList|ExitCode|JobName)=(\S*)")
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)


class Told(NamedTuple):
    """Slurm's words by job id; a job that is missing is one Slurm no longer knows, unless it is silent."""

    words: dict[str, Word]
    silence: str | None = None
    """Why Slurm could not be asked; None when it answered."""


def about_jobs(jobs: Iterable[str], patience: float = 10.0) -> Told:
    """One squeue for all; scontrol for details of those that failed or are missing there; sacct for the rest."""
    wanted = list(dict.fromkeys(jobs))
    if not wanted:
        return Told({})
    answer = call("squeue", "-h", "-t", "all", f"--jobs={','.join(wanted)}", "-o", _FORMAT, patience=patience)
    if not answer.ok and not _UNKNOWN_JOB.search(answer.error):
        return Told({}, _why_silent(answer))
    words = {word.job: word for word in parse_squeue(answer.out) if word.job in wanted}
    unclear = [job for job in wanted if job not in words or words[job].state == "FAILED"]
    if unclear:
        details = call("scontrol", "-o", text="".join(f"show job {job}\n" for job in unclear), patience=patience)
        if details.unreachable:
            return Told(words, _why_silent(details))
        words.update((word.job, word) for word in parse_scontrol(details.out) if word.job in unclear)
    forgotten = [job for job in wanted if job not in words]
    if forgotten and shutil.which("sacct"):
        fields = "--format=JobID,State,ExitCode,NodeList,JobName"
        answer = call("sacct", "-n", "-P", "-X", "-j", ",".join(forgotten), fields, patience=patience)
        words.update((word.job, word) for word in parse_sacct(answer.out) if word.job in forgotten)
    return Told(words)


def about_names(names: Iterable[str], patience: float = 10.0) -> Told:
    """The jobs that carry these names, by name: how a submission whose answer was lost is found again."""
    wanted = list(names)
    if not wanted:
        return Told({})
    answer = call("squeue", "-h", "-t", "all", f"--name={','.join(wanted)}", "-o", _FORMAT, patience=patience)
    if not answer.ok:
        return Told({}, _why_silent(answer))
    words = {word.name: word for word in parse_squeue(answer.out) if word.name in wanted}
    missing = [name for name in wanted if name not in words]
    if missing and shutil.which("sacct"):
        fields = "--format=JobID,State,ExitCode,NodeList,JobName%200"
        since = "--starttime=now-30days"
        answer = call("sacct", "-n", "-P", "-X", since, f"--name={','.join(missing)}", fields, patience=patience)
        words.update((word.name, word) for word in parse_sacct(answer.out) if word.name in missing)
    return Told(words)


def parse_squeue(text: str) -> list[Word]:
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|", 7)
        if len(parts) == 8:
            job, state, reason, start, left, node, waits_for, name = parts
            waits_for = re.sub(r"\([^)]*\)", "", waits_for)  # "(unfulfilled)" after each
            found.append(Word(job, state, reason, _seconds(start), left, _known(node), name, _known(waits_for)))
    return found


def parse_scontrol(text: str) -> list[Word]:
    """Lines of `scontrol -o show job`."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "JobId" in fields and "JobState" in fields:
            found.append(
                Word(
                    fields["JobId"],
                    fields["JobState"],
                    fields.get("Reason", ""),
                    _seconds(fields.get("StartTime", "")),
                    "",
                    _known(fields.get("NodeList", "")),
                    fields.get("JobName", ""),
                    "",
                    fields.get("ExitCode", ""),
                )
            )
    return found


def parse_sacct(text: str) -> list[Word]:
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|", 4)
        if len(parts) == 5 and parts[1].split():
            job, state, code, node, name = parts  # the state may be "CANCELLED by 1000"
            found.append(Word(job, _whole_state(state.split()[0]), node=_known(node), name=name, code=code))
    return found


def _whole_state(text: str) -> str:
    """sacct cuts long states short: OUT_OF_ME+ is OUT_OF_MEMORY."""
    if not text.endswith("+"):
        return text
    long = ("OUT_OF_MEMORY", "CANCELLED", "COMPLETED", "COMPLETING", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
    return next((state for state in long if state.startswith(text[:-1])), text[:-1])


def _why_silent(answer: Answer) -> str:
    return answer.error or "squeue failed without a word"


def _seconds(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _known(text: str) -> str:
    return "" if text in ("(null)", "None", "None assigned", "N/A") else text
