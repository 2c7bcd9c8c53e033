"""How each rank of a run says it ended, and which of them speaks for the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oelm_core.runs.folder import RunFolder, numbered, read_record, write_record
from oelm_core.runs.schema import Outcome

_OTHERS = ("outcome-rank", ".json")


def path_of(folder: RunFolder, rank: int) -> Path:
    """outcome.json for the first rank, outcome-rankN.json for the others."""
    return folder.path / (Outcome.FILE if rank == 0 else f"{rank}".join(_OTHERS))


def write(folder: RunFolder, rank: int, outcome: Outcome) -> None:
    write_record(path_of(folder, rank), outcome)


def read_all(folder: RunFolder) -> dict[int, Outcome]:
    """What was said, by rank."""
    ranks = (0, *numbered(folder.path, *_OTHERS))
    return {rank: said for rank in ranks if (said := read_record(path_of(folder, rank), Outcome)) is not None}


def remove_all(folder: RunFolder) -> None:
    for rank in (0, *numbered(folder.path, *_OTHERS)):
        path_of(folder, rank).unlink(missing_ok=True)


def deciding(said: Mapping[int, Outcome]) -> tuple[int, Outcome] | None:
    """(rank, outcome) of the one that speaks for the run; None where nobody does.

    The first rank where the run finished, for ranks finish together; else the earliest that failed by itself; else the
    earliest that failed because another was gone; else the first rank.
    """
    first = said.get(0)
    if first is None or first.state != "finished":
        failed = [(one.consequence, one.t or 0.0, rank) for rank, one in said.items() if one.state == "failed"]
        if failed:
            rank = min(failed)[-1]
            return rank, said[rank]
    return None if first is None else (0, first)


def last_word(folder: RunFolder) -> Outcome | None:
    """How the run ended, by what its ranks wrote."""
    found = deciding(read_all(folder))
    return None if found is None else found[1]
