"""Turns pydantic's report into one sentence that names the key and what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from oelm_core.errors import BadInput, did_you_mean

M = TypeVar("M", bound=BaseModel)
_BRANCHES = ("bool", "float", "str", "int", "constrained-float")
_WORDS = {
    **dict.fromkeys(("dict_type", "mapping_type"), "keys with values"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("string_type",), "text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}
"""What people call what pydantic expected."""


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
    return f"key '{key}' is {shown if len(shown) < 60 else shown[:57] + '...'}; {_expectations(error, key, model)}."


def _expectations(error: ValidationError, key: str, model: type[BaseModel]) -> str:
    """What each branch of a union would have taken, joined."""
    problems = [problem for problem in error.errors(include_url=False) if _key(problem["loc"]) == key]
    first, *others = dict.fromkeys(_expected(problem, model) for problem in problems)
    return " or ".join([first, *(text.removeprefix("it should be ") for text in others)])


def _expected(problem: ErrorDetails, model: type[BaseModel]) -> str:
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"it should be keys such as {', '.join(_known_keys(model, problem['loc'])[:3])}"
    if problem["type"] in _WORDS:
        return f"it should be {_WORDS[problem['type']]}"
    said = problem["msg"].replace("Input should be", "it should be")
    return said[:1].lower() + said[1:]


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
