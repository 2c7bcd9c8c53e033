"""What travels along with the curves: name, configuration, tags, the frozen share, and how the run ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from msgspec import Struct

from oelm_core.method.facts import Census
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Checks, Notes, Result, RunRecord, encode
from oelm_core.runs.store import Run

Value = bool | int | float | str


class RunCard(Struct, frozen=True):
    """What is known of a run before it ends."""

    id: str
    group: str
    """Its study, else its preset: what stands together on a page."""
    method: str
    created: float
    tags: tuple[str, ...]
    config: dict[str, Value]
    """The resolved preset by dotted keys, as `--set` writes them."""
    facts: dict[str, Value]
    """preset, study, seed, host, commit, parameters and the frozen share."""


class RunEnd(Struct, frozen=True):
    """How a run ended, and what came out."""

    state: str
    """finished, failed, stopped or lost"""
    reason: str
    message: str
    step: int
    t: float
    """When, epoch seconds."""
    figures: dict[str, float]
    """`result/accuracy` and so on; nothing where there is no result."""

    @property
    def words(self) -> str:
        """As in a line: stopped (user), Saved at step 200."""
        return f"{self.state} ({self.reason})" if self.reason else self.state


def card_of(run: Run, folder: RunFolder) -> RunCard:
    record = folder.read(RunRecord) or RunRecord(config={})
    notes, checks = folder.read(Notes), folder.read(Checks)
    result = folder.read(Result)
    census = next(
        (one for one in (checks and checks.census, result and result.parameters) if one and one.total), Census()
    )
    tags = (run.method, run.family, run.dataset, run.study or "", *(notes.tags if notes else ()))
    facts: dict[str, Value | None] = {
        "run": run.id,
        "preset": run.preset,
        "study": run.study,
        "method": run.method,
        "seed": run.seed,
        "host": run.host,
        "git_commit": record.git_commit,
        "config_hash": run.config_hash,
        "note": notes.note if notes and notes.note else None,
        "parameters.total": census.total,
        "parameters.trainable": census.trainable,
        "parameters.frozen": census.frozen,
        "parameters.frozen_share": frozen_share(census),
    }
    return RunCard(
        id=run.id,
        group=run.study or run.preset,
        method=run.method,
        created=run.created,
        tags=tuple(dict.fromkeys(tag for tag in tags if tag)),
        config=dict(flat(record.config)),
        facts={key: value for key, value in facts.items() if value is not None and value != ""},
    )


def end_of(run: Run, folder: RunFolder) -> RunEnd | None:
    """None while it may go on."""
    if not run.is_over:
        return None
    result = folder.read(Result)
    figures: dict[str, float | None] = {}
    if result is not None:
        share, timing = frozen_share(result.parameters), result.timing
        best = {name: value for name, value in (result.best or {}).items() if name not in ("step", "seconds")}
        tested = result.test.values if result.test else {}
        figures = {
            **{f"result/{name}": value for name, value in best.items()},
            "result/best_step": (result.best or {}).get("step"),
            **{f"result/test_{name}": value for name, value in tested.items()},
            "result/frozen_share": share,
            "result/step_time": timing.step_time_mean,
            "result/tokens_per_s": timing.tokens_per_s,
        }
        if result.metric is not None:
            figures[f"result/{result.metric.name}"] = result.metric.value
    return RunEnd(
        state=run.state,
        reason=run.reason or "",
        message=run.message or "",
        step=run.step,
        t=run.ended or run.heartbeat or run.created,
        figures={name: float(value) for name, value in figures.items() if value is not None},
    )


def frozen_share(census: Census) -> float | None:
    return census.frozen / census.total if census.total and census.frozen is not None else None


def digest(told: RunCard | RunEnd) -> str:
    """Names what was told of a run, so that it is told again only when it changed."""
    return hashlib.blake2b(encode(told), digest_size=8).hexdigest()


def flat(config: Mapping[str, object], above: str = "") -> Iterator[tuple[str, Value]]:
    """Settings by dotted keys; lists as text, what is not set left out.

    >>> dict(flat({"train": {"lr": 0.1, "steps": None}, "freeze": ["query", "key"]}))
    {'train.lr': 0.1, 'freeze': 'query, key'}
    """
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, bool | int | float | str):
            yield name, value
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value))
