"""What a study tunes: the space its points are drawn from, the seeds that choose, and the fresh ones that count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from oelm_core.config.plain_yaml import read_setting
from oelm_core.config.sections import Section
from oelm_core.errors import BadInput

Value = str | int | float | bool
Pruner = Literal["median", "none"]
PRUNERS: tuple[Pruner, ...] = ("median", "none")
TUNABLE = ("train.", "method.", "model.dropout")
"""Keys that may be tuned: none of them changes the text that draws are judged on."""
_NOT_TUNABLE = ("method.name",)
_RANGE = re.compile(r"^\s*(?P<low>[^.,][^,]*?)\.\.(?P<high>[^:,]+?)\s*(:(?P<scale>\w+))?\s*$")
_WRITE = "write a range such as 1e-5..1e-3:log, or values such as 1e-4,3e-4,1e-3"


@dataclass(frozen=True)
class Dimension:
    """The values that one setting may take: those listed, or any from `low` to `high`."""

    values: tuple[Value, ...] = ()
    low: int | float = 0
    high: int | float = 0
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """A range of whole numbers, because both of its ends are written so."""
        return not self.values and isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> int | None:
        """How many values there are; None for a range of real numbers."""
        if self.values:
            return len(self.values)
        return int(self.high) - int(self.low) + 1 if self.is_whole else None

    @property
    def text(self) -> str:
        """As on the command line."""
        if self.values:
            return ",".join(map(value_text, self.values))
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


def value_text(value: Value) -> str:
    """As `--set` takes it: true, 0.001, cosine."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def dimension(raw: Any) -> Dimension:
    """`[1e-5, 1e-3, log]`, `1e-5..1e-3:log`, `[1e-4, 3e-4]` or `1e-4,3e-4`; ValueError says what to write instead."""
    if isinstance(raw, Dimension):
        return raw
    if isinstance(raw, str):
        found = _RANGE.match(raw)
        if found is None:
            return _values([read_setting(part.strip()) for part in raw.split(",")])
        return _range(read_setting(found["low"]), read_setting(found["high"]), found["scale"] or "linear")
    if not isinstance(raw, list | tuple):
        return _values([raw])
    if len(raw) == 3 and raw[-1] in ("log", "linear"):
        return _range(raw[0], raw[1], raw[2])
    return _values(raw)


def _range(low: Any, high: Any, scale: str) -> Dimension:
    if scale not in ("log", "linear"):
        raise ValueError(f"a range is log or linear, not {scale!r}; {_WRITE}")
    for end in (low, high):
        if isinstance(end, bool) or not isinstance(end, int | float) or not abs(end) < float("inf"):
            raise ValueError(f"a range ends in numbers, not in {end!r}; {_WRITE}")
    if low >= high:
        raise ValueError(f"the range from {low:g} to {high:g} is empty; write the smaller number first")
    if scale == "log" and low <= 0:
        raise ValueError(f"a log range starts above 0, not at {low:g}")
    return Dimension(low=low, high=high, log=scale == "log")


def _values(raw: Sequence[Any]) -> Dimension:
    values = tuple(raw)
    odd = next((value for value in values if not isinstance(value, str | int | float | bool) or value == ""), None)
    if odd is not None or None in values:
        raise ValueError(f"{odd!r} is no value to try; {_WRITE}")
    if len(set(values)) < max(2, len(values)):
        raise ValueError(f"needs at least two values, each once; {_WRITE}")
    return Dimension(values=values)


def _tunable(space: dict[str, Dimension]) -> dict[str, Dimension]:
    for key in space:
        if not key.startswith(TUNABLE) or key in _NOT_TUNABLE:
            raise ValueError(
                f"'{key}' is not for tuning; tune train.*, method.* or model.dropout, so that all draws "
                "are judged on the same text"
            )
    return space


def _each_once(seeds: list[int]) -> list[int]:
    return list(dict.fromkeys(seeds))


Space = Annotated[
    dict[str, Annotated[Dimension, BeforeValidator(dimension), PlainSerializer(lambda one: one.text)]],
    Field(min_length=1),
    AfterValidator(_tunable),
]
Seeds = Annotated[list[int], Field(min_length=1), AfterValidator(_each_once)]


class Tune(Section):
    """How `oelm tune` searches for each arm's setting."""

    space: Space
    """Setting -> [low, high, log], [low, high, linear], or a list of values."""
    seeds: Seeds | None = None
    """Seeds of the draws: those that choose. The smallest that is not a fresh one unless said."""
    fresh_seeds: Seeds | None = None
    """Seeds on which the chosen settings run: those that count. The study's own unless said."""
    pruner: Pruner | None = None
    """Whether a draw below its arm's median is stopped early; by the budget unless said."""

    @model_validator(mode="after")
    def _fresh_means_fresh(self) -> Tune:
        check_fresh(self.seeds or (), self.fresh_seeds or ())
        return self


def check_fresh(seeds: Iterable[int], fresh: Iterable[int]) -> None:
    both = sorted(set(seeds) & set(fresh))
    if both:
        raise ValueError(f"seed {both[0]} would choose a setting and then judge it; fresh seeds must be others")


def tuning_seeds(
    seeds: Sequence[int] | None, fresh: Sequence[int] | None, of_study: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(those that choose, those that count), where either may be left to its default; ValueError where they meet."""
    counting = tuple(dict.fromkeys(fresh or (seed for seed in of_study if seed not in (seeds or ()))))
    if not counting:
        raise ValueError("no fresh seed is left: every seed of the study is one that chooses; name fresh seeds")
    spare = next(number for number in range(1, len(counting) + 2) if number not in counting)
    choosing = tuple(dict.fromkeys(seeds or (spare,)))
    check_fresh(choosing, counting)
    return choosing, counting


def parse_space(texts: Iterable[str]) -> dict[str, Dimension]:
    """`["train.lr=1e-5..1e-3:log"]`, as `--space` gives them."""
    space: dict[str, Dimension] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not key or not raw.strip():
            raise BadInput(f"--space {text}: {_WRITE}, as in train.lr=1e-5..1e-3:log.")
        if key in space:
            raise BadInput(f"--space {key} is given twice; give it once.")
        try:
            space |= _tunable({key: dimension(raw)})
        except ValueError as error:
            raise BadInput(f"--space {text}: {error}.") from None
    return space


def point_settings(point: Mapping[str, Value]) -> tuple[str, ...]:
    """A point as texts of `--set`."""
    return tuple(f"{key}={value_text(value)}" for key, value in point.items())
