"""YAML without its surprises: 1e-4 is a number, yes and no are words, dates are text, a key stands only once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oelm_core.errors import BadInput

Content = TypeVar("Content")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader (the C one where it is built) with the rules below."""


def read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def read_yaml_documents(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_Loader))


def read_yaml_file(file: Path, read: Callable[[str], Content]) -> Content:
    """A file through one of the two above, or a BadInput that says why not, and in which line."""
    try:
        return read(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: is not UTF-8 text.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise BadInput(f"{file}:{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from None


def read_setting(raw: str) -> Any:
    """The value of a `key=value` on the command line: YAML, or the text itself where it is none."""
    try:
        return read_yaml(raw)
    except yaml.YAMLError:
        return raw


def _mapping_without_doubles(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key '{key}' appears twice", key_node.start_mark)
        seen.add(key)
    return dict(loader.construct_pairs(node, deep=True))


def _decimal(loader: Any, node: Any) -> int:
    return int(node.value.replace("_", ""))  # 0777 is 777


_REPLACED = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "timestamp")}
_INTEGER = re.compile(r"^[-+]?\d[\d_]*$")
_NUMBER = re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$")
_BOOLEAN = re.compile(r"^(true|false|True|False)$")

_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping_without_doubles)
_Loader.add_constructor("tag:yaml.org,2002:int", _decimal)
