"""The keys of `$OELM_HOME/slurm.yaml`, of a preset's `slurm:` and of `--slurm key=value`."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from oelm_core.config.sections import Positive
from oelm_core.config.validation import first_problem

_TIME = re.compile(r"^(\d+|\d+:\d+(:\d+)?|\d+-\d+(:\d+(:\d+)?)?|UNLIMITED)$", re.IGNORECASE)
_MEMORY = re.compile(r"^\d+[KMGT]?B?$", re.IGNORECASE)


def _as_text(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None if value in ("", "none", "None") else value


def _one_line(value: str | None) -> str | None:
    if value and "\n" in value:
        raise ValueError("a line break has no place here")
    return value


Text = Annotated[str | None, BeforeValidator(_as_text), AfterValidator(_one_line)]


def _time_limit(value: str | None) -> str | None:
    if value is not None and not _TIME.match(value):
        raise ValueError(f"'{value}' is not a time limit; write minutes, hours:minutes:seconds or days-hours")
    return value


def _memory(value: str | None) -> str | None:
    if value is not None and not _MEMORY.match(value):
        raise ValueError(f"'{value}' is not an amount of memory; write for example 32G")
    return value.upper().removesuffix("B") if value else value


def _without_count(value: str | None) -> str | None:
    if value is not None and re.search(r":\d+$", value):
        raise ValueError(f"'{value}' ends in a count; write {value.rpartition(':')[0]}, and the count as --per-run")
    return value


def _words(value: str | None) -> str | None:
    try:
        shlex.split(value or "")
    except ValueError:
        raise ValueError(f"'{value}' has a quote that is not closed") from None
    return value


def _options(value: list[str]) -> list[str]:
    lines = [line.strip().removeprefix("#SBATCH").strip() for line in value]
    for line in lines:
        if not line.startswith("-"):
            raise ValueError(f"'{line}' is no option of sbatch; write for example --exclude=node3")
        _one_line(line)
    return lines


class Site(BaseModel):
    """How jobs are asked for. What is not said is left to the cluster's own defaults."""

    model_config = ConfigDict(extra="forbid")

    partition: Text = None
    account: Text = None
    qos: Text = None
    constraint: Text = None
    """Node features, for example a100&nvlink: arms that compare should run on one kind of node."""
    gres: Annotated[Text, AfterValidator(_without_count)] = "gpu"
    """Kind of card: gpu, or with its type gpu:a100. The count is --per-run. none asks for no cards."""
    cards_by: Literal["gres", "gpus-per-node", "gpus"] = "gres"
    """Which option of sbatch asks for cards at this site."""
    cpus: Positive = 4
    """Cores for each card (or for each CPU process)."""
    memory: Annotated[Text, AfterValidator(_memory)] = None
    """Memory of a node for the job: 32G."""
    memory_per_card: Annotated[Text, AfterValidator(_memory)] = None
    """Memory for each card of a node (or for each CPU process), instead of `memory`."""
    time: Annotated[Text, AfterValidator(_time_limit)] = None
    """Time limit: minutes, hours:minutes:seconds or days-hours:minutes. At the limit a run saves and queues again."""
    nodes: Positive = 1
    """Nodes of one run, unless --nodes says; each gives --per-run cards."""
    interface: Text = None
    """Network interface by which ranks of several nodes talk: ib0. Unless said, gloo and NCCL choose."""
    setup: list[str] = []
    """Shell lines before the run: module load, conda activate, export."""
    extra: Annotated[list[str], AfterValidator(_options)] = []
    """Further options of sbatch, one a line: --exclude=node3."""
    python: Annotated[Text, AfterValidator(_words)] = None
    """Interpreter on the nodes, or a command of several words that runs one in a container. Unless said, oelm's own."""
    max_jobs: Positive | None = None
    """Runs of this OELM_HOME that may run at once; the others wait for them in chains."""
    arrays: bool = True
    """Whether several runs with the same requirements are submitted as one job array, where Slurm has arrays."""
    max_requeues: Annotated[int, Field(ge=0)] = 50
    """How often one job may save at its time limit and queue again."""
    signal_seconds: Annotated[int, Field(ge=10, le=65535)] = 120
    """Seconds before the limit at which a run is told to save."""

    @model_validator(mode="after")
    def _one_memory(self) -> Site:
        if self.memory and self.memory_per_card:
            raise ValueError("memory and memory_per_card are both given; write one of them")
        return self


def check_settings(raw: dict[str, Any]) -> dict[str, Any]:
    """A preset's `slurm:` as it is, or a ValueError with a sentence when it cannot be used."""
    try:
        Site.model_validate(raw)
    except ValidationError as error:
        raise ValueError(first_problem(error, Site)) from None
    return raw
