"""Turns pydantic's report into one sentence that names the key and what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from oelm_core.errors import BadInput, did_you_mean

M = TypeVar("M", bound=BaseModel)
_BRANCHES = ("float", "str", "int", "constrained-float")


def validated(model: type[M], raw: Mapping[str, Any], where: str) -> M:
    """The model these settings describe, or a BadInput that names `where`, the key and what was expected."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{where}: {first_problem(error, model)}") from None


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """One sentence for the first thing pydantic found wrong."""
    problem = error.errors(include_url=False)[0]
    key = _key(problem["loc"])
    kind, value = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(model, problem["loc"][:-1])
        hint = did_you_mean(str(problem["loc"][-1]), known) or f" Known keys: {', '.join(known)}."
        return f"unknown key '{key}'.{hint}"
    if kind == "missing":
        return f"key '{key}' is missing."
    if kind == "value_error":
        message = problem["msg"].removeprefix("Value error, ").rstrip(".")
        return f"{key + ': ' if key else ''}{message}."
    shown = json.dumps(value, default=str)
    return f"key '{key}' is {shown if len(shown) < 60 else shown[:57] + '...'}; {_expectations(error, key)}."


def _expectations(error: ValidationError, key: str) -> str:
    """What each branch of a union would have taken, joined."""
    wanted = [problem["msg"] for problem in error.errors(include_url=False) if _key(problem["loc"]) == key]
    first, *others = [text.removeprefix("Input should be ") for text in dict.fromkeys(wanted)]
    first = f"it should be {first}" if wanted[0].startswith("Input") else first[:1].lower() + first[1:]
    return " or ".join([first, *others])


def _key(loc: tuple[Any, ...]) -> str:
    """Without the names that pydantic gives the branches of a union."""
    parts = [str(part) for part in loc]
    return ".".join(part for part in parts if "[" not in part and part not in _BRANCHES)


def _known_keys(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        nested = _section_in(field.annotation) if field else None
        if nested:
            model = nested
    return [field.alias or name for name, field in model.model_fields.items()]


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _section_in(inner)
        if found:
            return found
    return None
