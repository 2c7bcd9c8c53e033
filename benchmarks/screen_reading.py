"""How long the screen's readers take over one large file, in a process of its own with nothing else loaded.

Run with: python -m benchmarks.screen_reading log|curve|runs PATH; prints the seconds as a JSON list.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from oelm_tui.charts.plot import ChartView, Panel, draw
from oelm_tui.logs.pager import LogRequest, Pager
from oelm_tui.logs.reader import LogFile
from oelm_tui.logs.search import Search
from oelm_tui.render.curves import Quantity, one_curve
from oelm_tui.snapshots.columns import ColumnsReader


def log_times(path: Path) -> list[float]:
    """Seconds to the last page, to the first hit, and to the end of the count."""
    began = time.perf_counter()
    Pager().answer(LogRequest((path,), rows=40))
    opened = time.perf_counter() - began
    log = LogFile(path)
    log.refresh()
    began = time.perf_counter()
    search, first = Search(log, "needle"), 0.0
    while not search.done:
        search.step()
        if search.count and not first:
            first = time.perf_counter() - began
    return [opened, first, time.perf_counter() - began]


def curve_times(path: Path) -> list[float]:
    """Seconds from opening a metrics file to its first picture, to all of it, and of later pictures; its points."""
    began = time.perf_counter()
    reader = ColumnsReader(path)
    view, quantity = ChartView(), Quantity("train", "loss", "loss", smooth=True)

    def picture() -> float:
        start = time.perf_counter()
        draw(Panel([one_curve(reader.columns, quantity, view, 0.9, "a", "arm0", "x")]), view, 110, 18)
        return time.perf_counter() - start

    reader.advance()
    picture()
    first = time.perf_counter() - began
    while reader.behind:
        reader.advance()
    picture()
    whole = time.perf_counter() - began
    later = sorted(picture() for _ in range(20))[10]
    return [first, whole, later, len(reader.columns["train"])]


def list_times(path: Path) -> list[float]:
    """Seconds to list a folder of runs, and the megabytes of memory at most."""
    from oelm_core.runs.store import list_runs

    began = time.perf_counter()
    list_runs(path)
    seconds = time.perf_counter() - began
    with open("/proc/self/status") as status:  # what the system counts for a process's usage begins with its parent's
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return [seconds, kilobytes / 1024]


if __name__ == "__main__":
    print(json.dumps({"log": log_times, "curve": curve_times, "runs": list_times}[sys.argv[1]](Path(sys.argv[2]))))
