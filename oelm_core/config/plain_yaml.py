"""YAML without its surprises: plain scalars, lists and maps alone, no tags, no anchors, and nothing deep or endless.

1e-4 is a number, yes and no are words, dates are text, a key stands only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from oelm_core.errors import BadInput, first_line
from oelm_core.small_files import read_small_file

Content = TypeVar("Content")
_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one where it is built; only its events are used

MOST_DEEP = 32
"""Lists and maps inside one another."""
MOST_DIGITS = 60
"""Characters of a number."""


def read_yaml(text: str) -> Any:
    """The one document of a text; None for an empty one."""
    documents = read_yaml_documents(text)
    if len(documents) > 1:
        raise yaml.YAMLError("there are several documents, and one is expected")
    return documents[0] if documents else None


def read_yaml_documents(text: str) -> list[Any]:
    """YAMLError for what is not YAML, or is more of it than is read here."""
    reader = _Reader()
    for event in yaml.parse(text, Loader=_Parser):
        reader.take(event)
    return reader.documents


def read_yaml_file(file: Path, read: Callable[[str], Content]) -> Content:
    """A file through one of the two above, or a BadInput that says why not, and in which line."""
    try:
        return read(read_small_file(file, "yaml", follow=True).decode("utf-8"))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: is not UTF-8 text.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise BadInput(f"{file}:{line} is not valid YAML: {problem}.") from None


def read_setting(raw: str) -> Any:
    """The value of a `key=value` on the command line: YAML, or the text itself where it is none."""
    try:
        return read_yaml(raw)
    except yaml.YAMLError:
        return raw


_MISSING = object()


class _Open:
    """A list or a map that is being read."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.key: Any = _MISSING
        self.seen: set[str] = set()


class _Reader:
    """Builds documents from the parser's events, without recursion."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self._open: list[_Open] = []

    def take(self, event: Any) -> None:
        if getattr(event, "anchor", None) is not None:
            _refuse("anchors and aliases (& and *) are not read; write the values out, or use extends", event)
        if getattr(event, "tag", None) is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            _refuse(f"tags are not read, found {tag}; write the plain value", event)
        if isinstance(event, yaml.ScalarEvent):
            self._put(_scalar(event), event, word=event.value)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(self._open) >= MOST_DEEP:
                _refuse(f"lists and maps are more than {MOST_DEEP} deep", event)
            content: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            self._put(content, event)
            self._open.append(_Open(content))
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._open.pop()

    def _put(self, value: Any, event: Any, word: str | None = None) -> None:
        if not self._open:
            self.documents.append(value)
            return
        inside = self._open[-1]
        if isinstance(inside.content, list):
            inside.content.append(value)
        elif inside.key is _MISSING:
            if word is None:
                _refuse("a key is a list or a map; it should be a word", event)
            if word in inside.seen:
                _refuse(f"key '{word}' appears twice", event)
            inside.seen.add(word)
            inside.key = value
        else:
            inside.content[inside.key] = value
            inside.key = _MISSING


def _refuse(problem: str, event: Any) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


_CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
_INTEGER = re.compile(r"[-+]?\d[\d_]*")
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True"), True),
    **dict.fromkeys(("false", "False"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "-", "+") for word in (".inf", ".Inf")},
    **dict.fromkeys((".nan", ".NaN"), float("nan")),
}


def _scalar(event: Any) -> Any:
    """A quoted scalar is text; a plain one what it looks like."""
    text: str = event.value
    if _CONTROL.search(text):
        _refuse(f"a control character in {text[:40]!r}", event)
    if event.style or not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    if len(text) > MOST_DIGITS:
        _refuse(f"a number of {len(text):,} characters that begins with {text[:12]}", event)
    digits = text.replace("_", "")
    return int(digits) if _INTEGER.fullmatch(text) else float(digits)  # 0777 is 777
