"""Style and script of the HTML report: light, dark and print; hover values. No network, no library."""

from __future__ import annotations

_LIGHT = """
  --bg: #fff; --fg: #1d2430; --dim: #667085; --rule: #e3e7ee; --soft: #f5f7fa; --head: #eef2f7;
  --bad: #b42318; --badbg: #fef3f2; --warn: #92560a; --warnbg: #fff8eb; --ok: #14713a;
  --c0: #4a5568; --c1: #0b6bcb; --c2: #d9480f; --c3: #2b8a3e; --c4: #862e9c; --c5: #c2255c; --c6: #0c8599;
  --c7: #a67c00;
"""
_DARK = """
  --bg: #14181f; --fg: #e4e8ee; --dim: #98a2b3; --rule: #2d3440; --soft: #1b212a; --head: #232b36;
  --bad: #ff8f85; --badbg: #341b1b; --warn: #f2bb66; --warnbg: #32281a; --ok: #74d69b;
  --c0: #c3cad5; --c1: #69b1ff; --c2: #ff9a62; --c3: #7bd88f; --c4: #d6a1e8; --c5: #ff8fb3; --c6: #63d3e0;
  --c7: #e8c547;
"""
_PRINT = """
  --bg: #fff; --fg: #000; --dim: #555; --rule: #ccc; --soft: #fff; --head: #fff;
  --bad: #900; --badbg: #fff; --warn: #740; --warnbg: #fff; --ok: #060;
"""
_COLOURS = "\n".join(
    f".c{n} {{ stroke: var(--c{n}) }} .dot.c{n} {{ fill: var(--c{n}) }} .b{n} {{ background: var(--c{n}) }}"
    for n in range(8)
)

STYLE = f"""
:root {{{_LIGHT}}}
@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{{_DARK}}} }}
:root[data-theme=dark] {{{_DARK}}}
* {{ box-sizing: border-box }}
body {{
  margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.55 system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif;
}}
main {{ max-width: 1160px; margin: 0 auto; padding: 28px 22px 80px }}
header {{ display: flex; align-items: baseline; gap: 16px; justify-content: space-between }}
h1 {{ font-size: 26px; line-height: 1.25; margin: 0 0 4px }}
h2 {{ font-size: 18px; margin: 38px 0 10px; padding-bottom: 5px; border-bottom: 1px solid var(--rule) }}
nav {{ margin: 10px 0 0; display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px }}
nav a {{ color: var(--dim); text-decoration: none }}
nav a:hover {{ color: var(--fg); text-decoration: underline }}
button {{
  font: inherit; font-size: 13px; color: var(--dim); background: none; white-space: nowrap;
  border: 1px solid var(--rule); border-radius: 6px; padding: 2px 10px; cursor: pointer;
}}
.scroll {{ overflow-x: auto; margin: 10px 0 18px }}
table {{ border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums }}
caption {{ text-align: left; font-weight: 600; padding: 4px 0 }}
th, td {{ padding: 5px 8px; border-bottom: 1px solid var(--rule); vertical-align: top; text-align: left }}
th {{ background: var(--head); font-weight: 600; white-space: nowrap }}
td.r, th.r {{ text-align: right; white-space: nowrap }}
td:first-child {{ white-space: nowrap }}
tr.strong td {{ font-weight: 600 }}
.missed {{ color: var(--bad); white-space: nowrap }}
.met {{ color: var(--ok); white-space: nowrap }}
.findings {{ list-style: none; margin: 10px 0; padding: 0 }}
.findings li {{
  border-left: 4px solid var(--rule); background: var(--soft);
  padding: 8px 12px; margin: 0 0 8px; border-radius: 0 6px 6px 0;
}}
.findings li.breaks {{ border-color: var(--bad); background: var(--badbg) }}
.findings li.confounds {{ border-color: var(--warn); background: var(--warnbg) }}
.badge {{ font-size: 12px; font-weight: 700; margin-right: 8px }}
.breaks .badge {{ color: var(--bad) }}
.confounds .badge {{ color: var(--warn) }}
.note .badge {{ color: var(--dim) }}
.settle {{ display: block; font-size: 13px; color: var(--dim) }}
code, pre {{ font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }}
pre {{
  background: var(--soft); border: 1px solid var(--rule); border-radius: 6px; padding: 10px 12px; overflow-x: auto;
}}
ul.plain {{ padding-left: 18px; font-size: 14px; overflow-wrap: anywhere }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 18px 24px }}
.chart {{ position: relative; margin: 0; min-width: 0 }}
figcaption {{ font-weight: 600; font-size: 14px }}
.legend {{ display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; color: var(--dim); margin: 2px 0 }}
.key svg {{ margin-right: 5px; vertical-align: middle }}
.chart > svg {{ width: 100%; height: auto; display: block }}
.line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round }}
.grid {{ stroke: var(--rule) }}
.axis {{ stroke: var(--dim) }}
.cursor {{ stroke: var(--dim); stroke-dasharray: 3 3; visibility: hidden }}
.tick, .label {{ fill: var(--dim); font-size: 11px }}
.tip {{
  position: absolute; top: 60px; pointer-events: none; background: var(--bg); border: 1px solid var(--rule);
  border-radius: 6px; padding: 6px 10px; font-size: 12.5px; box-shadow: 0 4px 14px #0003; white-space: nowrap;
}}
.tip b {{ display: block }}
.tip i {{ display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px }}
{_COLOURS}
@media print {{
  :root, :root[data-theme=dark], :root:not([data-theme=light]) {{{_LIGHT}{_PRINT}}}
  button, nav, .tip, .cursor {{ display: none !important }}
  main {{ max-width: none; padding: 0 }}
  body {{ font-size: 10.5pt }}
  table {{ font-size: 8.5pt }}
  .scroll {{ overflow: visible }}
  h2 {{ break-after: avoid }}
  .charts {{ grid-template-columns: 1fr 1fr }}
  caption {{ break-after: avoid }}
  table, .chart, .findings li {{ break-inside: avoid }}
}}
"""

