"""The filter language of the runs table: `state:running family:gpt lr>=1e-3 -tag:old "tiny stories"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oelm_core.metric import METRICS

Fields = Mapping[str, Any]
"""What is known of one run: lower-case names to text, numbers or lists of text; `text` holds what free words search."""

_TERM = re.compile(
    r"""\s*(?P<no>-)?(?:
        (?P<key>[\w.]+)(?P<op>>=|<=|!=|:|=|>|<)(?:"(?P<quoted>[^"]*)"?|(?P<value>[^\s"]*))
        |"(?P<phrase>[^"]*)"?
        |(?P<word>[^\s"]+)
    )""",
    re.VERBOSE,
)
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
SHORT = {"data": "dataset", "dev": "device", "is": "state"} | {one.short.lower(): one.name for one in METRICS.values()}
"""Other ways to say a field."""


@dataclass(frozen=True)
class Term:
    negated: bool
    key: str
    """"" for free text."""
    op: str
    value: str

    def matches(self, fields: Fields) -> bool:
        return self._holds(fields) != self.negated

    def _holds(self, fields: Fields) -> bool:
        if not self.key:
            return self.value in str(fields.get("text", "")).lower()
        found = fields.get(self.key)
        if self.op in _ORDERS:
            bound = _number(self.value)
            value = _number(found)
            return bound is not None and value is not None and _ORDERS[self.op](value, bound)
        wanted = self.value.split(",")
        holds = any(_says(found, part) for part in wanted)
        return not holds if self.op == "!=" else holds


@dataclass(frozen=True)
class Query:
    """All terms must hold. `problem` says what could not be understood while it is being typed."""

    terms: tuple[Term, ...] = ()
    problem: str = ""

    def matches(self, fields: Fields) -> bool:
        return all(term.matches(fields) for term in self.terms)


def parse(text: str) -> Query:
    """Never raises: a half-typed query filters by what is already clear."""
    terms: list[Term] = []
    problem = ""
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None:  # a lone quote or minus
            at += 1
            continue
        at = match.end()
        term = _term(match)
        if term is None:
            continue
        if term.op in _ORDERS and _number(term.value) is None:
            problem = f"{term.key}{term.op} needs a number"
            continue
        terms.append(term)
    return Query(tuple(terms), problem)


def _term(match: re.Match[str]) -> Term | None:
    negated = match["no"] is not None
    if match["key"]:
        key = match["key"].lower()
        value = (match["quoted"] if match["quoted"] is not None else match["value"]).lower()
        return Term(negated, SHORT.get(key, key), match["op"], value) if value else None
    words = (match["phrase"] if match["phrase"] is not None else match["word"]).lower()
    return Term(negated, "", ":", words) if words else None


def _says(found: Any, wanted: str) -> bool:
    """Numbers by value, text by what it contains, lists by any of theirs."""
    if isinstance(found, (list, tuple)):
        return any(_says(item, wanted) for item in found)
    if found is None:
        return wanted in ("none", "-")
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        number = _number(wanted)
        return number is not None and float(found) == number
    return bool(wanted) and wanted in str(found).lower()


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value and value[-1] in "kKmM" and value[:-1]:
        scale = {"k": 1e3, "m": 1e6}[value[-1].lower()]
        inner = _number(value[:-1])
        return None if inner is None else inner * scale
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
