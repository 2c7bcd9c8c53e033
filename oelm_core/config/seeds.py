"""Seeds as people write them: a count, a range, or these very ones. Every option and form reads them here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from oelm_core.errors import BadInput

FIRST = 42
"""The first seed of a count: three are 42, 43 and 44."""
MOST = 1000

_PART = re.compile(r"(\d+)(?:-(\d+))?")


def parse_seeds(text: str, where: str = "--seeds") -> tuple[int, ...]:
    """
    >>> parse_seeds("3"), parse_seeds("42-44"), parse_seeds("42,77"), parse_seeds("7,")
    ((42, 43, 44), (42, 43, 44), (42, 77), (7,))
    """
    parts = text.replace(",", " ").split()
    matched = [_PART.fullmatch(part) for part in parts]
    if not parts or None in matched:
        raise BadInput(f"{where} {text}: write a count (3), a range (42-44), or seeds with commas between (42,77).")
    if len(parts) == 1 and parts[0] == text.strip() and text.strip().isdecimal():
        return _counted(int(text), where)
    seeds: list[int] = []
    for match in matched:
        assert match is not None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadInput(f"{where} {text}: {match[0]} runs backwards; write {last}-{first}.")
        seeds += range(first, min(last, first + MOST) + 1)
    if len(seeds) > MOST:
        raise BadInput(f"{where} {text}: that is more than {MOST} seeds.")
    return tuple(dict.fromkeys(seeds))


def seed_ranges(seeds: Iterable[int]) -> list[str]:
    """
    >>> seed_ranges([44, 42, 43, 77]), seed_ranges([42, 43])
    (['42-44', '77'], ['42', '43'])
    """
    runs: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]


def seeds_option(seeds: Sequence[int]) -> str:
    """As a command line has them: a lone number after --seeds would be a count."""
    return f"--seeds {','.join(seed_ranges(seeds))}" if len(seeds) > 1 else f"--seed {seeds[0]}"


def _counted(count: int, where: str) -> tuple[int, ...]:
    if count == 0:
        raise BadInput(f"{where} 0: at least one seed is needed.")
    if count >= FIRST:  # more likely a seed than a count
        raise BadInput(
            f"{where} {count}: a number alone is a count; for this one seed write '{count},', for so many "
            f"{FIRST}-{FIRST + count - 1}."
        )
    return tuple(range(FIRST, FIRST + count))
