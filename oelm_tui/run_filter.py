"""The filter language of the runs table: `state:running family:gpt lr>=1e-3 -tag:old "tiny stories"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oelm_core.metric import METRICS


class Fields(Protocol):
    """What is known of a run by lower-case names: text, numbers, lists of text; `text` is what free words search."""

    def get(self, key: str, /) -> Any: ...


AnyFields = TypeVar("AnyFields", bound=Fields)

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


Test = Callable[[Fields], bool]


@dataclass(frozen=True)
class Term:
    negated: bool
    key: str
    """"" for free text."""
    op: str
    value: str

    def test(self) -> Test:
        """What the term asks of a run, with everything worked out that is the same for all of them."""
        holds = self._positive()
        return (lambda fields: not holds(fields)) if self.negated != (self.op == "!=") else holds

    def _positive(self) -> Test:
        key, value = self.key or "text", self.value
        if not self.key:
            return lambda fields: value in (fields.get("text") or "").lower()
        if self.op in _ORDERS:
            order, bound = _ORDERS[self.op], _number(value)

            def in_order(fields: Fields) -> bool:
                number = _number(fields.get(key))
                return bound is not None and number is not None and order(number, bound)

            return in_order
        wanted = [(part, _number(part)) for part in value.split(",")]

        def says(fields: Fields) -> bool:
            found = fields.get(key)
            text = found.lower() if isinstance(found, str) else ""
            return any(part in text if text and part else _says(found, part, number) for part, number in wanted)

        return says


@dataclass(frozen=True)
class Query:
    """All terms must hold. `problem` says what could not be understood while it is being typed."""

    terms: tuple[Term, ...] = ()
    problem: str = ""

    def matches(self, fields: Fields) -> bool:
        return all(term.test()(fields) for term in self.terms)

    def among(self, runs: Sequence[AnyFields]) -> list[AnyFields]:
        """Those that match, in their order."""
        found = list(runs)
        for term in self.terms:
            found = list(filter(term.test(), found))
        return found


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


def _says(found: Any, wanted: str, number: float | None) -> bool:
    """Numbers by value, text by what it contains, lists by any of theirs."""
    if isinstance(found, (list, tuple)):
        return any(_says(item, wanted, number) for item in found)
    if found is None:
        return wanted in ("none", "-")
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return number is not None and float(found) == number
    return bool(wanted) and wanted in str(found).lower()


def _number(value: Any) -> float | None:
    if type(value) in (float, int):
        return float(value)
    if isinstance(value, str) and value and value[-1] in "kKmM" and value[:-1]:
        scale = {"k": 1e3, "m": 1e6}[value[-1].lower()]
        inner = _number(value[:-1])
        return None if inner is None else inner * scale
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
