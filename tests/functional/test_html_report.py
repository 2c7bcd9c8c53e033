"""The HTML report looked at in a real browser: it draws, hovers, fits, turns dark and prints."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from oelm_core.report import render
from tests import needs
from tests.golden.demo import demo_comparison

pytestmark = needs.chromium
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900"),
]
PROBE = """<script>addEventListener("load", () => {
  const svg = document.querySelector(".chart > svg"), area = svg.getBoundingClientRect();
  const at = {clientX: area.left + area.width * 0.97, clientY: area.top + 50, bubbles: true};
  svg.dispatchEvent(new MouseEvent("mousemove", at));
  const tip = svg.parentNode.querySelector(".tip"), wide = document.documentElement.scrollWidth > innerWidth;
  const seen = {tip: tip.innerText, hidden: tip.hidden, wide: wide};
  document.title = "PROBE " + JSON.stringify(seen);
});</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report.html"
    path.write_text(render(demo_comparison(folder / "runs"), "html"), encoding="utf-8")
    return path


def browse(page: Path, *options: str) -> str:
    profile = page.parent / f"profile-{abs(hash(options))}"
    command = [str(needs.CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


def corner(png: Path) -> tuple[int, int, int]:
    """Colour of the top left pixel: the first of a row is stored as it is, whatever the row's filter."""
    data = png.read_bytes()
    body, place = b"", 8
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            body += data[place + 8 : place + 8 + length]
        place += length + 12
    row = zlib.decompress(body)
    return row[1], row[2], row[3]


def test_hovering_a_curve_shows_the_values_of_every_arm_and_nothing_overflows(page):
    probed = page.parent / "probed.html"
    probed.write_text(page.read_text().replace("</body>", PROBE + "</body>"), encoding="utf-8")
    dom = browse(probed, "--dump-dom")
    seen = re.search(r"<title>PROBE (.*?)</title>", dom)
    assert seen, dom[:300]
    assert '"hidden":false' in seen[1]
    assert '"wide":false' in seen[1]
    assert re.search(r'"tip":"400\\n.*demo-bert-oelm\s+9\d\.\d\d % \(9\d\.\d\d % … 9\d\.\d\d %\)', seen[1])


def test_the_page_is_light_or_dark_as_the_reader_prefers(page):
    light, dark = page.parent / "light.png", page.parent / "dark.png"
    browse(page, f"--screenshot={light}")
    browse(page, f"--screenshot={dark}", "--blink-settings=preferredColorScheme=0")
    assert corner(light) == (255, 255, 255)
    assert max(corner(dark)) < 60


def test_it_prints_to_a_few_pages(page):
    out = page.parent / "report.pdf"
    browse(page, f"--print-to-pdf={out}", "--no-pdf-header-footer")
    pages = len(re.findall(rb"/Type\s*/Page\b", out.read_bytes()))
    assert 2 <= pages <= 12
