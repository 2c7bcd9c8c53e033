"""What a key in the filter costs with many runs: processor time of the thread that draws, each key by itself.

`python -m benchmarks.screen_filter HOME` prints the seconds of every key as JSON. The terminal is Textual's own
stand-in: everything is computed and drawn, nothing is sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from textual.events import Key

from oelm_tui.app import OelmApp
from oelm_tui.widgets.field import Field

QUERIES = ("state:running", "bench-1", "lr>=1e-3 seed:17", 'acc>0.5 "accuracy"', "family:bert -tag:old")
SIZE = (120, 36)


async def key_times() -> list[float]:
    app = OelmApp(every=30.0)  # no new picture of the lab in between
    app.spare_collections()
    found: list[float] = []
    async with app.run_test(size=SIZE) as pilot:
        while app.snapshot is None or app.snapshot.catalogue is None or app.snapshot.partial:
            await asyncio.sleep(0.05)
        while any("config" not in view.run.__dict__ for view in app.snapshot.runs):
            app.threads["lab"].ask(None)
            await asyncio.sleep(0.1)
        await pilot.pause(1.0)
        for query in QUERIES:
            await pilot.press("slash")
            await pilot.pause()
            for letter in query:
                before = time.thread_time()
                app.post_message(Key(_NAMES.get(letter, letter), letter))
                await asyncio.sleep(0.15)  # all that the key sets off is done; the pilot's own waiting would count
                found.append(time.thread_time() - before)
            assert app.screen.query_one("#filter", Field).value == query
            await pilot.press("enter", "escape")
            await pilot.pause(0.2)
    return found


_NAMES = {" ": "space", ":": "colon", ">": "greater_than_sign", "=": "equals_sign", '"': "quotation_mark"}
_NAMES |= {"-": "minus", ".": "full_stop"}


def main() -> None:
    os.environ["OELM_HOME"] = sys.argv[1]
    print(json.dumps(asyncio.run(key_times())))


if __name__ == "__main__":
    main()
