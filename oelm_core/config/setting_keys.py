"""Every setting by its dotted key: what it means, which values it takes, and which key a short name stands for."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from oelm_core.config import sections
from oelm_core.config.experiment import Experiment
from oelm_core.config.sections import Data, Method, Model, Train
from oelm_core.errors import BadInput, did_you_mean

UNIONS = (types.UnionType, Union)
SECTIONS: dict[str, type[BaseModel]] = {"train": Train, "data": Data, "method": Method, "model": Model}


@dataclass(frozen=True)
class SettingKey:
    key: str
    meaning: str
    values: tuple[str, ...] = ()
    """The words it takes, where it takes only some."""


@functools.cache
def setting_keys() -> dict[str, SettingKey]:
    """By dotted key, as `--set` takes them, the recipe's own first."""
    found = [one for section, model in SECTIONS.items() for one in _keys_of(model, f"{section}.")]
    found.append(SettingKey("seed", "What chance starts from; several are better given as seeds."))
    return {one.key: one for one in found}


def full_key(key: str) -> str:
    """The key that a short one stands for; one that is no short form of any comes back as it is.

    >>> full_key("lr"), full_key("shape.heads"), full_key("train.lr"), full_key("layers"), full_key("seed")
    ('train.lr', 'model.shape.heads', 'train.lr', 'method.layers', 'seed')
    """
    if key.partition(".")[0] in Experiment.model_fields:
        return key
    found = [one for one in setting_keys() if one.endswith(f".{key}")]
    shallow = [one for one in found if one.count(".") == min(other.count(".") for other in found)]
    if len(shallow) > 1:
        raise BadInput(f"--set {key}: which one? Write {' or '.join(shallow)}.")
    if not shallow:
        short = {one.rpartition(".")[2]: one for one in reversed(setting_keys())}
        near = did_you_mean(key, short)
        for word in sorted(short, key=len, reverse=True):
            near = near.replace(f" {word}?", f" {short[word]}?").replace(f" {word} or", f" {short[word]} or")
        raise BadInput(f"--set {key}: there is no such setting.{near or ' `oelm presets show ID` lists them.'}")
    return shallow[0]


def with_full_key(text: str) -> str:
    """`lr=3e-3` -> `train.lr=3e-3`; what is no key=value comes back as it is."""
    key, equals, value = text.partition("=")
    return f"{full_key(key.strip())}={value}" if equals and key.strip() else text


@dataclass(frozen=True)
class Completion:
    """One way to go on with a word: what it would be, and what that is."""

    word: str
    meaning: str


def completions(word: str) -> list[Completion]:
    """What a word of the settings field may become: keys while there is no `=`, then the words the key takes.

    >>> [one.word for one in completions("tr.l")], [one.word for one in completions("schedule=c")]
    ([], ['schedule=cosine', 'schedule=constant'])
    """
    key, equals, value = word.partition("=")
    if equals:
        try:
            setting = setting_keys().get(full_key(key))
        except BadInput:
            return []
        if setting is None:
            return []
        fitting = [one for one in setting.values if one.startswith(value)]
        return [Completion(f"{key}={one}", setting.meaning) for one in fitting] or [Completion(word, setting.meaning)]
    return [Completion(f"{one.key}=", one.meaning) for one in _matching(key)]


def _matching(text: str) -> Iterator[SettingKey]:
    """Keys that begin so, then those of which a part does."""
    known = setting_keys().values()
    begins = [one for one in known if one.key.startswith(text)]
    yield from begins
    yield from (one for one in known if one not in begins and f".{text}" in one.key)


def _keys_of(model: type[BaseModel], prefix: str) -> Iterator[SettingKey]:
    meanings = _docstrings().get(model.__name__, {})
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        within = [one for one in _parts(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        if within:
            yield from _keys_of(within[0], f"{key}.")
        else:
            values = _values(field.annotation, field.metadata)
            yield SettingKey(key, meanings.get(name, ""), values)


def _parts(annotation: Any) -> Iterator[Any]:
    """The branches of a union, each without what only checks it."""
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in UNIONS:
        for branch in get_args(annotation):
            yield from _parts(branch)
    else:
        yield annotation


def _values(annotation: Any, metadata: list[Any]) -> tuple[str, ...]:
    found: list[str] = []
    for branch in (annotation, *(get_args(annotation) if get_origin(annotation) in UNIONS else ())):
        notes = [*metadata, *get_args(branch)[1:]] if get_origin(branch) is Annotated else metadata
        for note in notes:
            names = getattr(getattr(note, "func", None), "names", None)
            found += names() if names else []
    for part in _parts(annotation):
        if get_origin(part) is Literal:
            found += map(str, get_args(part))
        elif part is bool:
            found += ["true", "false"]
    return tuple(dict.fromkeys(found))


@functools.cache
def _docstrings() -> dict[str, dict[str, str]]:
    """The line under each field, by class: Python itself does not keep it."""
    tree = ast.parse(inspect.getsource(sections))
    return {one.name: dict(_lines_below(one)) for one in tree.body if isinstance(one, ast.ClassDef)}


def _lines_below(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in itertools.pairwise(model.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield field.target.id, inspect.cleandoc(value.value)