SCRIPT = """
function nearest(points, x) {
  return points.reduce((best, p) => (!best || Math.abs(p[1] - x) < Math.abs(best[1] - x) ? p : best), null);
}
document.querySelectorAll(".chart").forEach((box) => {
  const svg = box.querySelector(":scope > svg"), tip = box.querySelector(".tip"), cursor = svg.querySelector(".cursor");
  const lines = JSON.parse(svg.dataset.lines), share = "share" in svg.dataset;
  svg.addEventListener("mousemove", (event) => {
    const area = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
    const x = ((event.clientX - area.left) * width) / area.width;
    const hits = lines.map((line) => [line, nearest(line.points, x)]).filter((hit) => hit[1]);
    if (!hits.length) return;
    const at = nearest(hits.map((hit) => hit[1]), x);
    cursor.setAttribute("x1", at[1]);
    cursor.setAttribute("x2", at[1]);
    cursor.style.visibility = "visible";
    const head = document.createElement("b");
    head.textContent = at[0].toLocaleString("en");
    tip.replaceChildren(head);
    for (const [line, point] of hits) {
      const row = document.createElement("div"), dot = document.createElement("i");
      dot.className = "b" + line.colour;
      const when = point[0] === at[0] ? "" : " (" + point[0].toLocaleString("en") + ")";
      const value = share ? (100 * point[3]).toFixed(2) + " %" : Number(point[3]).toPrecision(5);
      row.append(dot, line.label + "  " + value + when);
      tip.append(row);
    }
    tip.hidden = false;
    const left = (at[1] * area.width) / width, room = tip.offsetWidth + 24;
    tip.style.left = (left + room > area.width ? left - tip.offsetWidth - 12 : left + 12) + "px";
  });
  svg.addEventListener("mouseleave", () => {
    tip.hidden = true;
    cursor.style.visibility = "hidden";
  });
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : system;
  root.dataset.theme = dark ? "light" : "dark";
});
"""
