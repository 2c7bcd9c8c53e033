"""Trackio: into its local database (TRACKIO_DIR), and from there to the Space that TRACKIO_SPACE_ID names.

Through the function behind its own imports, for `trackio.log` stamps every line with the present.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from oelm_core.errors import Refused
from oelm_core.mirror.card import RunCard, RunEnd
from oelm_core.mirror.points import Point
from oelm_core.runs.schema import Mirrored


class Trackio:
    keeps_at_close = False

    def __init__(self, folder: Path | None, home: Path) -> None:
        self._folder = (folder or _own_folder()).absolute()
        self._project = os.environ.get("TRACKIO_PROJECT") or "oelm"
        self._name = ""
        self._config: dict[str, object] = {}

    @property
    def place(self) -> str:
        return str(self._folder)

    def is_there(self, kept: Mirrored) -> bool:
        return any(self._folder.glob("*.db"))

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        os.environ["TRACKIO_DIR"] = str(self._folder)  # read when it is imported
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import TRACKIO_DIR

        if Path(TRACKIO_DIR).absolute() != self._folder:
            raise Refused(f"Trackio is at work in {TRACKIO_DIR} here; bring {card.id} to {self._folder} by itself.")
        known = card.id in SQLiteStorage.get_runs(self._project)
        kept.run = self._name = card.id
        return known and bool(kept.points)

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        group = {"_Group": card.group, "_Created": _stamp(card.created)}
        self._config = {**card.config, **card.facts, "tags": ", ".join(card.tags), **group}

    def write(self, points: Sequence[Point], kept: Mirrored) -> None:
        rows = [
            (point.step, point.t, {**point.values, **({f"event/{point.what}": point.message} if point.what else {})})
            for point in points
        ]
        self._log(rows)

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        self._log([(end.step, end.t, {**end.figures, "state": end.words, "message": end.message})])

    def close(self) -> None:
        space = os.environ.get("TRACKIO_SPACE_ID")
        if space:
            import trackio

            trackio.sync(project=self._project, space_id=space, force=True)

    def _log(self, rows: Sequence[tuple[int, float, dict[str, object]]]) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        names = ["|".join((self._name, str(step), str(t), *sorted(values))) for step, t, values in rows]
        SQLiteStorage.bulk_log(
            self._project,
            self._name,
            [values for _, _, values in rows],
            steps=[step for step, _, _ in rows],
            timestamps=[_stamp(t) for _, t, _ in rows],
            config=self._config or None,
            log_ids=names,  # a row that is there already is left as it is
        )


def _own_folder() -> Path:
    """Where Trackio itself looks, known without loading it."""
    named = os.environ.get("TRACKIO_DIR")
    if named:
        return Path(named)
    cache = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(cache).expanduser() / "trackio"


def _stamp(t: float) -> str:
    return datetime.fromtimestamp(t, timezone.utc).isoformat()
