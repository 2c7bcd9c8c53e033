"""The keys of `$OELM_HOME/slurm.yaml`, of a preset's `slurm:` and of `--slurm key=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from oelm_core.config.validation import first_problem

Positive = Annotated[int, Field(gt=0)]
_TIME = re.compile(r"^(\d+|\d+:\d+(:\d+)?|\d+-\d+(:\d+(:\d+)?)?|UNLIMITED)$", re.IGNORECASE)
_MEMORY = re.compile(r"^\d+[KMGT]?B?$", re.IGNORECASE)


class Site(BaseModel):
    """How jobs are asked for. What is not said is left to the cluster's own defaults."""

    model_config = ConfigDict(extra="forbid")

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    """Node features, for example a100&nvlink: arms that compare should run on one kind of node."""
    gres: str | None = "gpu"
    """Kind of card: gpu, or with its type gpu:a100. The count is --per-run. none asks for no cards."""
    cpus: Positive = 4
    """Cores for each card (or for each CPU process)."""
    memory: str | None = None
    """Memory of a node for the job: 32G."""
    time: str | None = None
    """Time limit: minutes, hours:minutes:seconds or days-hours:minutes. At the limit a run saves and queues again."""
    nodes: Positive = 1
    """Nodes of one run; each gives --per-run cards."""
    setup: list[str] = []
    """Shell lines before the run: module load, conda activate, export."""
    extra: list[str] = []
    """Further options of sbatch, one a line: --exclude=node3."""
    python: str | None = None
    """Interpreter on the nodes; the one that runs oelm unless said."""
    max_jobs: Positive | None = None
    """Runs of this OELM_HOME that may run at once; the others wait for them in chains."""
    max_requeues: Annotated[int, Field(ge=0)] = 50
    """How often one job may save at its time limit and queue again."""
    signal_seconds: Annotated[int, Field(ge=10, le=65535)] = 120
    """Seconds before the limit at which a run is told to save."""

    @field_validator("time", "memory", "partition", "account", "qos", "constraint", "gres", "python", mode="before")
    @classmethod
    def _numbers_are_text(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return None if value in ("", "none", "None") else value

    @field_validator("time")
    @classmethod
    def _time_is_readable(cls, value: str | None) -> str | None:
        if value is not None and not _TIME.match(value):
            raise ValueError(f"'{value}' is no time limit; write minutes, hours:minutes:seconds or days-hours")
        return value

    @field_validator("memory")
    @classmethod
    def _memory_is_readable(cls, value: str | None) -> str | None:
        if value is not None and not _MEMORY.match(value):
            raise ValueError(f"'{value}' is no amount of memory; write for example 32G")
        return value.upper().removesuffix("B") if value else value

    @field_validator("gres")
    @classmethod
    def _gres_has_no_count(cls, value: str | None) -> str | None:
        if value is not None and re.search(r":\d+$", value):
            raise ValueError(f"'{value}' ends in a count; write {value.rpartition(':')[0]}, and the count as --per-run")
        return value

    @field_validator("extra")
    @classmethod
    def _extra_are_options(cls, value: list[str]) -> list[str]:
        lines = [line.strip().removeprefix("#SBATCH").strip() for line in value]
        for line in lines:
            if not line.startswith("-"):
                raise ValueError(f"'{line}' is no option of sbatch; write for example --exclude=node3")
        return lines

    @field_validator("partition", "account", "qos", "constraint", "gres", "python", "extra")
    @classmethod
    def _one_line_each(cls, value: Any) -> Any:
        for text in value if isinstance(value, list) else [value or ""]:
            if "\n" in text:
                raise ValueError("a line break has no place here")
        return value


def check_settings(raw: Mapping[str, Any]) -> None:
    """Raises ValueError with a sentence when a preset's `slurm:` cannot be used."""
    try:
        Site.model_validate(raw)
    except ValidationError as error:
        raise ValueError(first_problem(error, Site)) from None
