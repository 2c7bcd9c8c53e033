"""Draws the screens of README and docs over real runs, as Textual exports them, with their curves as drawn dots.

Run with: OELM_HOME=FOLDER python -m benchmarks.screen_picture docs/img/home.svg [KEY ...]; `make pictures` draws all.
The folder should be called .oelm and stand in the current folder: the header shows where it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import html
import re
import sys
from pathlib import Path

from oelm_core.devices.sampler import DeviceSampler
from oelm_core.launch import launcher
from oelm_tui.app import OelmApp
from oelm_tui.snapshots.cards import Machine
from oelm_tui.snapshots.sampler import Sources

SIZE = (120, 36)
HOST = "lab"
"""Shown for this machine's name."""
_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.S)
_TEXT = re.compile(
    r'<text class="(?P<role>[^"]+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="(?P<length>[\d.]+)"'
    r"(?P<clip>[^>]*)>(?P<said>[^<]*)</text>"
)
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each bit of a braille character."""


async def picture(keys: list[str]) -> str:
    devices = DeviceSampler(every=1.0).start()
    await asyncio.sleep(2.5)  # use of the processor is a difference of two looks

    def machine() -> Machine:
        return Machine(dataclasses.replace(devices.latest, host=HOST))

    app = OelmApp(sources=Sources(launcher.list_runs, machine=machine))
    async with app.run_test(size=SIZE) as pilot:
        while app.snapshot is None or app.snapshot.catalogue is None or app.detail is None or app.detail.loading:
            await pilot.pause(0.05)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.5)
        threads = [*app.threads.values(), getattr(app.screen, "thread", None)]
        while not all(thread.idle for thread in threads if thread is not None):
            await pilot.pause(0.05)
        await pilot.pause(1.5)
        drawn = app.export_screenshot(title="oelm")
    devices.stop()
    return drawn


def standing_alone(drawn: str) -> str:
    """Without fonts from elsewhere; curves as dots, since few fonts have braille signs of the right width."""
    drawn = _FONT_FACE.sub("", drawn).replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    drawn = re.sub(r"\n\s*\n", "\n", drawn)
    return _TEXT.sub(_dotted, drawn)


def _dotted(found: re.Match[str]) -> str:
    said = html.unescape(found["said"])
    braille = [(place, ord(sign) - 0x2800) for place, sign in enumerate(said) if 0x2800 < ord(sign) < 0x2900]
    if not braille:
        return found[0]
    wide = float(found["length"]) / len(said)
    left, base = float(found["x"]), float(found["y"]) - 18.0
    dots = "".join(
        f"M{left + wide * (place + 0.28 + 0.5 * column):.1f} {base + 3 + 6.1 * row:.1f}h.01"
        for place, bits in braille
        for number, (column, row) in enumerate(_DOTS)
        if bits >> number & 1
    )
    signs = "".join(
        f'<text class="{found["role"]}" x="{left + wide * place:.1f}" y="{found["y"]}">{sign}</text>'
        for place, sign in enumerate(said)
        if not 0x2800 <= ord(sign) < 0x2900 and not sign.isspace()
    )
    return f'<g class="{found["role"]}"><path d="{dots}" class="dots"/></g>{signs}'


def with_dots(drawn: str) -> str:
    """Dots take the colour of the text they stand for."""
    roles = dict(re.findall(r"\.([\w-]+-r\d+) \{ fill: (#\w+)", drawn))
    for role, colour in roles.items():
        drawn = drawn.replace(f'<g class="{role}"><path', f'<g stroke="{colour}"><path')
    return drawn.replace(' class="dots"/>', ' fill="none" stroke-width="3" stroke-linecap="round"/>')


def main() -> None:
    out, *keys = sys.argv[1:]
    Path(out).write_text(with_dots(standing_alone(asyncio.run(picture(keys)))), encoding="utf-8")


if __name__ == "__main__":
    main()
